"""Writing groups into a SQLite file: what has to be written, what goes along with it, and what waits for space.

    a row of the log         has to be written: from the reserve, where there is no other space
    a piece of a snapshot    goes along, in the same transaction; put off where there is no space
    a block of the index     the same

SQLite rolls back by itself what finds no space, so the same group can be written again.
"""

import time
from collections.abc import Sequence
from typing import Final

import apsw

from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.sqlite.checkpoints import Checkpoints
from unibus.stores.sqlite.file import PAGE_BYTES, SqliteTransaction, is_no_space
from unibus.stores.sqlite.index import SqliteIndex
from unibus.stores.sqlite.rows import save_part, save_summary

PUT_OFF_NS: Final = 60_000_000_000
"""Where there was no space for a block of the index, so much time passes before the next try."""

_INSERT: Final = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"

Row = tuple[int, int, int, int, bytes]


class Groups:
    """Called by the journal, which holds its lock. `index` is None until the log was read."""

    def __init__(self, connection: apsw.Connection, reserve: Reserve, checkpoints: Checkpoints) -> None:
        self.index: SqliteIndex | None = None
        self._connection = connection
        self._reserve = reserve
        self._checkpoints = checkpoints
        self._index_ns = 0  # Before that no block of the index is written.

    def is_index_due(self) -> bool:
        return self.index is not None and self.index.is_due() and time.monotonic_ns() >= self._index_ns

    def write(self, row: Row | None, part: SnapshotSlice | None, oldest: int, log_bytes: int, last: int) -> None:
        """A group, without a row where it has no changes. `part.put_off` is set if there was no space for it."""
        if part is None and not self.is_index_due():
            self._write_row(row, last)
            return
        more = None if part is None or part.is_empty() else part
        if (more is not None or self.is_index_due()) and not self._reserve.full:
            try:
                self._write_more(row, more, oldest, log_bytes, last)
                return
            except apsw.Error as error:
                if not is_no_space(error, self._connection):
                    raise
                self._index_ns = time.monotonic_ns() + PUT_OFF_NS
        if more is not None:
            more.put_off = True
        if row is not None or more is None:
            self._write_row(row, last)

    def _write_row(self, row: Row | None, last: int) -> None:
        """Without one, something has to be written all the same: its sync is for what was written before."""
        if row is None:
            self.write_meta("overlap", last)
        else:
            self._from_reserve(_INSERT, row)

    def write_meta(self, *values: int | str) -> None:
        """Keys and values, in one statement."""
        rows = ", ".join(["(?, ?)"] * (len(values) // 2))
        self._from_reserve(f"INSERT OR REPLACE INTO meta VALUES {rows}", values)

    def _from_reserve(self, sql: str, values: Sequence[int | str | bytes]) -> None:
        while True:
            try:
                self._connection.execute(sql, values)
                return
            except apsw.Error as error:
                if not is_no_space(error, self._connection) or not self._reserve.release():
                    raise

    def _write_more(self, row: Row | None, part: SnapshotSlice | None, oldest: int, log_bytes: int, last: int) -> None:
        block, wal_bytes = None, 0
        with SqliteTransaction(self._connection):
            # The index first: it reads what it lacks out of the log, and this group is none of that.
            if self.index is not None and self.is_index_due():
                block = self.index.save(oldest)
            if row is not None:
                self._connection.execute(_INSERT, row)
            if part is not None:
                save_part(self._connection, part, last)
                wal_bytes += sum(len(data) for _, _, _, data in part.entries)
                if part.last is not None:
                    save_summary(self._connection, part.last, log_bytes, oldest)
        if self.index is not None and block is not None:
            wal_bytes += self.index.saved(block) * PAGE_BYTES
        self._checkpoints.wal_bytes += wal_bytes
