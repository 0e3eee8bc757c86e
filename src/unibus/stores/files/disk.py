"""Access to the disk, behind one protocol: a test can put a simulated disk in its place.

`unibus.testing.files` has a disk that loses and tears what was not synced. Every error is an OSError. Two things are
durable: the content of a file after `sync`, and which name leads to which file after `sync_folder`.

    replace:   write NAME.new ─▶ sync it ─▶ rename to NAME ─▶ sync the folder
               └── a crash leaves the old file ──┘     └── old or new ──┘
"""

import errno
import os
from typing import Final, Protocol

from unibus.stores.files.held_files import Identity, identity_of
from unibus.stores.files.private import FILE_MODE, FOLDER_MODE, keep_mode
from unibus.stores.files.reserve import is_no_space

_sync_data: Final = getattr(os, "fdatasync", os.fsync)
"""fdatasync also writes the size of a file that has grown, and no journal needs more of its metadata."""


class Files(Protocol):
    """Names are paths. A handle is the number that `create` or `open` returned."""

    def is_folder(self, path: str) -> bool: ...

    def make_folder(self, path: str) -> None:
        """Create the last part of the path. Nothing happens if it exists."""

    def list(self, path: str) -> list[str]:
        """The names in a folder."""

    def size(self, path: str) -> int:
        """In bytes; -1 if there is no such file."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Up to the end, or `size` bytes; fewer if the file ends before."""

    def create(self, path: str, like: str = "") -> int:
        """A new and empty file, which replaces one of that name. It gets the mode of the file `like`."""

    def open(self, path: str) -> int:
        """Open for appending."""

    def write(self, handle: int, data: bytes) -> None:
        """Write all of it. After an error the file may have a first part of it."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to this size."""

    def sync(self, handle: int) -> None:
        """Wait until the content is on disk. Raises SyncFailed."""

    def close(self, handle: int) -> None: ...

    def rename(self, path: str, to: str) -> None:
        """Rename within a folder, and replace a file of the new name atomically: the name always exists."""

    def remove(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Wait until creations, renames and removals in the folder are on disk. Raises SyncFailed."""

    def identity(self, path: str) -> Identity | None:
        """Identifies the file or folder that the name leads to now."""


class SyncFailed(OSError):
    """A sync failed: what is on disk is unknown. Never sync again: the kernel may have dropped the pages that it could
    not write, and a second sync would report success."""


def has_no_space(error: OSError) -> bool:
    """Whether a write found no space. Not so for a sync without space: its outcome is unknown."""
    return is_no_space(error) and not isinstance(error, SyncFailed)


class RealFiles:
    """The real disk, through the operating system."""

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        # Not synced: the caller syncs the parent folder once everything in it exists.
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
            # A read may return fewer bytes than asked for, although the file has more.
            data = file.read(size)
            while len(data) < size and (more := file.read(size - len(data))):
                data += more
            return data

    def create(self, path: str, like: str = "") -> int:
        # O_APPEND: each write goes to the end, whatever else has the file open. O_CLOEXEC: a child process must not
        # inherit it.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _FLAGS, FILE_MODE)
        if like:
            keep_mode(path, like)
        return handle

    def open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | _FLAGS)

    def write(self, handle: int, data: bytes) -> None:
        # A short write is normal: on a signal, or when the disk fills up in the middle. The next call then reports the
        # error.
        written = os.write(handle, data)
        while written < len(data):
            written += os.write(handle, memoryview(data)[written:])

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        try:
            # Never repeated after an error, see SyncFailed.
            _sync_data(handle)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, path: str, to: str) -> None:
        # Before the rename: the name must never lead to a file with other permissions than before.
        keep_mode(path, to)
        os.replace(path, to)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        if os.name == "nt":
            return  # Windows cannot open a folder; its file system journals renames itself.
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
    """Append at `end`, the end of the file. A write that found no space is cut off again before the error is raised."""
    try:
        files.write(handle, data)
    except OSError as error:
        if has_no_space(error):
            try:
                # The reserve may be released and the same group written again, so no half of a line may be left before
                # it.
                files.truncate(handle, end)
            except OSError as torn:
                # Half a record stays at the end of the file. Not an error of no space: nothing may be written after it.
                raise OSError(errno.EIO, f"an incomplete write could not be removed from the file: {torn}") from error
        raise


def replace(files: Files, path: str, data: bytes) -> None:
    """Replace a whole file: after a crash the name has the old content or the new one.

    The new file is synced before the rename: otherwise the name could be durable before its content is.
    """
    fresh = f"{path}.new"
    write_synced(files, fresh, data)
    # Atomic for other processes and for a crash of this one; for a power cut only together with the sync below.
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
            files.remove(path)  # Free the space that it took.
        raise


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]
