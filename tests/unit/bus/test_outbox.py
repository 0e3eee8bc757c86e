"""Transactions over a connection of the user: rows and messages in one commit, in the async and the sync API."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.unit.bus.outbox_app import App, Oops, held
from tests.unit.bus.probes import Collector
from tests.unit.bus.rigs import fails
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.outbox import transactions
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.topics.pattern import Pattern
from unibus.errors import (
    BusClosed,
    DuplicateMessage,
    EntityNotFound,
    QueueFull,
    QuotaExceeded,
    SessionRequired,
    TransactionInvalid,
    UsageError,
)
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.stores.opening import open_store
from unibus.testing.misbehaving_store import MisbehavingStore


@pytest.fixture
def app(folder: Path) -> Iterator[App]:
    made = App(folder)
    yield made
    made.close()


# All or nothing


def test_rows_and_messages_are_one_commit(app: App) -> None:
    with app.bus.transaction(connection=app.connection) as transaction:
        app.connection.execute("INSERT INTO orders VALUES (1)")
        app.bus.send("orders", {"id": 1}, priority=7, headers={"a": b"\0"}, session_id="s")
        app.bus.send_many("log", ["x", "y"])
        assert len(transaction) == 3
        assert held(app.bus, "orders") == []
    assert transaction.state == "committed"
    assert app.orders() == [1]
    assert app.bodies() == [{"id": 1}]
    assert app.bodies("log") == ["x", "y"]
    (message,) = app.bus.peek("orders", 10)
    assert (message.priority, message.headers, message.session_id) == (7, {"a": b"\0"}, "s")
    app.relay()
    assert app.rows() == 0


def test_an_exception_is_neither(app: App) -> None:
    with fails(Oops), app.bus.transaction(connection=app.connection) as transaction:
        app.connection.execute("INSERT INTO orders VALUES (1)")
        result = app.bus.send("orders", 1)
        raise Oops
    assert (transaction.state, result.sequence, result.durability) == ("rolled back", 0, "")
    assert app.orders() == []
    assert app.bodies() == []
    assert not app.connection.in_transaction


def test_a_commit_that_fails_is_neither(app: App) -> None:
    app.connection.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE a (id INTEGER PRIMARY KEY);"
        "CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)"
    )
    with fails(sqlite3.IntegrityError), app.bus.transaction(connection=app.connection) as transaction:
        app.connection.execute("INSERT INTO b VALUES (1)")
        app.bus.send("orders", 1)
    assert transaction.state == "failed"
    assert not app.connection.in_transaction
    assert app.bodies() == []


def test_a_block_without_messages_commits_the_rows_and_makes_no_table(app: App) -> None:
    with app.bus.transaction(connection=app.connection):
        app.connection.execute("INSERT INTO orders VALUES (1)")
    assert app.orders() == [1]
    assert app.connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'unibus%'").fetchall() == []


def test_the_order_of_the_commits_is_kept(app: App) -> None:
    for number in range(100):
        app.order(number)
    assert app.bodies() == list(range(100))


def test_a_transaction_of_the_user_is_one_batch_of_the_store(folder: Path, app: App) -> None:
    timers = ThreadTimers(SYSTEM_CLOCK, pytest.fail)
    store = MisbehavingStore(open_store("memory://", SYSTEM_CLOCK, timers))
    app.bus.close()
    app.bus = app.open(store)
    app.order(0)
    app.relay()
    before = store.calls["apply"]
    with app.bus.transaction(connection=app.connection):
        app.bus.send_many("orders", [1, 2])
        app.bus.send("other", 3)
    app.relay()
    # One validates the sends, the other stores them.
    assert store.calls["apply"] - before == 2
    timers.stop()


def test_a_scheduled_message_comes_at_its_time(app: App) -> None:
    app.order(1, delay=3_600)
    app.relay()
    (info,) = [info for info in app.bus.entities() if info.name == "orders"]
    assert (info.active, info.scheduled) == (0, 1)


def test_keys_are_known_wherever_a_message_comes_from(app: App) -> None:
    app.bus.send("orders", "direct", dedup_key="k")
    first, second = app.order(1, dedup_key="k"), app.order(2, dedup_key="l")
    assert app.bodies() == ["direct", 2]
    assert (first.duplicate, first.sequence, second.duplicate) == (True, 0, False)


# Results


def test_a_result_is_complete_once_the_message_was_relayed(app: App) -> None:
    app.connection.execute("BEGIN")
    result = app.order(1)
    assert (result.sequence, result.durability) == (0, "outbox")
    app.connection.commit()
    app.relay()
    assert (result.sequence, result.durability) == (1, "D2")


# What may be in it


def test_settlements_are_refused_and_change_nothing(app: App) -> None:
    app.bus.send_many("inbox", [1, 2])
    app.bus.create_queue("talks", requires_session=True)
    app.bus.send("talks", "hello", session_id="s")
    scheduled = app.bus.schedule("inbox", 3, 3_600)
    one, two = app.bus.receive_batch("inbox", 2, timeout=0)
    with app.bus.accept_session("talks", "s", timeout=0) as session, app.bus.transaction(connection=app.connection):
        for refused in (
            one.complete,
            one.abandon,
            one.defer,
            one.release,
            lambda: one.dead_letter("no"),
            lambda: app.bus.complete_many([one, two]),
            lambda: app.bus.cancel_scheduled("inbox", scheduled),
            lambda: session.set_state(b"x"),
        ):
            with pytest.raises(TransactionInvalid, match="only send and publish") as error:
                refused()
            assert "dedup_key" in error.value.hint
        with app.bus.transaction(), pytest.raises(TransactionInvalid):
            one.complete()
        app.bus.send("orders", 1)
    assert app.bodies() == [1]
    assert not one.settled
    one.complete()
    two.complete()


def test_schedule_and_request_are_refused_as_in_every_transaction(app: App) -> None:
    with app.bus.transaction(connection=app.connection):
        with pytest.raises(UsageError, match="schedule"):
            app.bus.schedule("orders", 1, 60)
        with pytest.raises(UsageError, match="request"):
            app.bus.request("orders", 1)


def test_what_the_store_would_refuse_is_refused_before_the_commit(app: App) -> None:
    app.bus.create_queue("small", max_count=1)
    app.bus.create_queue("talks", requires_session=True)
    app.bus.send("known", 1, dedup_key="k")
    app.bus.send("known", 1)
    refusals: list[tuple[type[Exception], Callable[[], object]]] = [
        (QuotaExceeded, lambda: app.bus.send_many("small", [1, 2])),
        (SessionRequired, lambda: app.bus.send("talks", 1)),
        (DuplicateMessage, lambda: app.bus.send("known", 2, dedup_key="k", on_duplicate="error")),
        (EntityNotFound, lambda: app.bus.send("none/$DeadLetterQueue", 1)),
    ]
    for error, send in refusals:
        with fails(error), app.bus.transaction(connection=app.connection) as transaction:
            app.connection.execute("INSERT INTO orders VALUES (1)")
            send()
        assert transaction.state == "failed"
    assert app.orders() == []
    assert app.bodies("small") == []


def test_a_strict_bus_wants_its_queues_to_be_there(app: App) -> None:
    app.bus.close()
    app.bus = app.open(strict=True)
    with pytest.raises(EntityNotFound):
        app.order(1)
    app.bus.create_queue("orders")
    app.order(2)
    assert (app.orders(), app.bodies()) == ([2], [2])


def test_a_transaction_holds_as_many_messages_as_a_batch(app: App) -> None:
    with app.bus.transaction(connection=app.connection):
        app.bus.send_many("orders", [0] * (BATCH_COMMANDS_MAX - 1))
        with pytest.raises(TransactionInvalid, match="at most"):
            app.bus.send("orders", 1)
    app.relay()
    assert [info.active for info in app.bus.entities()] == [BATCH_COMMANDS_MAX - 1]


def test_a_batch_over_the_limit_leaves_nothing_in_the_transaction(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BATCH_COMMANDS_MAX", 4)
    app.bus.create_channel("news", max_queue_size=3)
    app.bus.subscribe("news", Collector(), group="g").cancel()
    with app.bus.transaction(connection=app.connection) as transaction:
        app.bus.send("orders", 1)
        with pytest.raises(TransactionInvalid, match="at most 3"):
            app.bus.send_many("orders", [2, 3, 4])
        with pytest.raises(TransactionInvalid, match="at most 3"):
            app.bus.publish_many("news", [2, 3, 4])
        assert len(transaction) == 1
    assert app.bodies() == [1]
    app.bus.publish_many("news", ["a", "b", "c"])  # The refused publish holds none of the three places.


# Channels


def test_publishing_to_a_persistent_channel(app: App) -> None:
    group, listener = Collector(), Collector()
    app.bus.subscribe("news", group, group="g")
    app.bus.subscribe(Pattern.prefix("ne"), listener)
    with fails(Oops), app.bus.transaction(connection=app.connection):
        app.bus.publish("news", "never")
        raise Oops
    with app.bus.transaction(connection=app.connection):
        first = app.bus.publish("news", "one")
        app.bus.publish_many("news", ["two", "three"])
    assert group.wait(3) == ["one", "two", "three"]
    assert listener.wait(3) == ["one", "two", "three"]
    assert first.sequence == 1  # Given by the store, and known before any subscriber gets it.


def test_publishing_to_a_channel_in_memory_follows_the_commit(app: App) -> None:
    heard = Collector()
    app.bus.create_channel("screen", persistent=False)
    app.bus.subscribe("screen", heard)
    with app.bus.transaction(connection=app.connection):
        app.bus.publish("screen", 1)
        assert heard.bodies == []
    assert heard.wait(1) == [1]
    app.connection.execute("BEGIN")
    with app.bus.transaction(connection=app.connection):
        app.bus.publish("screen", 2)
    assert heard.bodies == [1]
    app.connection.rollback()
    app.connection.execute("BEGIN")
    with app.bus.transaction(connection=app.connection):
        app.bus.publish("screen", 3)
    app.connection.commit()
    assert heard.wait(2) == [1, 3]


def test_room_in_a_channel_is_promised_until_the_message_is_there_or_taken_back(app: App) -> None:
    app.bus.create_channel("news", max_queue_size=2)
    app.bus.subscribe("news", Collector(), group="g").cancel()
    for end in ("ROLLBACK", "COMMIT"):
        app.connection.execute("BEGIN")
        with app.bus.transaction(connection=app.connection) as transaction:
            app.bus.publish_many("news", [1, 2])
        with pytest.raises(QueueFull):
            app.bus.publish("news", 3)
        app.connection.execute(end)
        app.relay()
        assert transaction.state == ("committed" if end == "COMMIT" else "rolled back")
    with pytest.raises(QueueFull):
        app.bus.publish("news", 3)


# Owned and joined transactions


def test_a_block_inside_of_a_transaction_leaves_the_commit_to_the_caller(app: App) -> None:
    app.connection.execute("INSERT INTO orders VALUES (0)")
    with app.bus.transaction(connection=app.connection) as transaction:
        app.connection.execute("INSERT INTO orders VALUES (1)")
        app.bus.send("orders", 1)
    assert transaction.state == "joined"
    assert (app.orders(), app.bodies()) == ([], [])
    app.connection.commit()
    # Without a kick: the relay polls while a joined transaction is open.
    (message,) = app.bus.receive_batch("orders")
    assert message.body == 1
    message.complete()
    assert app.orders() == [0, 1]


def test_a_transaction_that_the_caller_rolls_back_is_neither(app: App) -> None:
    app.connection.execute("BEGIN")
    with app.bus.transaction(connection=app.connection) as transaction:
        app.connection.execute("INSERT INTO orders VALUES (1)")
        app.bus.send("orders", 1)
    app.connection.rollback()
    app.order(2)
    assert app.bodies() == [2]
    assert transaction.state == "rolled back"


def test_a_connection_that_is_closed_has_rolled_back(app: App) -> None:
    with closing(sqlite3.connect(app.path)) as other:
        other.execute("BEGIN")
        with app.bus.transaction(connection=other) as transaction:
            app.bus.send("orders", 1)
    assert app.bodies() == []
    assert transaction.state == "rolled back"


def test_committing_inside_of_the_block_is_an_error_and_sends_nothing(app: App) -> None:
    with (
        fails(TransactionInvalid, "inside of the block"),
        app.bus.transaction(connection=app.connection) as transaction,
    ):
        with app.connection:
            app.connection.execute("INSERT INTO orders VALUES (1)")
        app.bus.send("orders", 1)
    assert transaction.state == "failed"
    assert app.bodies() == []


def test_the_with_block_of_a_connection_may_be_outside(app: App) -> None:
    with app.connection, app.bus.transaction(connection=app.connection):
        app.connection.execute("INSERT INTO orders VALUES (1)")
        app.bus.send("orders", 1)
    assert (app.orders(), app.bodies()) == ([1], [1])


def test_one_inside_of_another_is_a_savepoint_for_rows_and_messages(app: App) -> None:
    with app.bus.transaction(connection=app.connection):
        app.order(1)
        with fails(Oops), app.bus.transaction(connection=app.connection):
            app.connection.execute("INSERT INTO orders VALUES (2)")
            app.bus.send("orders", 2)
            raise Oops
        app.order(3)
        assert app.orders() == []
    assert (app.orders(), app.bodies()) == ([1, 3], [1, 3])


def test_a_transaction_without_connection_inside_is_a_savepoint_for_messages(app: App) -> None:
    with app.bus.transaction(connection=app.connection):
        with fails(Oops), app.bus.transaction():
            app.connection.execute("INSERT INTO orders VALUES (1)")
            app.bus.send("orders", 1)
            raise Oops
        with app.bus.transaction():
            app.bus.send("orders", 2)
    assert (app.orders(), app.bodies()) == ([1], [2])


def test_inside_of_a_transaction_that_commits_elsewhere_it_is_refused(app: App) -> None:
    with app.bus.transaction(), pytest.raises(TransactionInvalid, match="cannot be nested"):
        app.bus.transaction(connection=app.connection).__enter__()
    with (
        closing(sqlite3.connect(app.path)) as other,
        app.bus.transaction(connection=app.connection),
        pytest.raises(TransactionInvalid, match="cannot be nested"),
    ):
        app.bus.transaction(connection=other).__enter__()
    app.order(1)
    assert app.bodies() == [1]


def test_it_may_be_used_once(app: App) -> None:
    transaction = app.bus.transaction(connection=app.connection)
    with transaction:
        app.bus.send("orders", 1)
    with pytest.raises(TransactionInvalid, match="is committed"):
        transaction.__enter__()
    assert not app.connection.in_transaction


# What it takes


@pytest.mark.parametrize("given", [object(), "app.db", sqlite3])
def test_an_unknown_connection_is_refused_by_name(app: App, given: object) -> None:
    with pytest.raises(UsageError, match=r"sqlite3\.Connection"):
        app.bus.transaction(connection=given)


def test_a_connection_of_another_sqlite_is_refused(app: App) -> None:
    with closing(apsw.Connection(":memory:")) as other, pytest.raises(UsageError, match="apsw"):
        app.bus.transaction(connection=other)


def test_a_database_in_memory_is_refused(app: App) -> None:
    with closing(sqlite3.connect(":memory:")) as other, pytest.raises(UsageError, match="in memory"):
        app.bus.transaction(connection=other)


def test_the_file_of_the_bus_itself_is_refused(app: App) -> None:
    with pytest.raises(UsageError, match="store of a bus in this process"):
        app.bus.relay_outbox(app.folder / "bus.db")


def test_how_durable_it_is_is_not_ours_to_say(app: App) -> None:
    with pytest.raises(UsageError, match="durability"):
        app.bus.transaction("D1", app.connection)


def test_a_closed_bus_takes_none(app: App) -> None:
    app.bus.close()
    with pytest.raises(BusClosed):
        app.bus.transaction(connection=app.connection)
    with pytest.raises(BusClosed):
        app.relay()


def test_a_bus_in_memory_has_outboxes_too(app: App) -> None:
    app.bus.close()
    app.bus = SyncMessageBus()
    result = app.order(1)
    assert app.bodies() == [1]
    assert result.durability == "D0"


# The async API


async def test_the_async_face_does_the_same(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        connection.execute("CREATE TABLE orders (id)")
        async with MessageBus(folder / "bus.db") as bus:
            async with bus.transaction(connection=connection):
                connection.execute("INSERT INTO orders VALUES (1)")
                result = await bus.send("orders", 1)
                await bus.publish("news", "x")
            with fails(Oops):
                async with bus.transaction(connection=connection):
                    connection.execute("INSERT INTO orders VALUES (2)")
                    await bus.send("orders", 2)
                    raise Oops
            await bus.relay_outbox(folder / "app.db")
            assert [message.body for message in await bus.peek("orders", 10)] == [1]
            assert (result.sequence, result.durability) == (1, "D2")
            assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]


async def test_two_tasks_do_not_share_a_connection(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        async with MessageBus(folder / "bus.db") as bus:

            async def other() -> None:
                async with bus.transaction(connection=connection):
                    await bus.send("orders", "of the other")

            async with bus.transaction(connection=connection):
                await bus.send("orders", 1)
                with pytest.raises(TransactionInvalid, match="another task"):
                    await asyncio.create_task(other())
            await other()
            await bus.relay_outbox(folder / "app.db")
            assert [message.body for message in await bus.peek("orders", 10)] == [1, "of the other"]


async def test_a_task_that_is_cancelled_inside_rolls_back(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        async with MessageBus(folder / "bus.db") as bus:
            inside = asyncio.Event()

            async def work() -> None:
                async with bus.transaction(connection=connection):
                    await bus.send("orders", 1)
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not connection.in_transaction
            assert await bus.relay_outbox(folder / "app.db") == Relayed(0, 0, 0)
