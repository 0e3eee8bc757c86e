"""A journal on another SQL engine, in one file: Python's driver of SQLite, with numbered marks and standard upserts.

It has no files of its own beside the database, no index and no limits of history: only what differs from an engine to
the next is here, the rest is the row code of stores/sql.
"""

import itertools
import re
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from uuid import uuid4

from unibus.core.lifecycle.events import is_about
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Covered, GroupFate, SnapshotSlice
from unibus.stores.sql.bodies import SqlBodies
from unibus.stores.sql.load import SqlLoading, changes_after, changes_at
from unibus.stores.sql.rows import checksum, pack, save_part, save_summary
from unibus.stores.sql.tables import Bound, SqlDialect, SqlTables
from unibus.stores.sqlite.file import migrations


class OtherConnection:
    """Its marks are ?1, ?2 and so on."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def execute(self, statement: str, values: Sequence[Bound] = (), /) -> Iterable[tuple[object, ...]]:
        numbers = itertools.count(1)
        return self._database.execute(re.sub(r"\?", lambda _: f"?{next(numbers)}", statement), values)


def upserts(database: sqlite3.Connection) -> SqlDialect:
    """Standard SQL has no INSERT OR REPLACE, and wants the key and the columns of the table."""

    def replace(table: str, rows: str) -> str:
        columns = [(name, key) for _, name, _, _, _, key in database.execute(f"PRAGMA table_info({table})")]
        keys = ", ".join(name for name, key in columns if key)
        values = ", ".join(f"{name} = excluded.{name}" for name, _ in columns)
        return f"INSERT INTO {table} VALUES {rows} ON CONFLICT ({keys}) DO UPDATE SET {values}"

    return SqlDialect(replace=replace)


class OtherJournal:
    domain = "local"
    durability = Durability.D2
    snapshots = True
    is_quick = False

    def __init__(self, path: str) -> None:
        self.url = f"other:///{path}"
        self.identity = ""
        self.reserve, self.held = Reserve("", 0), HeldFiles()
        self.oldest, self.last, self.size_bytes = 1, 0, 0
        self._lock = threading.RLock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        if not self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            for _, script in migrations():
                self._database.executescript(script)
            self._database.execute("INSERT INTO meta VALUES ('identity', ?)", (uuid4().hex,))
        self._tables = SqlTables(OtherConnection(self._database), path, upserts(self._database))
        self._bodies = SqlBodies(self._tables)

    def load_snapshot(self, state: StoreState) -> Covered:
        with self._lock:
            loading = SqlLoading(self._tables, state)
            covered = loading.load_snapshot()
            self.last = loading.log_end(covered.seq)
            self.identity = loading.identity
        return covered

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        records = pack(changes)
        self.last = last = first_seq + len(changes) - 1
        with self._lock, self._database:
            self._database.execute("BEGIN")
            if changes:
                row = (first_seq, last, changes[0].at_ns, checksum(records), records)
                self._tables.execute(self._tables.sql.insert_group, row)
            if part is not None:
                save_part(self._tables, part, last)
                if part.last is not None:
                    save_summary(self._tables, part.last, 0, self.oldest)

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        return GroupFate.UNKNOWN

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        with self._lock:
            yield from changes_after(self._tables, seq)

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        with self._lock:
            return changes_at(self._tables, seqs)

    def find(self, message_id: str) -> list[int]:
        return [seq for seq, change in self.changes_after(0) if is_about(change, message_id)]

    def read_bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        with self._lock:
            return {entry: self._bodies.of(entry) for entry in entries}

    def cursors(self, moved: Mapping[str, int] | None = None) -> dict[str, int]:
        with self._lock:
            for name, seq in (moved or {}).items():
                self._tables.execute(self._tables.sql.move_cursor, (name, seq, time.time_ns()))
            return dict(self._tables.execute(self._tables.sql.cursors))  # type: ignore[arg-type]

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        return False

    def close(self) -> None:
        with self._lock:
            self._database.close()
