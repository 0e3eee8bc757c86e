"""The outbox in a user's SQLite file, through the sqlite3 module of the standard library only.

The SQLite library of the stores must not open the user's file: POSIX locks belong to the process, and two copies of the
library on one file drop each other's locks. For the same reason nothing here opens and closes the file directly.

The user's connection may have any isolation level, row factory or text factory. So transactions are plain SQL, rows are
read by a cursor without a row factory, and text is read as bytes.
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
"""How long the relay waits for a lock before it continues with its other files."""

OURS: Final = 0x554E4942
"""The `application_id` in the header of a SQLite store of unibus ("UNIB")."""

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS main.unibus_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL,"
    " store TEXT NOT NULL, batch BLOB NOT NULL, crc INTEGER NOT NULL, created_at INTEGER NOT NULL, refused TEXT)",
    "CREATE TABLE IF NOT EXISTS main.unibus_outbox_source (uuid TEXT NOT NULL, file TEXT NOT NULL)",
)

# Two savepoints: a rollback goes to the outer one; the inner one no longer exists if the transaction was ended.
_SAVE: Final = "unibus_block"
_WATCH: Final = "unibus_watch"


def file_number(path: str) -> str:
    """The inode number of the file: a copy of the file has another one."""
    return str(os.stat(path).st_ino)


class SqliteOutbox:
    """Implements `Outbox`. Made in the thread of the connection."""

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
                "an outbox cannot be in a database in memory",
                "connect to a file; in tests to one in a temporary folder",
            )

    def begin(self) -> None:
        self.joined = self.connection.in_transaction
        if not self.joined:
            # Take the write lock now: a deferred transaction that reads first and writes later fails with SQLITE_BUSY
            # if another connection has written in between.
            mode = "EXCLUSIVE" if self.connection.isolation_level == "EXCLUSIVE" else "IMMEDIATE"
            self._cursor.execute(f"BEGIN {mode}")
        self._cursor.execute(f"SAVEPOINT {_SAVE}")
        self._cursor.execute(f"SAVEPOINT {_WATCH}")

    def check(self) -> None:
        try:
            self._cursor.execute(f"RELEASE {_WATCH}")
        except sqlite3.OperationalError as error:
            raise TransactionInvalid(
                "the connection was committed or rolled back inside of the block, so its messages are not sent",
                "let the block commit: remove commit(), rollback() and `with connection:` from it",
            ) from error

    def write(self, store: str, batch: bytes, position: Callable[[str], int]) -> int:
        # Inside the user's transaction: a rollback also removes the tables, and no connection of ours has to write the
        # schema.
        for statement in _TABLES:
            self._cursor.execute(statement)
        source = self._source()
        self._cursor.execute(
            "INSERT INTO main.unibus_outbox (source, store, batch, crc, created_at) VALUES (?, ?, ?, ?, ?)",
            (source, store, batch, zlib.crc32(batch), time.time_ns()),
        )
        row_id = self._cursor.lastrowid
        assert row_id is not None
        # Asked in this transaction, while the file is locked for others: no second block can take the same id.
        if row_id <= position(source):
            # The store already has this id, so the file was restored from an earlier state: begin a new source.
            self._cursor.execute(
                "UPDATE main.unibus_outbox SET source = ? WHERE id = ?",
                (self._new_source(file_number(self.address)), row_id),
            )
        return row_id

    def _source(self) -> str:
        """The current source. A file with another inode than at its last write is a copy, and begins a new one."""
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
        # As SQL: with autocommit=True the method commit() does nothing.
        self._cursor.execute(f"RELEASE {_SAVE}" if self.joined else "COMMIT")

    def rollback(self) -> None:
        try:
            # SQLite rolls back by itself after some errors (a full disk, an interrupted statement).
            if not self.connection.in_transaction:
                return
            if not self.joined:
                self._cursor.execute("ROLLBACK")
                return
            self._cursor.execute(f"ROLLBACK TO {_SAVE}")
            self._cursor.execute(f"RELEASE {_SAVE}")
        except sqlite3.ProgrammingError:
            return  # The connection was closed, which rolls back.
        except sqlite3.OperationalError:
            # The savepoint does not exist: the transaction that is open now is not the one that the block joined.
            if not self.joined:
                raise

    def is_undecided(self) -> bool:
        try:
            return self.connection.in_transaction
        except sqlite3.ProgrammingError:
            return False  # The connection is closed.

    def open_table(self) -> "SqliteTable":
        return SqliteTable(self.address)


def _number_or_none(path: str) -> str:
    try:
        return file_number(path)
    except OSError:
        return "none"


def _decode_leniently(text: bytes) -> str:
    """A text factory that accepts any bytes: one damaged row must not make the others unreadable."""
    return text.decode("utf-8", "replace")


class SqliteTable:
    """Implements `OutboxTable`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._has_table = False
        with self._translated_errors():
            # mode=rw without c: a missing file is an error, and is not created.
            self._number = _number_or_none(path)
            uri = f"{Path(path).absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, uri=True)
            self._connection.text_factory = _decode_leniently
        try:
            with self._translated_errors():
                self._has_log = self._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
                if self._connection.execute("PRAGMA application_id").fetchone() == (OURS,):
                    raise UsageError(
                        f"{Path(path).name} is a store of unibus, not a database of an application",
                        "name the database that holds the rows of your application",
                    )
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Errors of sqlite3 inside of the block become the errors of `OutboxTable`."""
        name = Path(self._path).name
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
                raise StoreBusy(
                    f"database {name} is locked by another connection",
                    "its outbox is relayed after the lock is released",
                ) from error
            hint = "check that the file exists and can be written"
            raise StoreUnavailable(f"the outbox in {name} cannot be used: {error}", hint) from error
        except sqlite3.DatabaseError as error:
            hint = "check the file with `PRAGMA integrity_check`"
            raise StoreDamaged(f"the outbox in {name} cannot be read: {error}", hint) from error

    def is_stale(self) -> bool:
        # By the inode and not by opening the file: closing a second descriptor would drop the locks of this process.
        return _number_or_none(self._path) != self._number

    def _exists(self) -> bool:
        """Whether the outbox table exists: the first message creates it."""
        if not self._has_table:
            found = self._connection.execute("SELECT 1 FROM main.sqlite_master WHERE name = 'unibus_outbox'")
            self._has_table = found.fetchone() is not None
        return self._has_table

    def read(self, store: str, after: int, limit: int) -> list[OutboxRow]:
        with self._translated_errors():
            if not self._exists():
                return []
            rows = self._connection.execute(
                "SELECT id, source, CAST(batch AS BLOB), crc FROM main.unibus_outbox"
                " WHERE id > ? AND store = ? AND refused IS NULL ORDER BY id LIMIT ?",
                (after, store, limit),
            )
            return [OutboxRow(*row) for row in rows.fetchall()]  # At once: an open read transaction blocks writers.

    def delete(self, store: str, source: str, up_to: int) -> None:
        with self._translated_errors():
            if self._has_log:
                # If a power cut undoes the deletion, it is repeated. Only with a write-ahead log: with a rollback
                # journal a reduced `synchronous` could corrupt the user's file.
                self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                self._connection.execute(
                    "DELETE FROM main.unibus_outbox WHERE id <= ? AND source = ? AND store = ? AND refused IS NULL",
                    (up_to, source, store),
                )
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def set_aside(self, row_id: int, why: str) -> None:
        with self._translated_errors():
            self._connection.execute("UPDATE main.unibus_outbox SET refused = ? WHERE id = ?", (why, row_id))

    def readdress(self, store: str, again: bool, adopt: bool) -> None:
        with self._translated_errors():
            if self._exists():
                self._connection.execute(
                    "UPDATE main.unibus_outbox SET store = ?, source = ?, refused = NULL"
                    " WHERE (? AND store = ? AND refused IS NOT NULL) OR (? AND store <> ?)",
                    (store, uuid4().hex, again, store, adopt, store),
                )

    def left(self, store: str) -> tuple[int, int]:
        with self._translated_errors():
            if not self._exists():
                return 0, 0
            refused, elsewhere = self._connection.execute(
                "SELECT total(store = ? AND refused IS NOT NULL), total(store <> ?) FROM main.unibus_outbox",
                (store, store),
            ).fetchone()
            return int(refused), int(elsewhere)

    def close(self) -> None:
        self._connection.close()
