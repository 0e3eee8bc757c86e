"""Checkpoints: when SQLite's write-ahead log is copied into the file, and what happens if the disk is full.

Normally a checkpoint runs when the log is large. On a nearly full disk it runs much sooner (decision 0022): deliveries
write the same few pages to the log again and again, which take hardly any space in the file; and after a checkpoint
SQLite writes the log from its beginning again. So the rest of the disk lasts for many more deliveries.

    log   ████████████████░░░░        the file has the space for all of this before it is copied,
    file  ██████░░░░░░░░              except for the last part: at most a quarter of the reserve

For that, a store with a reserve lets the file grow together with the log, without writing to it.

A crash during a checkpoint loses nothing: SQLite syncs the log before it copies, and the file before it reuses the log.
Until then the log has every page, and the next opening copies again. A checkpoint without space is no error either.
"""

import ctypes
import os
from typing import Final

import apsw

from unibus.stores.files.reserve import Reserve
from unibus.stores.sqlite.file import PAGE_BYTES, is_no_space

AGAIN_BYTES: Final = 4_000_000
"""The log grows by this much before the next try, if a reader blocked a checkpoint or the disk was full."""

QUICK_BYTES: Final = 2_000_000
"""This close to a checkpoint an append is not quick: a loop leaves it to the writer thread."""

_STEPS: Final = 4
"""On a nearly full disk a checkpoint runs after 1/4 of the reserve; the file grows in the same steps."""

_CHUNK_BYTES: Final = 65_536
"""The file is a multiple of this. Without a chunk size SQLite ignores the size hint and allocates nothing ahead."""


class Checkpoints:
    """`limit` is how large the log may grow. Called by the journal under its `_mutex`."""

    def __init__(self, connection: apsw.Connection, path: str, reserve: Reserve) -> None:
        self.wal_bytes = 0
        self._path = path
        self._connection = connection
        self._reserve = reserve
        self._step = reserve.wanted // _STEPS
        self._look_at = self._step  # The log size at which to ask the file system for its free space.
        if self._step:
            self._control(apsw.SQLITE_FCNTL_CHUNK_SIZE, ctypes.c_int(_CHUNK_BYTES))

    def is_due(self, limit: int) -> bool:
        if self.wal_bytes > limit:
            return True
        # Asking the file system costs a call, so it is asked once for each step of growth.
        if not self._step or self.wal_bytes < self._look_at:
            return False
        self._look_at = self.wal_bytes + self._step
        self._allocate()
        # Twice the limit: the log may grow by as much again before the next look, and the file by what is copied.
        return self._reserve.full or self._reserve.is_low(2 * limit)

    def _allocate(self) -> None:
        """Reserve in the file what a checkpoint will need, while there is space. If there is none, the disk is full."""
        size = self._connection.pragma("page_count") * PAGE_BYTES
        try:
            # `page_count` includes pages that are in the log only: it is the size of the file after a checkpoint.
            missing = size - os.stat(self._path).st_size
        except OSError:
            return  # HeldFiles reports what is wrong with the file.
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
        """Copy as far as no reader blocks it. A full disk is not an error, because the log has everything; except with
        `must`, at an opening."""
        # At an opening the whole reserve may be used: without this checkpoint nothing can be served.
        left = self._left(0 if must else self._reserve.wanted // 2)
        if left < 0 and must:
            raise apsw.FullError("database or disk is full")
        if left < 0:
            left = self.wal_bytes
        # What a reader has blocked stays in the log, but must not make the next commit try again: the count is lowered
        # so that the next try comes after AGAIN_BYTES.
        self.wal_bytes = min(left, max(0, limit - AGAIN_BYTES))
        self._look_at = self.wal_bytes + self._step

    def _left(self, kept: int) -> int:
        """The bytes that are still in the log only; -1 if there was no space to copy them: then the disk is full.

        Uses the reserve down to `kept` bytes: the rest is for groups, which callers wait for.
        """
        while True:
            try:
                # PASSIVE never waits for a reader: it copies up to the oldest snapshot that one uses. If all was copied
                # and no reader is left, the next commit writes the log from its beginning.
                pages, moved = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                return (pages - moved) * PAGE_BYTES
            except apsw.Error as error:
                if not is_no_space(error, self._connection):
                    raise
                self._reserve.enter()
                if not self._is_enough(kept) or not self._reserve.release():
                    return -1

    def _is_enough(self, kept: int) -> bool:
        """Whether the reserve has what the file needs. If not, none of it is used."""
        try:
            growth = self._connection.pragma("page_count") * PAGE_BYTES - os.stat(self._path).st_size
            return growth <= self._reserve.free_bytes() + self._reserve.size - kept and self._reserve.size > kept
        except OSError:
            return self._reserve.size > kept
