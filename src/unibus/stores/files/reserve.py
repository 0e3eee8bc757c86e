"""Space that a store keeps for the day when its disk is full (decision 0022).

    a group finds no space ──▶ release: a piece of the reserve file is freed ──▶ the same group is written again
                                   │
                                   └──▶ `full`: what makes the store grow is refused; deliveries go on
    once per second ──▶ refill: the file is whole again ──▶ no longer full

The file is really allocated, and holds nothing. A piece is small: another program that fills the disk takes what is
freed, and must not get everything at once. An orderly close removes the file unless the store is full.
"""

import contextlib
import errno
import logging
import os
import shutil
import threading
from typing import Final

log = logging.getLogger("unibus")

PIECES: Final = 64
"""In so many steps the reserve is released."""

PIECE_BYTES_MIN: Final = 16 * 1024
SHARE_OF_DISK: Final = 16
"""A reserve takes at most this part of its file system: one that is small keeps less."""

_BLOCK: Final = 4096
_ZEROS: Final = bytes(64 * 1024)


def is_no_space(error: OSError) -> bool:
    """Whether the error says that the disk, or what this user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """`wanted` bytes beside a store; 0 for none. Its user owns the store."""

    def __init__(self, path: str, wanted: int) -> None:
        self.full = False
        self.wanted = max(0, wanted)
        self.size = 0
        self._path = path
        self._folder = os.path.dirname(path) or "."
        self._guard = threading.Lock()  # A group that finds no space waits for a refill that has just taken it.
        self._piece = 0
        self._is_open = False

    def open(self) -> None:
        """Before the files of the store are opened: a disk that is full to the last block would not let them be."""
        if not self.wanted:
            return
        self._is_open = True  # The store is ours: a process that was refused must not touch the file.
        try:
            total = shutil.disk_usage(self._folder).total
            self.wanted = min(self.wanted, total // SHARE_OF_DISK) // _BLOCK * _BLOCK
            found = os.stat(self._path)
            # A copy of the file may have holes: what counts is what is allocated.
            self.size = min(found.st_size, getattr(found, "st_blocks", 0) * 512)
        except FileNotFoundError:
            self.size = 0
        except OSError as error:
            log.warning("the store goes on without a reserve: %s: %s", self._path, error)
            self.wanted = 0
        self._piece = max(self.wanted // PIECES, PIECE_BYTES_MIN)
        if self.size and self.is_low(self._piece):
            self.release()

    def free_bytes(self) -> int:
        """What this process may still take of the file system, the reserve not counted."""
        return shutil.disk_usage(self._folder).free

    def is_low(self, needed: int) -> bool:
        """Whether there is less than that."""
        try:
            return self.free_bytes() < needed
        except OSError:
            return False  # The next write finds out.

    def release(self) -> bool:
        """Give a piece back to the file system, for a write that has found no space. False if none is left."""
        with self._guard:
            if not self.wanted:
                return False
            self.full = True
            if not self.size:
                return False
            size = max(0, self.size - self._piece)
            try:
                file = os.open(self._path, os.O_WRONLY | _FLAGS)
                try:
                    os.ftruncate(file, size)
                    # Some file systems reuse blocks only when it is on disk that they are free.
                    with contextlib.suppress(OSError):
                        os.fsync(file)
                finally:
                    os.close(file)
            except OSError as error:
                log.warning("the reserve %s could not be released: %s", self._path, error)
                self.size = 0
                return False
            self.size = size
            return True

    def enter(self) -> None:
        """The store is full from now on, though no group had to be written from the reserve yet."""
        self.full = self.wanted > 0

    def refill(self) -> bool:
        """Make it whole. False if there is not enough space yet: then it is as it was."""
        with self._guard:
            if not self.wanted:
                return True
            # Half of it more: a store that is full again with the next send has gained nothing.
            if self.is_low(self.wanted - self.size + self.wanted // 2) or not self._allocate():
                self.full = True
                return False
            self.size = self.wanted
            self.full = False
            return True

    def _allocate(self) -> bool:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            try:
                _fill(file, self.size, self.wanted)
            except OSError:
                os.ftruncate(file, self.size)
                raise
            finally:
                os.close(file)
        except OSError as error:
            if is_no_space(error):
                return False
            log.warning("the store goes on without a reserve: %s: %s", self._path, error)
            self.wanted = 0  # It could never be made, so the store must not wait for it.
        return True

    def close(self) -> None:
        """A store that is closed needs none; one that is full needs it to be opened again."""
        with self._guard:
            if self._is_open and self.wanted and not self.full:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)
                self.size = 0


def _fill(file: int, size: int, wanted: int) -> None:
    """Allocate all blocks up to `wanted`, those that a copy has as holes too."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, wanted)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    for offset in range(size, wanted, len(_ZEROS)):
        os.pwrite(file, _ZEROS[: wanted - offset], offset)


# Not through a link: what is truncated here must be ours.
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
