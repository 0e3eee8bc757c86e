"""What `unibus check` and `unibus repair` need of a SQLite store: read its files without changing them, and write a new
one."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import cast

import apsw
import msgspec

from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreDamaged
from unibus.stores.files.private import make_file
from unibus.stores.seam.store_files import LoggedGroup, Reader, SalvagedStore
from unibus.stores.sql.bodies import SqlBodies
from unibus.stores.sql.load import SqlLoading
from unibus.stores.sql.rows import changes_of, checksum, pack, save_part, save_summary
from unibus.stores.sql.tables import SqlTables, damaged
from unibus.stores.sqlite.file import SqliteTransaction, open_file, translated
from unibus.stores.sqlite.look import open_read_only

_ROWS = "SELECT seq, last, crc, records FROM log WHERE seq >= ? ORDER BY seq"
_SEQ_MAX = 1 << 62
# The errors of reading a damaged page, or a value of a wrong type.
_UNREADABLE = (apsw.Error, UnicodeDecodeError, TypeError, ValueError)


class SqliteFiles:
    """One read transaction from beginning to end: everything is of one moment, also beside a running owner.

    `path` is read and `url` is reported: a repair reads a copy. `is_owned`: a process may change the file meanwhile.
    """

    def __init__(self, path: str, url: str, is_owned: bool = True) -> None:
        self.url = url
        self.reached = 0
        self._path = path
        # An immutable file is read without any lock and without a -shm beside it, but SQLite then ignores a write-ahead
        # log. So only a store without an owner and without a log is read this way.
        has_wal = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
        self._connection = open_read_only(path, immutable=not is_owned and not has_wal)
        try:
            self._connection.execute("BEGIN")
            self.domain = str(self._connection.execute("SELECT value FROM meta WHERE key = 'domain'").get or "local")
        except apsw.Error as error:
            self._connection.close()
            raise translated(error, path) from error
        self._tables = SqlTables(self._connection, path)
        self._bodies = SqlBodies(self._tables)

    def load_snapshot(self, state: StoreState) -> tuple[int, int]:
        loading = SqlLoading(self._tables, state)
        try:
            covered = loading.load_snapshot()
        except apsw.Error as error:
            raise translated(error, self._path) from error
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise damaged(self._path, f"a row of the snapshot is not what was written: {error}") from error
        self.reached = covered.reached
        return covered.seq, covered.overlap

    def groups(self, after: int) -> Iterator[LoggedGroup]:
        begin, last = self._begin(after), after
        while True:
            # In order of the primary key. A damaged page ends the statement with an error; it is started again after
            # it.
            rows = self._connection.execute(_ROWS, (begin,))
            try:
                for first, last, crc, records in rows:
                    if last > after:
                        yield self._group(after, first, last, crc, records)
                return
            except _UNREADABLE as error:
                # The number of lost groups is unknown: the page that has it is the damaged one.
                yield LoggedGroup(0, 0, [], f"the log cannot be read after change {last}: {error}")
            begin = self._next_readable(last + 1)
            if begin == _SEQ_MAX:
                return

    def _begin(self, after: int) -> int:
        """Where to start reading. Recovery starts at the same row, and does not read what comes before."""
        try:
            return cast(int, self._connection.execute("SELECT max(seq) FROM log WHERE seq <= ?", (after + 1,)).get or 0)
        except _UNREADABLE:
            return after + 1

    def _next_readable(self, seq: int) -> int:
        """The first group after a page that cannot be read: doubling steps until one can be read, then a binary
        search."""
        # Every seq on the damaged page fails in the same way, and a page has an unknown number of them: doubling
        # reaches the next page in few steps.
        step = 1
        while seq + step < _SEQ_MAX and not self._is_readable(seq + step):
            step *= 2
        unreadable, readable = seq + step // 2, min(seq + step, _SEQ_MAX)
        while unreadable + 1 < readable:
            middle = (unreadable + readable) // 2
            if self._is_readable(middle):
                readable = middle
            else:
                unreadable = middle
        try:
            return cast(
                int, self._connection.execute("SELECT min(seq) FROM log WHERE seq >= ?", (readable,)).get or _SEQ_MAX
            )
        except _UNREADABLE:
            return _SEQ_MAX

    def _is_readable(self, seq: int) -> bool:
        try:
            # The first row at or after `seq`: reading it touches the inner pages and the leaf, but not the rest of the
            # log.
            self._connection.execute(f"{_ROWS} LIMIT 1", (seq,)).fetchall()
        except _UNREADABLE:
            return False
        return True

    def _group(self, after: int, first: int, last: int, crc: int, records: bytes) -> LoggedGroup:
        try:
            changes = changes_of(self._path, first, last, crc, records)
        except (StoreDamaged, TypeError):
            what = f"change {first} is" if first == last else f"changes {first} to {last} are"
            return LoggedGroup(first, last, [], f"{what} not what was written")
        # The group may begin before the snapshot ends: these changes are in the snapshot.
        skipped = max(0, after + 1 - first)
        return LoggedGroup(first + skipped, last, changes[skipped:])

    def bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        try:
            return {entry: self._bodies.of(entry) for entry in entries}
        except apsw.Error as error:
            raise translated(error, self._path) from error

    def readers(self) -> list[Reader]:
        rows = self._connection.execute("SELECT name, seq FROM cursors")
        return [Reader(name, seq) for name, seq in cast("Iterator[tuple[str, int]]", rows)]

    def close(self) -> None:
        self._connection.close()


def copy_store(path: str, work: str) -> str:
    """Copy the file and its log: SQLite creates files beside the one that it opens, even to read."""
    copy = f"{work}/original"
    shutil.copyfile(path, copy)
    if os.path.exists(f"{path}-wal"):
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    return copy


def write_store(path: str, store: SalvagedStore) -> None:
    """Write a whole store. A crash leaves a part of one, which never gets the name of a store (repair.py)."""
    make_file(path)
    connection = open_file(path, store.domain, None, False)
    tables = SqlTables(connection, path)
    try:
        log_bytes = 0
        with SqliteTransaction(connection):
            for first, changes in store.groups:
                records = pack(changes)
                row = (first, first + len(changes) - 1, changes[0].at_ns, checksum(records), records)
                tables.execute(tables.sql.insert_group, row)
                log_bytes += len(records)
            for part in store.slices:
                save_part(tables, part, store.summary.seq)
            save_summary(tables, store.summary, log_bytes, store.history_from)
            now_ns = time.time_ns()
            cursors = [value for each in store.readers for value in (each.name, each.seq, now_ns, 0)]
            tables.replace("cursors", cursors, 4)
    finally:
        connection.close()
