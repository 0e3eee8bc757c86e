"""When SQLite's write-ahead log is copied into the file, and what happens where that finds no space.

Usually that is when the log is large. Where the disk is nearly full it is much sooner (decision 0022): deliveries write
the same few pages again and again into the log, which take hardly any space in the file; and a log that was copied is
written over from its beginning. So what is left of the disk lasts for many more of them.

    log   ████████████████░░░░        the file has the space for all of this before it is copied,
    file  ██████░░░░░░░░              but for the last part: at most a quarter of the reserve

A store with a reserve therefore lets the file grow along with the log, without writing to it.
"""

import ctypes
import os
from typing import Final

import apsw

from unibus.stores.files.reserve import Reserve
from unibus.stores.sqlite.file import PAGE_BYTES, is_no_space

AGAIN_BYTES: Final = 4_000_000
"""Where a reader was in the way, or the disk was full, so much comes before the next try."""

QUICK_BYTES: Final = 2_000_000
"""Before a checkpoint comes this near, an append counts as one that may take a while."""

_STEPS: Final = 4
"""Short of space, a checkpoint comes after this part of the reserve; and so often the file is made longer."""

_CHUNK_BYTES: Final = 65_536
"""The file is a multiple of this. Without it SQLite allocates nothing ahead."""


class Checkpoints:
    """`limit` is how large the log may grow. Called by the journal, which holds its lock."""

    def __init__(self, connection: apsw.Connection, path: str, reserve: Reserve) -> None:
        self.wal_bytes = 0
        self._path = path
        self._connection = connection
        self._reserve = reserve
        self._step = reserve.wanted // _STEPS
        self._look_at = self._step  # When to ask the file system for its free space.
        if self._step:
            self._control(apsw.SQLITE_FCNTL_CHUNK_SIZE, ctypes.c_int(_CHUNK_BYTES))

    def is_due(self, limit: int) -> bool:
        if self.wal_bytes > limit:
            return True
        if not self._step or self.wal_bytes < self._look_at:
            return False
        self._look_at = self.wal_bytes + self._step
        self._allocate()
        return self._reserve.full or self._reserve.is_low(2 * limit)

    def _allocate(self) -> None:
        """Let the file have the space that a checkpoint will need, while there is some. If not, the store is full."""
        size = self._connection.pragma("page_count") * PAGE_BYTES
        try:
            missing = size - os.stat(self._path).st_size
        except OSError:
            return  # The next look at the files finds out.
        if missing > 0 and not self._control(apsw.SQLITE_FCNTL_SIZE_HINT, ctypes.c_int64(size)):
            if self._reserve.is_low(missing):
                self._reserve.enter()

    def _control(self, code: int, value: ctypes.c_int | ctypes.c_int64) -> bool:
        try:
            return self._connection.file_control("main", code, ctypes.addressof(value))
        except apsw.Error:
            return False

    def is_near(self, limit: int) -> bool:
        return self.wal_bytes > limit - QUICK_BYTES or (self._step > 0 and self.wal_bytes >= self._look_at)

    def run(self, limit: int, *, must: bool = False) -> None:
        """Copy as far as no reader is in the way. No space is no error, the log has everything; unless it `must` be."""
        left = self._left(0 if must else self._reserve.wanted // 2)
        if left < 0 and must:
            raise apsw.FullError("database or disk is full")
        if left < 0:
            left = self.wal_bytes
        self.wal_bytes = min(left, max(0, limit - AGAIN_BYTES))
        self._look_at = self.wal_bytes + self._step

    def _left(self, kept: int) -> int:
        """The bytes that are still in the log only; -1 if there was no space to copy them: then the store is full.

        The reserve is used for this down to `kept` bytes: the rest is for groups.
        """
        while True:
            try:
                pages, moved = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                return (pages - moved) * PAGE_BYTES
            except apsw.Error as error:
                if not is_no_space(error, self._connection):
                    raise
                self._reserve.enter()
                if not self._is_worth(kept) or not self._reserve.release():
                    return -1

    def _is_worth(self, kept: int) -> bool:
        """Whether the reserve has what the file needs. If not, none of it is spent."""
        try:
            growth = self._connection.pragma("page_count") * PAGE_BYTES - os.stat(self._path).st_size
            return growth <= self._reserve.free_bytes() + self._reserve.size - kept and self._reserve.size > kept
        except OSError:
            return self._reserve.size > kept
