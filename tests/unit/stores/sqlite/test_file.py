"""Opening a SQLite file: ours, new, foreign, newer, damaged, or not there."""

import errno
import sqlite3
from pathlib import Path
from typing import cast

import apsw
import pytest

from tests.unit.bus.rigs import NoTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import StoreBusy, StoreDamaged, StoreUnavailable, StoreVersion
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.sqlite.file import (
    APPLICATION_ID,
    PRAGMAS,
    SqliteTransaction,
    is_no_space,
    migrations,
    newest_version,
    open_file,
    translated,
)
from unibus.stores.sqlite.journal import SqliteJournal


def opened(path: Path) -> apsw.Connection:
    return open_file(str(path), "local", None, False)


def test_a_new_file_has_the_newest_schema_and_says_whose_it_is(tmp_path: Path) -> None:
    connection = opened(tmp_path / "bus.db")
    assert connection.pragma("user_version") == newest_version()
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.execute("SELECT value FROM meta WHERE key = 'domain'").get == "local"
    connection.close()


def test_every_pragma_is_what_was_asked_for(tmp_path: Path) -> None:
    connection = opened(tmp_path / "bus.db")
    assert {name: connection.pragma(name) for name in PRAGMAS} == PRAGMAS
    connection.close()


def test_opening_again_migrates_nothing_and_keeps_the_domain(tmp_path: Path) -> None:
    opened(tmp_path / "bus.db").close()
    connection = open_file(str(tmp_path / "bus.db"), "elsewhere", None, False)
    assert connection.execute("SELECT value FROM meta WHERE key = 'domain'").get == "local"
    connection.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [version for version, _ in migrations()] == list(range(1, newest_version() + 1))


def test_entities_of_the_second_schema_have_no_moments(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    connection = apsw.Connection(str(path))
    for version, script in migrations()[:2]:
        connection.execute(script)
        connection.pragma("user_version", version)
    connection.pragma("application_id", APPLICATION_ID)
    connection.execute("INSERT INTO entities VALUES (1, 'orders', 1, 7, 0, '{}')")
    connection.close()
    store = EmbeddedStore(SqliteJournal(str(path)), SYSTEM_CLOCK, NoTimers())
    (info,) = store.entities().wait()
    assert (info.name, info.last_sequence, info.created_at, info.updated_at) == ("orders", 7, None, None)
    store.apply([Declare("orders", QUEUE, {"max_count": 5}, True)]).wait()
    store.close()
    store = EmbeddedStore(SqliteJournal(str(path)), SYSTEM_CLOCK, NoTimers())
    (info,) = store.entities().wait()
    assert (info.created_at, info.updated_ns > 0) == (None, True)
    store.close()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    connection = opened(path)
    connection.pragma("user_version", newest_version() + 1)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersion, match="install the newer unibus"):
        opened(path)
    assert path.read_bytes() == before


def test_a_sqlite_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE customers (name TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not one of unibus"):
        opened(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are notes, and no database at all. " * 200)
    with pytest.raises(StoreDamaged, match=r"notes\.txt"):
        opened(path)
    assert path.read_bytes().startswith(b"these are notes")


def test_a_missing_folder_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that the folder exists"):
        opened(tmp_path / "nowhere" / "bus.db")


def test_a_failed_transaction_leaves_nothing_and_raises_its_own_error(tmp_path: Path) -> None:
    connection = opened(tmp_path / "bus.db")
    with pytest.raises(apsw.ConstraintError):
        _insert_twice(connection)
    assert connection.execute("SELECT count(*) FROM meta WHERE key = 'a'").get == 0
    assert connection.get_autocommit()
    connection.close()


def _insert_twice(connection: apsw.Connection) -> None:
    with SqliteTransaction(connection):
        connection.execute("INSERT INTO meta VALUES ('a', 1)")
        connection.execute("INSERT INTO meta VALUES ('a', 2)")


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (apsw.CorruptError("malformed"), StoreDamaged),
        (apsw.NotADBError("no"), StoreDamaged),
        (apsw.BusyError("busy"), StoreBusy),
        (apsw.CantOpenError("no"), StoreUnavailable),
        (apsw.ReadOnlyError("no"), StoreUnavailable),
    ],
)
def test_the_drivers_errors_become_ours_with_their_text(error: apsw.Error, ours: type[Exception]) -> None:
    found = translated(error, "bus.db")
    assert type(found) is ours
    assert "bus.db" in str(found)


class LastError:
    """The part of a connection that says why the last call failed."""

    def __init__(self, number: int) -> None:
        self.system_errno = number


@pytest.mark.parametrize(
    ("code", "number", "no_space"),
    [
        (apsw.SQLITE_FULL, 0, True),
        (apsw.SQLITE_IOERR_WRITE, errno.EDQUOT, True),
        (apsw.SQLITE_IOERR_WRITE, errno.EIO, False),
        (apsw.SQLITE_IOERR_FSYNC, errno.EDQUOT, False),
        (apsw.SQLITE_IOERR_FSYNC, errno.ENOSPC, False),
    ],
)
def test_what_counts_as_no_space(code: int, number: int, no_space: bool) -> None:
    """A quota too; but never a sync, whatever it has found."""
    error = apsw.exception_for(code)
    assert isinstance(error, apsw.Error)
    assert is_no_space(error, cast(apsw.Connection, LastError(number))) == no_space
