"""The few things that the journal of JSON files does to a disk, in one place: a test can put another disk there.

`unibus.testing.files` has one that loses and tears what was not synced. Every error is an OSError. What counts as
durable: the content of a file after `sync`, and which name leads to which file after `sync_folder`.
"""

import errno
import os
from typing import Final, Protocol

from unibus.stores.files.held_files import Identity, identity_of
from unibus.stores.files.private import FILE_MODE, FOLDER_MODE, keep_mode
from unibus.stores.files.reserve import is_no_space

_sync_data: Final = getattr(os, "fdatasync", os.fsync)
"""Of a file that became longer this syncs the size too, which is all that is ever needed here."""


class Files(Protocol):
    """Names are paths. A handle is a number that `create` or `open` gave."""

    def is_folder(self, path: str) -> bool: ...

    def make_folder(self, path: str) -> None:
        """Only the last part of the path, and nothing where it is there already."""

    def list(self, path: str) -> list[str]:
        """The names in a folder."""

    def size(self, path: str) -> int:
        """In bytes; -1 if there is no such file."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Up to the end, or as much as there is."""

    def create(self, path: str, like: str = "") -> int:
        """A new and empty file, in place of one that has the name. It gets the mode of the file `like`."""

    def open(self, path: str) -> int:
        """To write after its end."""

    def write(self, handle: int, data: bytes) -> None:
        """All of it. After an error some first part may be there."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut off what is after that."""

    def sync(self, handle: int) -> None:
        """SyncFailed, if it fails."""

    def close(self, handle: int) -> None: ...

    def rename(self, path: str, to: str) -> None:
        """In the same folder, in place of what has the name; there is no moment with neither of the two."""

    def remove(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """SyncFailed, if it fails."""

    def identity(self, path: str) -> Identity | None:
        """Tells apart which file or folder a name leads to."""


class SyncFailed(OSError):
    """A sync failed, whatever the reason: it is unknown what is on disk, and it must not be tried again."""


def has_no_space(error: OSError) -> bool:
    """Whether a write found no space. A sync that found none is another matter."""
    return is_no_space(error) and not isinstance(error, SyncFailed)


class RealFiles:
    """The operating system's."""

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        if not os.path.isdir(path):
            os.mkdir(path, FOLDER_MODE)

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return -1

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        with open(path, "rb", buffering=0) as file:
            if offset:
                file.seek(offset)
            if size < 0:
                return file.readall()
            data = file.read(size)
            while len(data) < size and (more := file.read(size - len(data))):
                data += more
            return data

    def create(self, path: str, like: str = "") -> int:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _FLAGS, FILE_MODE)
        if like:
            keep_mode(path, like)
        return handle

    def open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | _FLAGS)

    def write(self, handle: int, data: bytes) -> None:
        written = os.write(handle, data)
        while written < len(data):
            written += os.write(handle, memoryview(data)[written:])

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        try:
            _sync_data(handle)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, path: str, to: str) -> None:
        keep_mode(path, to)
        os.replace(path, to)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        if os.name == "nt":
            return  # There a folder cannot be opened, and its journal is the file system's business.
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error
        finally:
            os.close(folder)

    def identity(self, path: str) -> Identity | None:
        return identity_of(path)


_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def append_whole(files: Files, handle: int, data: bytes, end: int) -> None:
    """Write after `end`, which is where the file ends. What found no space is cut off again before the error leaves."""
    try:
        files.write(handle, data)
    except OSError as error:
        if has_no_space(error):
            try:
                files.truncate(handle, end)
            except OSError as torn:
                # Not an error of no space: nothing may be written after this.
                raise OSError(errno.EIO, f"a write that was cut short stays in the file: {torn}") from error
        raise


def replace(files: Files, path: str, data: bytes) -> None:
    """A whole file at once: after a crash the name has the old content or the new one."""
    fresh = f"{path}.new"
    write_synced(files, fresh, data)
    files.rename(fresh, path)
    files.sync_folder(folder_of(path))


def write_synced(files: Files, path: str, data: bytes) -> None:
    handle = files.create(path)
    try:
        try:
            files.write(handle, data)
            files.sync(handle)
        finally:
            files.close(handle)
    except OSError as error:
        if has_no_space(error):
            files.remove(path)  # Of no use, and in the way of others.
        raise


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]
