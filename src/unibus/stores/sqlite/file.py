"""Opening a SQLite file: whether it is ours, its settings, the migration of its schema, and errors of the driver."""

import errno
from pathlib import Path
from typing import Final
from uuid import uuid4

import apsw

from unibus.errors import StoreBusy, StoreDamaged, StoreFailed, StoreFull, StoreUnavailable, StoreVersion
from unibus.safe_log import SafeLogger
from unibus.stores.seam.forked import OPENING
from unibus.stores.sql.tables import damaged

log = SafeLogger("unibus")

APPLICATION_ID: Final = 0x554E4942  # "UNIB"
READABLE_VERSION: Final = 3
"""The oldest schema that a reader reads as it is. Schema 4 added a table, which such a file does not have."""
PAGE_BYTES: Final = 4096
SCHEMA: Final = Path(__file__).parent / "schema"

# Set at open and read back, because SQLite silently ignores a pragma that it does not know. Checkpoints run under our
# control: if SQLite ran one after a commit and it failed, it would look as if the commit had failed.
PRAGMAS: Final[dict[str, int | str]] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "cache_size": -65536,
    "temp_store": 2,
    "wal_autocheckpoint": 0,
}


def open_file(path: str, domain: str, vfs: str | None, exclusive: bool) -> apsw.Connection:
    """A connection to a file of ours with the newest schema. Creates the file if it does not exist."""
    with OPENING:
        return _open_file(path, domain, vfs, exclusive)


def _open_file(path: str, domain: str, vfs: str | None, exclusive: bool) -> apsw.Connection:
    try:
        connection = apsw.Connection(path, vfs=vfs)
    except apsw.Error as error:
        raise StoreUnavailable(f"cannot open {path}: {error}", "check that the folder exists") from error
    try:
        # For the moment when another process opens or closes the file: SQLite then takes short exclusive locks.
        connection.set_busy_timeout(5_000)
        if exclusive:
            connection.pragma("locking_mode", "exclusive")
        # Read only so far. A file of another program or of a newer version is rejected before any pragma could change
        # it.
        if not check_identity(connection, path):
            # Both take effect only before the first table is created.
            connection.pragma("page_size", PAGE_BYTES)
            connection.pragma("auto_vacuum", 2)
        for name, value in PRAGMAS.items():
            _set_pragma(connection, path, name, value)
        _migrate(connection, domain)
    except apsw.Error as error:
        close_after_error(connection)
        raise translated(error, path) from error
    except BaseException:
        close_after_error(connection)
        raise
    return connection


def close_after_error(connection: apsw.Connection) -> None:
    """Close without raising: the caller raises the first error."""
    try:
        connection.close()
    except apsw.Error as error:
        log.warning("closing a file after an error: %s", error)


def check_identity(connection: apsw.Connection, path: str) -> bool:
    """Reject a file of another program or of a newer version. False if the file is still empty."""
    version = connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if connection.pragma("application_id") != APPLICATION_ID and (tables or version):
        raise StoreUnavailable(f"{path} is a SQLite file, but not one of unibus", "choose another file")
    if version > newest_version():
        raise StoreVersion(
            f"{path} has schema {version}, this version of unibus knows {newest_version()}",
            "install the newer unibus; nothing was changed",
        )
    return bool(tables)


def _set_pragma(connection: apsw.Connection, path: str, name: str, value: int | str) -> None:
    connection.pragma(name, value)
    # Where WAL is impossible, as on a network file system, SQLite keeps another mode without an error.
    found = connection.pragma(name)
    if found != value:
        raise StoreUnavailable(
            f"SQLite has {name} = {found!r} for {path}, but {value!r} is required",
            "put the file on a local disk: a network file system has no shared memory",
        )


def _migrate(connection: apsw.Connection, domain: str) -> None:
    """Each step and its version number in one transaction: a crash leaves the old schema or the new one."""
    for version, script in migrations():
        if version > connection.pragma("user_version"):
            with SqliteTransaction(connection):
                # Schema changes are transactional in SQLite, also CREATE and ALTER TABLE, and so is user_version.
                connection.execute(script)
                connection.pragma("user_version", version)
                connection.pragma("application_id", APPLICATION_ID)
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('domain', ?)", (domain,))
                # A file from before schema 4 gets its identity here, too.
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (uuid4().hex,))


class SqliteTransaction:
    """BEGIN … COMMIT. If SQLite has rolled back by itself, the original error is raised, not one of a second
    ROLLBACK."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        # The write lock at once: a deferred transaction could fail at its first write, after work was done.
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            try:
                self._connection.execute("COMMIT")
            except apsw.Error:
                # SQLite rolls back by itself when a commit finds no space. Make sure that no transaction stays open.
                if not self._connection.get_autocommit():
                    self._connection.execute("ROLLBACK")
                raise
        # Autocommit is on again if SQLite has rolled back by itself, as it does for SQLITE_FULL and SQLITE_IOERR.
        elif not self._connection.get_autocommit():
            self._connection.execute("ROLLBACK")


def migrations() -> list[tuple[int, str]]:
    return [(int(path.stem), path.read_text("utf-8")) for path in sorted(SCHEMA.glob("*.sql"))]


def newest_version() -> int:
    return migrations()[-1][0]


def is_no_space(error: apsw.Error, connection: apsw.Connection) -> bool:
    """Whether a write found no space. SQLite has an error code for a full disk, and none for an exceeded quota."""
    if isinstance(error, apsw.FullError):
        return True
    is_write = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
    return is_write and connection.system_errno == errno.EDQUOT


def translated(error: apsw.Error, path: str) -> Exception:
    """The error of the driver as one of ours, with its text."""
    if isinstance(error, apsw.NotADBError):
        return StoreDamaged(
            f"{path} is not a SQLite file, or its beginning is damaged", "name another file, or restore a backup"
        )
    if isinstance(error, apsw.CorruptError) or "unsupported file format" in str(error):
        return damaged(path, str(error))
    if isinstance(error, apsw.FullError):
        return StoreFull(f"{path}: the disk is full", "free space, and try again")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(f"{path} is locked by another program", "close that program")
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
        return StoreUnavailable(
            f"cannot open {path}: {error}", "check that the folder exists and that you may write to it"
        )
    return StoreFailed(f"{path}: {error}", "repair the disk, and open the bus again")
