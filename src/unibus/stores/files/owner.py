"""The owner's lock: on one machine one process owns a store, by a lock file beside it.

The lock is one of the operating system (`flock`). It ends with the process, also by kill -9, so a crash leaves no stale
lock. The text in the file names the process for people. The file itself stays when the lock is released: if it were
removed, two processes could lock two different files of the same name.

A store can have several names, and all of them have to lead to one lock:

    symbolic link, relative path, ..    the lock file is beside the real file (`os.path.realpath`)
    hard link                           two real paths, each with a -wal of its own: refused
    bind mount, renamed while open      two real paths: found by `_open_here`, by device and inode, in this process;
                                        not found in another process

The database file itself is never locked or opened here. SQLite uses POSIX locks, which belong to the process and not to
a descriptor: closing a second descriptor of the file would drop the locks that SQLite holds on it.
"""

import contextlib
import errno
import json
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from typing import Final

from unibus.errors import StoreBusy, StoreUnavailable
from unibus.stores.files.lock_holder import LOCK_SUFFIX, is_passing, served_elsewhere, server_url
from unibus.stores.files.private import FILE_MODE

Identity = tuple[int, int]
"""Device and inode: they identify a file under any name."""

_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
"""The errors for a lock that another process holds."""

PASSING_S: Final = 0.1
PASSING_STEP_S: Final = 0.005
"""How long an owner tries again while the lock file names no running process: a command that checks the lock holds a
shared one for microseconds (lock_holder.py)."""

_DISK: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC)})

_open_here: dict[Identity, object] = {}
"""Lock files and store files that this process has open. An entry is made by one `setdefault`, which is atomic."""

_inherited: dict[Identity, int] = {}
"""Files that the parent had open when this process was forked, with its pid. SQLite cannot open them here: its memory
has locks that only the parent holds, and a mapping of shared memory that ends when the parent closes the file."""


class Owner:
    """Holds the lock `<real path>.lock` until `release`. StoreBusy names the process that holds it."""

    def __init__(self, path: str) -> None:
        self._name = Path(path).name
        self._path = f"{os.path.realpath(path)}{LOCK_SUFFIX}"
        self._taken: list[Identity] = []
        self._stores: list[Identity] = []
        # Of the process that takes the lock: a forked child reports it as the owner.
        self._pid = os.getpid()
        self._file = -1
        try:
            self._file = os.open(self._path, _FLAGS, FILE_MODE)
            # flock excludes other processes, and a second Owner of this lock file in the same process. The entry in
            # `_open_here` lets the error say which of the two it was.
            if not self._locked():
                raise self._busy(_identity(os.fstat(self._file)) in _open_here)
            self._take(_identity(os.fstat(self._file)))
            self._write_text(json.dumps(_own_text()).encode())
            # Last: an owner that failed to lock has nothing to forget in a child.
            _owners.add(self)
        except OSError as error:
            self._close()
            raise StoreUnavailable(f"cannot lock {self._path}: {error.strerror}", hint_for(error)) from error
        except BaseException:
            self._close()
            raise

    def _locked(self) -> bool:
        # A lock that names a running process is refused at once. Only one that names no running process is tried again:
        # it may be the shared lock of a command, or an owner that has not written its text yet.
        ends_s = time.monotonic() + PASSING_S
        while not _lock(self._file):
            if not is_passing(self._path) or time.monotonic() > ends_s:
                return False
            time.sleep(PASSING_STEP_S)
        return True

    def take(self, path: str) -> None:
        """Register the store file of this lock. Raises StoreBusy if this process has it open under another name."""
        # Not locked, only registered: flock on the lock file excludes other processes, this table a second name in this
        # one.
        found = checked_links(path)
        if found is not None:
            self._take(_identity(found))
            self._stores.append(_identity(found))

    def _take(self, identity: Identity) -> None:
        if _open_here.setdefault(identity, self) is not self:
            raise self._busy(True)
        self._taken.append(identity)

    def _busy(self, here: bool) -> StoreBusy:
        return _busy_here(self._name) if here else busy_elsewhere(self._name, self._path)

    def release(self) -> None:
        """Release the lock. Clears the text first, if the disk allows it; the text is for people only."""
        if self._file >= 0:
            # While the lock is still held: a later owner may have written its own text right after the unlock.
            self._write_text(b"")
            self._close(True)

    def _write_text(self, text: bytes) -> None:
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text, 0)
        except OSError:
            return  # A full or read-only disk. The lock is valid without a text, and is released without clearing it.

    def _close(self, unlock: bool = False) -> None:
        """Can be interrupted by Ctrl-C and called again: it unlocks first, and never closes a descriptor twice."""
        file = self._file
        if unlock and file >= 0:
            with contextlib.suppress(OSError):  # Closing unlocks as well,
                _unlock(file)  # but not while a forked child has a copy of the descriptor.
        for identity in self._taken:
            # After the unlock: a thread that finds no entry may open the file at once, and must get the lock.
            _open_here.pop(identity, None)
        self._taken = []
        self._file = -1  # Before the close: another file may get the same number at once.
        if file >= 0:
            with contextlib.suppress(OSError):  # The descriptor is closed even if close() reports an error.
                os.close(file)

    def forget_in_child(self) -> None:
        """The lock is the parent's. Both share the open file, so unlocking here would unlock it there; closing does
        not."""
        file, self._file = self._file, -1
        if file >= 0:
            # Recorded so that SQLite never opens these files here, not even read-only.
            _inherited.update((identity, self._pid) for identity in self._stores)
            os.close(file)
        self._taken = []


_owners: "weakref.WeakSet[Owner]" = weakref.WeakSet()


def _forget_in_child() -> None:
    # Of the parent. The child may open other stores, and is kept from these by `_inherited`.
    _open_here.clear()
    for owner in list(_owners):
        owner.forget_in_child()
    _owners.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def hint_for(error: OSError) -> str:
    """The hint for an error of the operating system at a path."""
    if error.errno in _DISK:
        return "free space or repair the disk, and open the store again"
    return "check that the folder exists and that you may write to it"


def checked_links(path: str) -> os.stat_result | None:
    """The stat of the file, or None if it does not exist. Raises StoreUnavailable for a file with hard links."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    # Each name would have its own -wal and its own lock file, so two owners would write one file without knowing of
    # each other. A folder always has several links.
    if found.st_nlink > 1 and not os.path.isdir(path):
        raise StoreUnavailable(
            f"{path} has {found.st_nlink} hard links: each name would be a store of its own over the same bytes",
            "remove the other names, or copy the file and open the copy",
        )
    return found


def check_not_open(path: str, found: os.stat_result) -> None:
    """StoreBusy for a file that this process has open under any name, before anything is created for it."""
    check_not_inherited(path, found)
    if _identity(found) in _open_here:
        raise _busy_here(Path(path).name)


def check_not_inherited(path: str, found: os.stat_result) -> None:
    """StoreBusy for a file that the parent had open when this process was forked."""
    pid = _inherited.get(_identity(found))
    if pid is not None:
        raise StoreBusy(
            f"{Path(path).name} was open in process {pid} when this process was forked from it",
            "start this process with the method `spawn`, or fork before the store is opened",
            f"process {pid}",
        )


def is_open_here(path: str) -> bool:
    """Whether this process has a store open in this file."""
    try:
        return _identity(os.stat(path)) in _open_here
    except OSError:
        return False


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _busy_here(name: str) -> StoreBusy:
    holder = _text(_own_text())
    return StoreBusy(
        f"{name} is in use by {holder}: this process has it open already",
        "use the bus that has it open, or close that one first",
        holder,
    )


def busy_elsewhere(name: str, lock: str) -> StoreBusy:
    """The error that names the process that holds this lock file."""
    holder = _read(lock)
    if url := server_url(lock):
        return served_elsewhere(name, holder, url)
    return StoreBusy(
        f"{name} is in use by {holder}",
        "stop that process; `unibus serve FILE` in its place shares the file with commands and other programs",
        holder,
    )


def _lock(file: int) -> bool:
    """False if another process holds it. Raises OSError if the file system has no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            # flock and not fcntl.lockf: it belongs to the open file, so closing another descriptor of the same name
            # does not release it, nor does a forked child that closes its copy.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        return False
    return True


def _unlock(file: int) -> None:
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _own_text() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "program": Path(sys.argv[0] or "python").name}


def _text(held: dict[str, object]) -> str:
    return f"process {held['pid']} ({held['program']}) on {held['host']}"


def _read(path: str) -> str:
    try:
        return _text(json.loads(Path(path).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
