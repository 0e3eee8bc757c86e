"""Writes groups into a SQLite file, also on a full disk.

    a row of the log         must be written: callers wait for it. Uses the reserve if the disk is full
    a slice of a snapshot    written in the same transaction; put off if the disk is full
    a block of the index     the same

The group, the slice and the block are one transaction: a crash leaves all of them or none. SQLite rolls back a
transaction that finds no space, so the same group can be written again: first without slice and block, then from the
reserve. None of its calls is acknowledged at that time.
"""

import time
from collections.abc import Sequence
from typing import Final

import apsw

from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.sql.index import SqlIndex
from unibus.stores.sql.rows import save_part, save_summary
from unibus.stores.sql.tables import SqlTables
from unibus.stores.sqlite.checkpoints import Checkpoints
from unibus.stores.sqlite.file import PAGE_BYTES, SqliteTransaction, is_no_space

PUT_OFF_NS: Final = 60_000_000_000
"""The time to the next try after a block of the index that did not fit on the disk."""

Row = tuple[int, int, int, int, bytes]


class Groups:
    """Called by the journal under its `_mutex`. `index` is None until the log is loaded."""

    def __init__(
        self, connection: apsw.Connection, tables: SqlTables, reserve: Reserve, checkpoints: Checkpoints
    ) -> None:
        self.index: SqlIndex | None = None
        self._connection = connection
        self._tables = tables
        self._reserve = reserve
        self._checkpoints = checkpoints
        self._index_ns = 0  # No block of the index is written before this time.

    def is_index_due(self) -> bool:
        return self.index is not None and self.index.is_due() and time.monotonic_ns() >= self._index_ns

    def write(
        self, row: Row | None, part: SnapshotSlice | None, oldest: int, log_bytes: int, last: int, sync: bool
    ) -> None:
        """Write a group; `row` is None if it has no changes. Sets `part.put_off` if the slice did not fit on the disk.

        With `sync` something is written in any case: SQLite syncs only with a commit.
        """
        if part is None and not self.is_index_due():  # The usual case: one statement, which is its own transaction.
            self._write_row(row, last)
            return
        more = None if part is None or part.is_empty() else part
        # Not tried on a full disk: the reserve is for groups, which callers wait for.
        if (more is not None or self.is_index_due()) and not self._reserve.full:
            try:
                self._write_more(row, more, oldest, log_bytes, last)
                return
            except apsw.Error as error:
                if not is_no_space(error, self._connection):
                    raise
                # Rolled back as a whole. The row alone is tried below; slice and block wait for space.
                self._index_ns = time.monotonic_ns() + PUT_OFF_NS
        if more is not None:
            more.put_off = True
        # A slice alone that is put off writes nothing, which spares the reserve; but a caller may wait for the sync of
        # earlier groups, and must not be answered without one.
        if row is not None or more is None or sync:
            self._write_row(row, last)

    def _write_row(self, row: Row | None, last: int) -> None:
        """Without a row something else has to be written: only a write is synced, and the sync is for earlier
        groups."""
        # Any write would do; this one is small. The log has `last` already, so the value is true.
        if row is None:
            self.write_meta("overlap", last)
        else:
            self._from_reserve(self._tables.sql.insert_group, row)

    def write_meta(self, *values: int | str) -> None:
        """Keys and values of the table meta, in one statement."""
        rows = ", ".join(["(?, ?)"] * (len(values) // 2))
        self._from_reserve(f"INSERT OR REPLACE INTO meta VALUES {rows}", values)

    def _from_reserve(self, sql: str, values: Sequence[int | str | bytes]) -> None:
        """Repeat the statement, each time with one more piece of the reserve, until it finds space or none is left."""
        while True:
            try:
                # Each try is a whole transaction, so a failed one leaves nothing. A piece of the reserve may be too
                # small, or another program may take it: hence the loop.
                self._connection.execute(sql, values)
                return
            except apsw.Error as error:
                if not is_no_space(error, self._connection) or not self._reserve.release():
                    raise

    def _write_more(self, row: Row | None, part: SnapshotSlice | None, oldest: int, log_bytes: int, last: int) -> None:
        block, wal_bytes = None, 0
        with SqliteTransaction(self._connection):
            # The index first: it reads the changes that it lacks from the log, and must not find this group there.
            if self.index is not None and self.is_index_due():
                block = self.index.save(oldest)
            if row is not None:
                self._connection.execute(self._tables.sql.insert_group, row)
            if part is not None:
                save_part(self._tables, part, last)
                wal_bytes += sum(len(data) for _, _, _, data in part.entries)
                if part.last is not None:
                    save_summary(self._tables, part.last, log_bytes, oldest)
        # After the commit only: a block that was rolled back has to be written again.
        if self.index is not None and block is not None:
            wal_bytes += self.index.saved(block) * PAGE_BYTES
        self._checkpoints.wal_bytes += wal_bytes
