"""The reserve: space that a store allocates in advance, to write with when its disk is full (decision 0022).

    a group finds no space ──▶ release: one piece of the reserve file is freed ──▶ the same group is written again
                                   │
                                   └──▶ `full`: calls that make the store grow are rejected; deliveries continue
    once per second ──▶ refill: the file has its full size again ──▶ no longer full

The blocks of the file are really allocated, and hold nothing. A piece is small: a program that fills the disk takes
what is freed, and must not get the whole reserve at once.

What a crash leaves: a file of any size between 0 and `wanted`. `open` measures its blocks, `refill` completes it. An
orderly close removes the file, unless the disk is full: then the next opening needs it.
"""

import contextlib
import errno
import os
import shutil
import threading
from typing import Final

from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

PIECES: Final = 64
"""The reserve is released in this many steps."""

PIECE_BYTES_MIN: Final = 16 * 1024
SHARE_OF_DISK: Final = 16
"""A reserve takes at most 1/16 of its file system: less on a small one."""

_BLOCK: Final = 4096
_ZEROS: Final = bytes(64 * 1024)


def is_no_space(error: OSError) -> bool:
    """Whether the error means that the disk, or the quota of this user, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """`wanted` bytes in a file beside a store; 0 for none. Only the owner of the store may use it."""

    def __init__(self, path: str, wanted: int) -> None:
        self.full = False
        self.wanted = max(0, wanted)
        self.size = 0
        self._path = path
        self._folder = os.path.dirname(path) or "."
        # A group that finds no space waits for a refill in progress: the refill may be what took the space.
        self._guard = threading.Lock()
        self._piece = 0
        self._is_open = False

    def open(self) -> None:
        """Called before the files of the store are opened: on a completely full disk SQLite could not open them."""
        if not self.wanted:
            return
        # This process owns the store: `close` of a process without the lock must not remove the file.
        self._is_open = True
        try:
            total = shutil.disk_usage(self._folder).total
            # Whole blocks: a file system allocates no less.
            self.wanted = min(self.wanted, total // SHARE_OF_DISK) // _BLOCK * _BLOCK
            found = os.stat(self._path)
            # A copied file may have holes: count allocated blocks only.
            self.size = min(found.st_size, getattr(found, "st_blocks", 0) * 512)
        except FileNotFoundError:
            self.size = 0
        except OSError as error:
            log.warning("the store has no reserve of disk space: the file %s cannot be used: %s", self._path, error)
            self.wanted = 0
        self._piece = max(self.wanted // PIECES, PIECE_BYTES_MIN)
        # On a disk without a single free block not even recovery can write.
        if self.size and self.is_low(self._piece):
            self.release()

    def free_bytes(self) -> int:
        """The bytes that this process may still use of the file system, without the reserve."""
        return shutil.disk_usage(self._folder).free

    def is_low(self, needed: int) -> bool:
        """Whether fewer bytes are free."""
        try:
            return self.free_bytes() < needed
        except OSError:
            return False  # The next write finds out.

    def release(self) -> bool:
        """Free one piece, for a write that has found no space. False if nothing is left."""
        with self._guard:
            if not self.wanted:
                return False
            self.full = True
            # `full` is set before, also if nothing is left: from now on the store must not grow.
            if not self.size:
                return False
            # From the end: a truncation frees blocks at once, and the rest stays allocated.
            size = max(0, self.size - self._piece)
            try:
                file = os.open(self._path, os.O_WRONLY | _FLAGS)
                try:
                    os.ftruncate(file, size)
                    # Some file systems reuse freed blocks only after the truncation is on disk.
                    with contextlib.suppress(OSError):
                        os.fsync(file)
                finally:
                    os.close(file)
            except OSError as error:
                # Taken as used up: a reserve that cannot be released must not be counted on.
                log.warning("the reserve %s could not be released: %s", self._path, error)
                self.size = 0
                return False
            self.size = size
            return True

    def enter(self) -> None:
        """Treat the disk as full from now on, although no group has needed the reserve yet."""
        self.full = self.wanted > 0

    def refill(self) -> bool:
        """Allocate the full size again. False if there is not enough space yet: then nothing has changed."""
        with self._guard:
            if not self.wanted:
                return True
            # Half of it in addition: a store that is full again at the next send has gained nothing.
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
                # Give back what a failed attempt has taken: groups may need it now.
                os.ftruncate(file, self.size)
                raise
            finally:
                os.close(file)
        except OSError as error:
            if is_no_space(error):
                return False
            log.warning("the store has no reserve of disk space: the file %s cannot be used: %s", self._path, error)
            self.wanted = 0  # It can never be created, so the store must not wait for it.
        return True

    def close(self) -> None:
        """Remove the file. On a full disk it stays: the next opening needs the space."""
        with self._guard:
            # Removed only by the owner, and before it releases the lock: the next owner creates its own.
            if self._is_open and self.wanted and not self.full:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)
                self.size = 0


def _fill(file: int, size: int, wanted: int) -> None:
    """Allocate all blocks up to `wanted`, also the holes of a copied file."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, wanted)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    # Without fallocate the blocks are written. A hole would reserve nothing.
    for offset in range(size, wanted, len(_ZEROS)):
        os.pwrite(file, _ZEROS[: wanted - offset], offset)


# O_NOFOLLOW: the file that is truncated here must be ours, and not the target of a link.
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
