"""The outbox of a SQLite file: owned and joined transactions in every mode of the driver, and the identity of rows."""

import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unibus.bus.outbox.sqlite import SqliteOutbox, SqliteTable
from unibus.errors import StoreBusy, StoreDamaged, StoreUnavailable, TransactionInvalid, UsageError

MODES: dict[str, dict[str, Any]] = {
    "deferred": {},
    "immediate": {"isolation_level": "IMMEDIATE"},
    "exclusive": {"isolation_level": "EXCLUSIVE"},
    "none": {"isolation_level": None},
}
if sys.version_info >= (3, 12):
    MODES["autocommit"] = {"autocommit": True}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute("CREATE TABLE orders (id)")
    return tmp_path / "app.db"


@pytest.fixture(params=MODES)
def connection(path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, **MODES[request.param])) as opened:
        yield opened


@pytest.fixture
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as opened:
        yield opened


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    with closing(SqliteTable(str(path))) as opened:
        yield opened


def nowhere(source: str) -> int:
    """The position of a store that has relayed nothing."""
    return 0


def orders(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as other:
        return [row[0] for row in other.execute("SELECT id FROM orders ORDER BY rowid")]


def put(outbox: SqliteOutbox, batch: bytes, position: Any = nowhere) -> int:
    """One block."""
    outbox.begin()
    outbox.check()
    row_id = outbox.write("s", batch, position)
    outbox.commit()
    return row_id


def batches(table: SqliteTable, store: str = "s", after: int = 0) -> list[bytes]:
    return [row.batch for row in table.read(store, after, 100)]


def test_a_block_commits_rows_and_batch(connection: sqlite3.Connection, path: Path, table: SqliteTable) -> None:
    outbox = SqliteOutbox(connection)
    outbox.begin()
    connection.execute("INSERT INTO orders VALUES (1)")
    outbox.check()
    outbox.write("s", b"batch", nowhere)
    assert not outbox.joined
    outbox.commit()
    assert not connection.in_transaction
    assert orders(path) == [1]
    assert batches(table) == [b"batch"]


def test_a_block_is_invisible_before_its_commit(plain: sqlite3.Connection, path: Path, table: SqliteTable) -> None:
    outbox = SqliteOutbox(plain)
    outbox.begin()
    plain.execute("INSERT INTO orders VALUES (1)")
    outbox.check()
    outbox.write("s", b"batch", nowhere)
    assert orders(path) == []
    assert batches(table) == []
    outbox.rollback()


def test_rolling_back_takes_rows_batch_and_tables(
    connection: sqlite3.Connection, path: Path, table: SqliteTable
) -> None:
    outbox = SqliteOutbox(connection)
    outbox.begin()
    connection.execute("INSERT INTO orders VALUES (1)")
    outbox.check()
    outbox.write("s", b"batch", nowhere)
    outbox.rollback()
    outbox.rollback()
    assert not connection.in_transaction
    assert orders(path) == []
    assert batches(table) == []
    assert connection.execute("SELECT * FROM sqlite_master WHERE name LIKE 'unibus%'").fetchall() == []


def test_a_block_inside_of_a_transaction_leaves_the_commit_to_its_owner(
    connection: sqlite3.Connection, path: Path, table: SqliteTable
) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (1)")
    outbox = SqliteOutbox(connection)
    put(outbox, b"batch")
    assert (outbox.joined, outbox.is_undecided()) == (True, True)
    assert (orders(path), batches(table)) == ([], [])
    connection.execute("COMMIT")
    assert not outbox.is_undecided()
    assert (orders(path), batches(table)) == ([1], [b"batch"])


def test_a_block_that_joined_takes_back_its_own_part_only(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (1)")
    outbox = SqliteOutbox(connection)
    outbox.begin()
    connection.execute("INSERT INTO orders VALUES (2)")
    outbox.rollback()
    connection.execute("INSERT INTO orders VALUES (3)")
    connection.execute("COMMIT")
    assert orders(path) == [1, 3]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the driver's attribute autocommit came with Python 3.12")
def test_without_autocommit_it_is_always_the_caller_who_commits(path: Path, table: SqliteTable) -> None:
    with closing(sqlite3.connect(path, autocommit=False)) as connection:
        outbox = SqliteOutbox(connection)
        put(outbox, b"first")
        assert outbox.joined
        assert batches(table) == []
        connection.commit()
        assert batches(table) == [b"first"]
        put(outbox, b"second")
        connection.rollback()
    assert batches(table) == [b"first"]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_ending_the_transaction_inside_of_the_block_is_noticed(
    connection: sqlite3.Connection, table: SqliteTable, end: str, joined: bool, again: bool
) -> None:
    if joined:
        connection.execute("BEGIN")
    outbox = SqliteOutbox(connection)
    outbox.begin()
    connection.execute("INSERT INTO orders VALUES (1)")
    connection.execute(end)
    if again:
        connection.execute("BEGIN")
    with pytest.raises(TransactionInvalid, match="inside of the block"):
        outbox.check()
    outbox.rollback()
    assert batches(table) == []


def test_a_savepoint_of_the_user_does_not_matter(connection: sqlite3.Connection, path: Path) -> None:
    outbox = SqliteOutbox(connection)
    outbox.begin()
    connection.execute("SAVEPOINT mine")
    connection.execute("INSERT INTO orders VALUES (1)")
    outbox.check()
    outbox.commit()
    assert orders(path) == [1]


def test_a_connection_that_was_closed_inside_has_nothing_to_roll_back(path: Path) -> None:
    connection = sqlite3.connect(path)
    outbox = SqliteOutbox(connection)
    outbox.begin()
    connection.close()
    outbox.rollback()
    assert not outbox.is_undecided()


def test_the_factories_of_the_connection_do_not_matter(plain: sqlite3.Connection, table: SqliteTable) -> None:
    plain.row_factory = lambda cursor, row: None
    plain.text_factory = lambda text: None
    first = put(SqliteOutbox(plain), b"1")
    second = put(SqliteOutbox(plain), b"2")
    assert [(row.id, row.batch) for row in table.read("s", 0, 10)] == [(first, b"1"), (second, b"2")]
    assert len({row.source for row in table.read("s", 0, 10)}) == 1


def test_a_subclass_of_the_connection_will_do(path: Path, table: SqliteTable) -> None:
    class Mine(sqlite3.Connection):
        def cursor(self, *given: Any, **named: Any) -> Any:
            raise AssertionError("not for others")

    with closing(sqlite3.connect(path, factory=Mine)) as connection:
        put(SqliteOutbox(connection), b"1")
    assert batches(table) == [b"1"]


@pytest.mark.parametrize("name", [":memory:", "", "file:x?mode=memory&cache=shared"])
def test_a_database_without_a_file_is_refused(name: str) -> None:
    with (
        closing(sqlite3.connect(name, uri=name.startswith("file"))) as connection,
        pytest.raises(UsageError, match="in memory"),
    ):
        SqliteOutbox(connection)


def test_the_thread_of_the_connection_is_the_drivers_business(plain: sqlite3.Connection) -> None:
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            SqliteOutbox(plain)
        except sqlite3.ProgrammingError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "same thread" in str(errors[0])


def test_a_file_that_is_locked_refuses_the_block_and_leaves_nothing(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path, timeout=0)) as connection:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            SqliteOutbox(connection).begin()
        assert not connection.in_transaction


# Which rows are the same


def sources(path: Path) -> list[str]:
    with closing(SqliteTable(str(path))) as table:
        return [row.source for row in table.read("s", 0, 100)]


def test_ids_grow_and_keep_their_source_over_lives(path: Path, table: SqliteTable) -> None:
    for batch in (b"1", b"2"):
        with closing(sqlite3.connect(path)) as connection:
            put(SqliteOutbox(connection), batch)
    rows = table.read("s", 0, 10)
    assert rows[0].id < rows[1].id
    assert rows[0].source == rows[1].source
    table.delete("s", rows[0].source, rows[1].id)
    with closing(sqlite3.connect(path)) as connection:
        assert put(SqliteOutbox(connection), b"3") > rows[1].id  # Also when the table was empty.


def test_a_number_that_the_store_has_had_begins_a_new_source(plain: sqlite3.Connection, path: Path) -> None:
    outbox = SqliteOutbox(plain)
    put(outbox, b"1")
    (source,) = sources(path)
    positions = {source: 2}
    put(outbox, b"2", lambda name: positions.get(name, 0))
    put(outbox, b"3", lambda name: positions.get(name, 0))
    first, second, third = sources(path)
    assert first == source
    assert second != source
    assert third == second


def test_a_copy_of_the_file_begins_a_new_source(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        put(SqliteOutbox(connection), b"1")
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    for file in (path, copy):
        with closing(sqlite3.connect(file)) as connection:
            put(SqliteOutbox(connection), b"2")
    original, copied = sources(path), sources(copy)
    assert original[0] == copied[0] == original[1]
    assert copied[1] != original[1]


def test_a_file_that_was_moved_may_begin_a_new_source_but_keeps_its_rows(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        put(SqliteOutbox(connection), b"1")
    moved = tmp_path / "moved.db"
    os.rename(path, moved)
    with closing(sqlite3.connect(moved)) as connection:
        put(SqliteOutbox(connection), b"2")
    with closing(SqliteTable(str(moved))) as table:
        assert batches(table) == [b"1", b"2"]


# The relay's side


def test_a_missing_table_is_empty(table: SqliteTable) -> None:
    assert table.read("s", 0, 10) == []
    assert table.left("s") == (0, 0)
    table.readdress("s", True, True)


def test_each_store_has_its_own_rows(plain: sqlite3.Connection, table: SqliteTable) -> None:
    outbox = SqliteOutbox(plain)
    put(outbox, b"mine")
    outbox.begin()
    outbox.check()
    outbox.write("t", b"theirs", nowhere)
    outbox.commit()
    assert batches(table) == [b"mine"]
    assert batches(table, "t") == [b"theirs"]
    assert table.left("s") == (0, 1)
    source = table.read("s", 0, 1)[0].source
    table.delete("s", source, 100)
    assert (batches(table), batches(table, "t")) == ([], [b"theirs"])
    table.readdress("s", False, True)
    (row,) = table.read("s", 0, 10)
    assert row.batch == b"theirs"
    assert row.source != source


def test_what_is_set_aside_waits_until_it_is_asked_for(plain: sqlite3.Connection, table: SqliteTable) -> None:
    outbox = SqliteOutbox(plain)
    bad = put(outbox, b"bad")
    good = put(outbox, b"good")
    source = table.read("s", 0, 1)[0].source
    table.set_aside(bad, "why")
    assert [row.id for row in table.read("s", 0, 10)] == [good]
    table.delete("s", source, good)
    assert table.left("s") == (1, 0)
    table.readdress("s", True, False)
    (row,) = table.read("s", 0, 10)
    assert (row.id, row.batch, row.source == source) == (bad, b"bad", False)


def test_what_is_wrong_with_a_file_has_a_name(path: Path, tmp_path: Path, plain: sqlite3.Connection) -> None:
    with pytest.raises(StoreUnavailable, match=r"missing\.db"):
        SqliteTable(str(tmp_path / "missing.db"))
    assert not (tmp_path / "missing.db").exists()
    noise = tmp_path / "noise.db"
    noise.write_bytes(os.urandom(4096))
    with pytest.raises(StoreDamaged, match=r"noise\.db"):
        SqliteTable(str(noise)).read("s", 0, 1)
    put(SqliteOutbox(plain), b"1")
    plain.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreBusy, match="locked"), closing(SqliteTable(str(path))) as table:
        table.read("s", 0, 1)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_deleting_is_lazy_about_power_only_where_that_is_safe(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        put(SqliteOutbox(connection), b"1")
        with closing(SqliteTable(str(path))) as table:
            said: list[str] = []
            table._connection.set_trace_callback(said.append)
            table.delete("s", table.read("s", 0, 1)[0].source, 100)
            table._connection.set_trace_callback(None)
            assert batches(table) == []
            assert any("NORMAL" in each for each in said) == (mode == "wal")
            assert table._connection.execute("PRAGMA synchronous").fetchone() == (2,)
