"""The journal in one SQLite file, through apsw.

One row per group commit: the group's changes as one blob. A group is then one call into SQLite, whatever its size,
which matters because each call gives up the interpreter and may have to wait for it (decision 0011). The file is in
WAL mode, not exclusive: other processes may read it, read-only.
"""

import logging
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import apsw
import msgspec

from unibus.core.life.book import MARK_PROCESSED, Book
from unibus.core.life.changes import Change, Passed, SavedEntry, SavedSession, Sent
from unibus.core.life.entity import Entity
from unibus.core.life.entry import Entry
from unibus.core.life.events import Event, event_of
from unibus.errors import StoreBusy, StoreDamaged, StoreFailed, StoreUnavailable, StoreVersion
from unibus.limits import HISTORY_AGE_S_DEFAULT, HISTORY_BYTES_DEFAULT
from unibus.stores.durability import Durability
from unibus.stores.journal import Slice, Summary
from unibus.stores.owner import Owner

log = logging.getLogger("unibus")

APPLICATION_ID: Final = 0x554E4942  # "UNIB"
SCHEMA: Final = Path(__file__).parent / "schema"
SEQUENCE_BITS: Final = 40
_SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
_ROWS_PER_STATEMENT: Final = 250
_CACHED_GROUPS: Final = 8

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[Change]).decode
_unpack_entry: Final = msgspec.msgpack.Decoder(SavedEntry).decode
_unpack_session: Final = msgspec.msgpack.Decoder(SavedSession).decode

# Set at open and read back: a pragma that the library does not know is silently ignored.
PRAGMAS: Final[dict[str, object]] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "cache_size": -65536,
    "temp_store": 2,
    "wal_autocheckpoint": 4000,
    "foreign_keys": 0,
}


class SqliteJournal:
    """`vfs` and `exclusive` are for tests on a simulated disk, which has no shared memory."""

    snapshots = True

    def __init__(
        self,
        path: str,
        *,
        domain: str = "local",
        history_age_s: float = HISTORY_AGE_S_DEFAULT,
        history_bytes: int = HISTORY_BYTES_DEFAULT,
        vfs: str | None = None,
        exclusive: bool = False,
    ) -> None:
        self.url = f"sqlite:///{path}"
        self.durability = Durability.D2
        self._path = path
        self._name = Path(path).name
        self._domain = domain
        self._history_age_ns = round(history_age_s * 1e9)
        self._history_bytes = history_bytes
        self._mutex = threading.RLock()
        self._synced = True
        self._log_bytes = 0
        self._groups: dict[int, list[Change]] = {}
        self._names: dict[int, str] = {}
        self._last = 0
        self._owner = None if vfs is not None else Owner(path)
        try:
            self._connection = self._open(vfs, exclusive)
        except BaseException:
            if self._owner is not None:
                self._owner.release()
            raise

    # Opening

    def _open(self, vfs: str | None, exclusive: bool) -> apsw.Connection:
        try:
            connection = apsw.Connection(self._path, vfs=vfs)
        except apsw.Error as error:
            raise StoreUnavailable(f"cannot open {self._path}: {error}", "is the folder there?") from error
        try:
            connection.set_busy_timeout(5_000)
            if exclusive:
                connection.pragma("locking_mode", "exclusive")
            self._check_identity(connection)
            for name, value in PRAGMAS.items():
                self._set_pragma(connection, name, value)
            self._migrate(connection)
        except apsw.Error as error:
            connection.close()
            raise translated(error, self._path) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_identity(self, connection: apsw.Connection) -> None:
        """A file of somebody else's is left alone."""
        version = connection.pragma("user_version")
        application = connection.pragma("application_id")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        if application != APPLICATION_ID and (tables or version):
            raise StoreUnavailable(f"{self._path} is a SQLite file, but not one of unibus", "choose another file")
        if version > newest_version():
            raise StoreVersion(
                f"{self._path} has schema {version}, this version of unibus knows {newest_version()}",
                "install the newer unibus; nothing was changed",
            )
        if not tables:
            # Both only take effect before the first table.
            connection.pragma("page_size", 8192)
            connection.pragma("auto_vacuum", 2)

    def _set_pragma(self, connection: apsw.Connection, name: str, value: object) -> None:
        connection.pragma(name, value)
        found = connection.pragma(name)
        if found != value:
            raise StoreUnavailable(
                f"SQLite has {name} = {found!r} on {self._path}, and {value!r} is needed",
                "is the file on a network file system?",
            )

    def _migrate(self, connection: apsw.Connection) -> None:
        """Each step and its version number in one transaction: a crash leaves the old schema or the new one."""
        for version, script in migrations():
            if version > connection.pragma("user_version"):
                connection.execute("BEGIN IMMEDIATE")
                try:
                    connection.execute(script)
                    connection.pragma("user_version", version)
                    connection.pragma("application_id", APPLICATION_ID)
                    connection.execute("INSERT OR IGNORE INTO meta VALUES ('domain', ?)", (self._domain,))
                    connection.execute("COMMIT")
                except BaseException:
                    if not connection.get_autocommit():
                        connection.execute("ROLLBACK")
                    raise

    # Loading

    def load(self, book: Book) -> int:
        try:
            with self._mutex:
                return self._load(book)
        except apsw.Error as error:
            raise translated(error, self._path) from error

    def _load(self, book: Book) -> int:
        meta = dict(cast("Iterator[tuple[str, object]]", self._connection.execute("SELECT key, value FROM meta")))
        self._domain = str(meta.get("domain", self._domain))
        snapshot = cast(int, meta.get("snapshot", 0))
        overlap = cast(int, meta.get("overlap", 0))
        self._log_bytes = cast(int, meta.get("log_bytes", 0))
        book.replaying = True
        self._load_entities(book)
        self._load_messages(book)
        self._load_sessions(book)
        for entity, kind, key, at_ns in self._connection.execute(
            "SELECT entity, kind, key, at_ns FROM marks ORDER BY at_ns"
        ):
            found = book.entities.get(entity)
            if found is not None:
                found.mark_processed(key, at_ns) if kind == MARK_PROCESSED else found.mark(key, at_ns)
        book.seq = snapshot
        self._replay(book, snapshot, overlap)
        self._last = book.seq
        book.strict = True
        book.replaying = False
        for number, entity in book.entities.items():
            self._names[number] = entity.name
        return snapshot

    def _load_entities(self, book: Book) -> None:
        rows = self._connection.execute(
            "SELECT number, name, kind, sequence, dropped, settings FROM entities ORDER BY number"
        )
        for number, name, kind, sequence, dropped, settings in rows:
            self._names[number] = name
            book.numbered = max(book.numbered, number)
            if not dropped:
                entity = Entity(number, name, kind, msgspec.json.decode(settings))
                book.add_entity(entity, sequence)
                entity.unsaved = False
        for name, sequence in self._connection.execute("SELECT name, sequence FROM retired"):
            if book.find(name) is None:
                book.retired[name] = sequence

    def _load_messages(self, book: Book) -> None:
        entity: Entity | None = None
        for key, crc, saved in self._connection.execute("SELECT key, crc, saved FROM messages ORDER BY key"):
            number = key >> SEQUENCE_BITS
            if entity is None or entity.number != number:
                entity = book.entities.get(number)
                if entity is None:
                    raise self._damaged(f"messages of entity {number}, which does not exist")
            if zlib.crc32(saved) != crc:
                raise self._damaged(f"the row of {entity.name!r} #{key & _SEQUENCE_MASK}")
            book.restore(entity, key & _SEQUENCE_MASK, _unpack_entry(saved))

    def _load_sessions(self, book: Book) -> None:
        for number, session_id, crc, saved in self._connection.execute("SELECT entity, id, crc, saved FROM sessions"):
            entity = book.entities.get(number)
            if zlib.crc32(saved) != crc:
                raise self._damaged(f"the row of session {session_id!r}")
            if entity is not None:
                book.restore_session(entity, _unpack_session(saved))

    def _replay(self, book: Book, snapshot: int, overlap: int) -> None:
        """The log after the snapshot. Up to `overlap` its rows may be older than what the snapshot has."""
        expected = snapshot + 1
        for seq, changes, size in self._rows("last > ?", snapshot):
            self._log_bytes += size
            if seq != expected:
                raise self._damaged(f"the log, from change {expected} to {seq - 1}: it is missing")
            for change in changes:
                book.strict = book.seq >= overlap
                book.replay(change)
            book.end_group()
            expected = seq + len(changes)

    def _rows(self, where: str, value: int) -> Iterator[tuple[int, list[Change], int]]:
        sql = f"SELECT seq, last, crc, records FROM log WHERE {where} ORDER BY seq"
        for row in self._connection.execute(sql, (value,)):
            yield row[0], self._changes(*row), len(row[3])

    def _changes(self, seq: int, last: int, crc: int, records: bytes) -> list[Change]:
        if zlib.crc32(records) != crc:
            raise self._damaged(f"the log, changes {seq} to {last}")
        try:
            changes = _unpack(records)
        except msgspec.DecodeError as error:
            raise StoreVersion(
                f"{self._path} holds changes {seq} to {last} of a kind that this version does not know: {error}",
                "install the newer unibus; nothing was changed",
            ) from error
        if len(changes) != last - seq + 1:
            raise self._damaged(f"the log, changes {seq} to {last}")
        return changes

    # Writing

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: Slice | None = None) -> None:
        records = _pack(changes)
        last = first_seq + len(changes) - 1
        try:
            with self._mutex:
                self._sync(sync or part is not None)
                row = (first_seq, last, changes[0].at_ns if changes else 0, zlib.crc32(records), records)
                if part is None:
                    self._connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", row)
                else:
                    self._append_part(row if changes else None, part)
        except apsw.Error as error:
            raise StoreFailed(
                f"{self._name} could not be written: {error}",
                "the last calls may or may not have taken effect; free space or mend the disk, and open the bus again",
            ) from error
        self._last = last
        self._log_bytes += len(records)

    def _sync(self, sync: bool) -> None:
        if sync != self._synced:
            self._connection.execute("PRAGMA synchronous = FULL" if sync else "PRAGMA synchronous = NORMAL")
            self._synced = sync

    def _append_part(self, row: tuple[int, int, int, int, bytes] | None, part: Slice) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            if row is not None:
                connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", row)
            self._save_entries(part)
            self._remove_entries(part)
            if part.last is not None:
                self._save_summary(part.last)
            connection.execute("COMMIT")
        except BaseException:
            if not connection.get_autocommit():
                connection.execute("ROLLBACK")
            raise

    def _save_entries(self, part: Slice) -> None:
        rows: list[object] = []
        for entity, sequence, saved, data in part.entries:
            packed = _pack(saved)
            rows += (entity << SEQUENCE_BITS | sequence, zlib.crc32(packed), zlib.crc32(data), packed, data)
        self._many("INSERT OR REPLACE INTO messages VALUES ", "(?, ?, ?, ?, ?)", rows, 5)

    def _remove_entries(self, part: Slice) -> None:
        keys: list[object] = [entity << SEQUENCE_BITS | sequence for entity, sequence in part.gone]
        for start in range(0, len(keys), _ROWS_PER_STATEMENT):
            some = keys[start : start + _ROWS_PER_STATEMENT]
            self._connection.execute(f"DELETE FROM messages WHERE key IN ({', '.join('?' * len(some))})", some)

    def _many(self, head: str, row: str, values: Sequence[object], width: int) -> None:
        """Many rows in few statements: each call into SQLite may have to wait for the interpreter afterwards."""
        step = _ROWS_PER_STATEMENT * width
        for start in range(0, len(values), step):
            some = values[start : start + step]
            self._connection.execute(head + ", ".join([row] * (len(some) // width)), some)

    def _save_summary(self, summary: Summary) -> None:
        connection = self._connection
        entities: list[object] = []
        for number, name, kind, settings, sequence in summary.entities:
            self._names[number] = name
            entities += (number, name, kind, sequence, 0, msgspec.json.encode(settings).decode())
        self._many("INSERT OR REPLACE INTO entities VALUES ", "(?, ?, ?, ?, ?, ?)", entities, 6)
        for number in summary.dropped:
            # One that came and went between two snapshots has no row yet, and history needs its name.
            connection.execute(
                "INSERT INTO entities VALUES (?, ?, 0, 0, 1, '{}') ON CONFLICT (number) DO UPDATE SET dropped = 1",
                (number, self._names.get(number, f"#{number}")),
            )
            connection.execute("DELETE FROM sessions WHERE entity = ?", (number,))
            connection.execute("DELETE FROM marks WHERE entity = ?", (number,))
        retired = [value for pair in summary.retired.items() for value in pair]
        self._many("INSERT OR REPLACE INTO retired VALUES ", "(?, ?)", retired, 2)
        for number, sessions in summary.sessions.items():
            connection.execute("DELETE FROM sessions WHERE entity = ?", (number,))
            rows: list[object] = []
            for saved in sessions:
                packed = _pack(saved)
                rows += (number, saved.session_id, zlib.crc32(packed), packed)
            self._many("INSERT INTO sessions VALUES ", "(?, ?, ?, ?)", rows, 4)
        marks = [value for mark in summary.marks for value in mark]
        self._many("INSERT OR REPLACE INTO marks VALUES ", "(?, ?, ?, ?)", marks, 4)
        for number, kind, over_ns in summary.marks_over:
            connection.execute("DELETE FROM marks WHERE entity = ? AND kind = ? AND at_ns < ?", (number, kind, over_ns))
        meta = ("snapshot", summary.seq, "overlap", summary.overlap, "log_bytes", self._log_bytes)
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?), (?, ?), (?, ?)", meta)

    # Reading

    def bodies(self, entries: Iterable[Entry]) -> dict[Entry, bytes]:
        found: dict[Entry, bytes] = {}
        try:
            with self._mutex:
                for entry in entries:
                    found[entry] = self._saved_body(entry) if entry.home_entity else self._logged_body(entry)
        except apsw.Error as error:
            raise translated(error, self._path) from error
        return found

    def _saved_body(self, entry: Entry) -> bytes:
        key = entry.home_entity << SEQUENCE_BITS | entry.home_sequence
        for data, crc in self._connection.execute("SELECT data, data_crc FROM messages WHERE key = ?", (key,)):
            if zlib.crc32(data) == crc:
                return cast(bytes, data)
        raise self._damaged(f"the data of {entry.entity.name!r} #{entry.sequence}")

    def _logged_body(self, entry: Entry) -> bytes:
        """From the group that its record is in. Neighbours are received together, so the last groups are kept."""
        wanted = entry.home_sequence
        for first, changes in self._groups.items():
            if first <= wanted < first + len(changes):
                return self._data_of(entry, changes[wanted - first])
        sql = "SELECT seq, last, crc, records FROM log WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
        for row in self._connection.execute(sql, (wanted,)):
            changes = self._changes(*row)
            if wanted <= row[1]:
                while len(self._groups) >= _CACHED_GROUPS:
                    del self._groups[next(iter(self._groups))]
                self._groups[row[0]] = changes
                return self._data_of(entry, changes[wanted - row[0]])
        raise self._damaged(f"the data of {entry.entity.name!r} #{entry.sequence}: the log has no change {wanted}")

    def _data_of(self, entry: Entry, change: Change) -> bytes:
        if isinstance(change, (Sent, Passed)) and change.who.message_id == entry.who.message_id:
            return change.data
        raise self._damaged(f"the data of {entry.entity.name!r} #{entry.sequence}")

    def events_after(self, seq: int, limit: int, names: dict[int, str]) -> tuple[list[Event], int]:
        known = {**self._names, **names}
        rows: list[Event] = []
        with self._mutex:
            for number, change in self.changes_after(seq):
                if len(rows) >= limit:
                    break
                rows.append(event_of(number, change, self._domain, known))
            return rows, self._last

    def changes_after(self, seq: int) -> Iterator[tuple[int, Change]]:
        for first, changes, _ in self._rows("last > ?", seq):
            for index, change in enumerate(changes):
                if first + index > seq:
                    yield first + index, change

    # History and its readers

    def cursors(self) -> dict[str, int]:
        with self._mutex:
            return dict(self._connection.execute("SELECT name, seq FROM cursors"))

    def move_cursor(self, name: str, seq: int) -> None:
        sql = (
            "INSERT INTO cursors VALUES (?, ?, ?, 0)"
            " ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, at_ns = excluded.at_ns"
        )
        try:
            with self._mutex:
                self._sync(True)
                self._connection.execute(sql, (name, seq, time.time_ns()))
        except apsw.Error as error:
            raise translated(error, self._path) from error

    def trim(self, now_ns: int, up_to_seq: int) -> None:
        """Whole rows from the old end, as long as they are too old or all of it is too much."""
        with self._mutex:
            cut, freed = 0, 0
            for last, at_ns, size in self._connection.execute(
                "SELECT last, at_ns, length(records) FROM log WHERE last <= ? ORDER BY seq", (up_to_seq,)
            ):
                if at_ns >= now_ns - self._history_age_ns and self._log_bytes - freed <= self._history_bytes:
                    break
                cut, freed = last, freed + size
            if cut:
                self._forget(cut, freed)

    def _forget(self, cut: int, freed: int) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            first = self.oldest_seq()
            connection.execute(
                "UPDATE cursors SET missed = missed + ? - max(seq, ?) WHERE seq < ?", (cut, first - 1, cut)
            )
            connection.execute("DELETE FROM log WHERE last <= ?", (cut,))
            self._log_bytes -= freed
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('log_bytes', ?)", (self._log_bytes,))
            connection.execute("COMMIT")
        except BaseException:
            if not connection.get_autocommit():
                connection.execute("ROLLBACK")
            raise
        self._groups.clear()
        connection.execute("PRAGMA incremental_vacuum(2000)")

    def missed(self, name: str) -> int:
        """How many events were forgotten before this reader had read them."""
        with self._mutex:
            return cast(int, self._connection.execute("SELECT missed FROM cursors WHERE name = ?", (name,)).get or 0)

    def size_bytes(self) -> int:
        return self._log_bytes

    def oldest_seq(self) -> int:
        with self._mutex:
            found = self._connection.execute("SELECT min(seq) FROM log").get
            return self._last + 1 if found is None else cast(int, found)

    def domain(self) -> str:
        return self._domain

    def close(self) -> None:
        with self._mutex:
            try:
                self._connection.close()
            finally:
                if self._owner is not None:
                    self._owner.release()
                    self._owner = None

    def _damaged(self, what: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self._path} is damaged: {what}", "restore a backup; nothing that may be wrong was served"
        )


def migrations() -> list[tuple[int, str]]:
    return [(int(path.stem), path.read_text("utf-8")) for path in sorted(SCHEMA.glob("*.sql"))]


def newest_version() -> int:
    return migrations()[-1][0]


def translated(error: apsw.Error, path: str) -> Exception:
    """The driver's error as one of ours, with its text."""
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return StoreDamaged(f"{path} is damaged: {error}", "restore a backup; nothing that may be wrong was served")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(f"{path} is locked by another program", "close that program")
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
        return StoreUnavailable(f"cannot open {path}: {error}", "is the folder there, and may you write to it?")
    return StoreFailed(f"{path}: {error}", "mend the disk, and open the bus again")
