"""The outbox in a user's SQLite file, by the sqlite3 of the standard library only.

Never by our own SQLite: two libraries on one file in one process end each other's locks. Nor does anything here open
and close the file by itself, which would end them too.

The user's connection may have any isolation level, row factory or text factory. So transactions are plain SQL, rows are
read by a cursor of our own, and text is read as bytes.
"""

import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from unibus.bus.outbox.outbox import OutboxRow
from unibus.errors import StoreBusy, StoreDamaged, StoreUnavailable, TransactionInvalid, UsageError

BUSY_S: Final = 0.1
"""How long the relay waits for a lock before it lets go: others of its files may have something."""

OURS: Final = 0x554E4942
"""What stands in the files of our stores as their application id."""

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS main.unibus_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL,"
    " store TEXT NOT NULL, batch BLOB NOT NULL, crc INTEGER NOT NULL, created_at INTEGER NOT NULL, refused TEXT)",
    "CREATE TABLE IF NOT EXISTS main.unibus_outbox_source (uuid TEXT NOT NULL, file TEXT NOT NULL)",
)

# Two savepoints: the outer one is what is rolled back to; the inner one is gone if somebody has ended the transaction.
_SAVE: Final = "unibus_block"
_WATCH: Final = "unibus_watch"


def file_number(path: str) -> str:
    """What a copy has not: the number that the file system knows the file by."""
    return str(os.stat(path).st_ino)


class SqliteOutbox:
    """See `Outbox`. Made in the thread of the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = sqlite3.Cursor(connection)
        self._cursor.row_factory = None
        self.joined = False
        found = self._cursor.execute(
            "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'"
        ).fetchone()
        self.address = os.fsdecode(found[0]) if found and found[0] else ""
        if not self.address:
            raise UsageError(
                "an outbox in a database in memory would end with the process, while its messages stay",
                "connect to a file; in tests one in a temporary folder",
            )

    def begin(self) -> None:
        self.joined = self.connection.in_transaction
        if not self.joined:
            # At once a writer: a reader that becomes one is refused if another has written meanwhile.
            mode = "EXCLUSIVE" if self.connection.isolation_level == "EXCLUSIVE" else "IMMEDIATE"
            self._cursor.execute(f"BEGIN {mode}")
        self._cursor.execute(f"SAVEPOINT {_SAVE}")
        self._cursor.execute(f"SAVEPOINT {_WATCH}")

    def check(self) -> None:
        try:
            self._cursor.execute(f"RELEASE {_WATCH}")
        except sqlite3.OperationalError as error:
            raise TransactionInvalid(
                "the connection was committed or rolled back inside of the block: its messages are not sent",
                "let the block commit; `with connection:` inside of it commits too",
            ) from error

    def write(self, store: str, batch: bytes, position: Callable[[str], int]) -> int:
        for statement in _TABLES:
            self._cursor.execute(statement)
        source = self._source()
        self._cursor.execute(
            "INSERT INTO main.unibus_outbox (source, store, batch, crc, created_at) VALUES (?, ?, ?, ?, ?)",
            (source, store, batch, zlib.crc32(batch), time.time_ns()),
        )
        row_id = self._cursor.lastrowid
        assert row_id is not None
        if row_id <= position(source):
            # The store has had this number, so the file is an earlier state of itself.
            self._cursor.execute(
                "UPDATE main.unibus_outbox SET source = ? WHERE id = ?",
                (self._new_source(file_number(self.address)), row_id),
            )
        return row_id

    def _source(self) -> str:
        found = self._cursor.execute(
            "SELECT CAST(uuid AS BLOB), CAST(file AS BLOB) FROM main.unibus_outbox_source"
        ).fetchone()
        file = file_number(self.address)
        if found is None or found[1] != file.encode():
            return self._new_source(file)
        return str(found[0], "ascii")

    def _new_source(self, file: str) -> str:
        source = uuid4().hex
        self._cursor.execute("DELETE FROM main.unibus_outbox_source")
        self._cursor.execute("INSERT INTO main.unibus_outbox_source VALUES (?, ?)", (source, file))
        return source

    def commit(self) -> None:
        # In words, because with autocommit=True the method does nothing.
        self._cursor.execute(f"RELEASE {_SAVE}" if self.joined else "COMMIT")

    def rollback(self) -> None:
        try:
            if not self.connection.in_transaction:
                return
            if not self.joined:
                self._cursor.execute("ROLLBACK")
                return
            self._cursor.execute(f"ROLLBACK TO {_SAVE}")
            self._cursor.execute(f"RELEASE {_SAVE}")
        except sqlite3.ProgrammingError:
            return  # It was closed, and with that rolled back.
        except sqlite3.OperationalError:
            # Without our savepoint it is another transaction, which the block has nothing to do with.
            if not self.joined:
                raise

    def is_undecided(self) -> bool:
        try:
            return self.connection.in_transaction
        except sqlite3.ProgrammingError:
            return False  # Closed.

    def open_table(self) -> "SqliteTable":
        return SqliteTable(self.address)


def _number_or_none(path: str) -> str:
    try:
        return file_number(path)
    except OSError:
        return "none"


def _readable(text: bytes) -> str:
    """One damaged row must not keep the others from being read."""
    return text.decode("utf-8", "replace")


class SqliteTable:
    """See `Table`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_there = False
        with self._told():
            # `rw` and not more: a file that is missing is told, and not made.
            self._number = _number_or_none(path)
            uri = f"{Path(path).absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, uri=True)
            self._connection.text_factory = _readable
        try:
            with self._told():
                self._has_log = self._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
                if self._connection.execute("PRAGMA application_id").fetchone() == (OURS,):
                    raise UsageError(
                        f"{Path(path).name} is a store of unibus", "an outbox is in the database of your own rows"
                    )
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the database says, as an error that the relay knows."""
        name = Path(self._path).name
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
                raise StoreBusy(f"{name} is locked", "its outbox is relayed when it is not any more") from error
            raise StoreUnavailable(f"the outbox in {name} cannot be used: {error}", "is the file there?") from error
        except sqlite3.DatabaseError as error:
            raise StoreDamaged(f"the outbox in {name} cannot be read: {error}", "`PRAGMA integrity_check`") from error

    def is_stale(self) -> bool:
        return _number_or_none(self._path) != self._number

    def _exists(self) -> bool:
        """Nobody has made the table before the first message."""
        if not self._is_there:
            found = self._connection.execute("SELECT 1 FROM main.sqlite_master WHERE name = 'unibus_outbox'")
            self._is_there = found.fetchone() is not None
        return self._is_there

    def read(self, store: str, after: int, limit: int) -> list[OutboxRow]:
        with self._told():
            if not self._exists():
                return []
            rows = self._connection.execute(
                "SELECT id, source, CAST(batch AS BLOB), crc FROM main.unibus_outbox"
                " WHERE id > ? AND store = ? AND refused IS NULL ORDER BY id LIMIT ?",
                (after, store, limit),
            )
            return [OutboxRow(*row) for row in rows.fetchall()]  # All at once: a reader that lingers blocks writers.

    def delete(self, store: str, source: str, up_to: int) -> None:
        with self._told():
            if self._has_log:
                # A deletion that a power cut undoes is made again. Without a write-ahead log that could do harm.
                self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                self._connection.execute(
                    "DELETE FROM main.unibus_outbox WHERE id <= ? AND source = ? AND store = ? AND refused IS NULL",
                    (up_to, source, store),
                )
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def set_aside(self, row_id: int, why: str) -> None:
        with self._told():
            self._connection.execute("UPDATE main.unibus_outbox SET refused = ? WHERE id = ?", (why, row_id))

    def readdress(self, store: str, again: bool, adopt: bool) -> None:
        with self._told():
            if self._exists():
                self._connection.execute(
                    "UPDATE main.unibus_outbox SET store = ?, source = ?, refused = NULL"
                    " WHERE (? AND store = ? AND refused IS NOT NULL) OR (? AND store <> ?)",
                    (store, uuid4().hex, again, store, adopt, store),
                )

    def left(self, store: str) -> tuple[int, int]:
        with self._told():
            if not self._exists():
                return 0, 0
            refused, elsewhere = self._connection.execute(
                "SELECT total(store = ? AND refused IS NOT NULL), total(store <> ?) FROM main.unibus_outbox",
                (store, store),
            ).fetchone()
            return int(refused), int(elsewhere)

    def close(self) -> None:
        self._connection.close()
