"""The relay: every row exactly once, over restarts, failures, backups, copies; refused rows wait or are set aside."""

import logging
import shutil
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.bus.outbox_app import App, held
from tests.unit.bus.probes import GUARD_S
from tests.unit.bus.rigs import breaking_store
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.outbox.outbox import FORMAT, OutboxRow, packed, unpacked
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.outbox.sqlite import SqliteTable
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.errors import (
    QuotaExceeded,
    StoreBusy,
    StoreDamaged,
    StoreFailed,
    StoreUnavailable,
    StoreVersion,
    UsageError,
)
from unibus.stores.opening import open_store
from unibus.testing.misbehaving_store import MisbehavingStore


@pytest.fixture
def app(folder: Path) -> Iterator[App]:
    made = App(folder)
    yield made
    made.close()


# Restarts


def test_closing_relays_what_was_committed(app: App) -> None:
    for number in range(20):
        app.order(number)
    app.bus.close()
    assert app.rows() == 0
    app.bus = app.open()
    assert held(app.bus, "orders") == list(range(20))


def locked(app: App) -> sqlite3.Connection:
    """No other connection can read or write the file until this is rolled back."""
    other = sqlite3.connect(app.path)
    other.execute("BEGIN EXCLUSIVE")
    return other


@pytest.fixture
def abandoned(app: App, monkeypatch: pytest.MonkeyPatch) -> App:
    """An application whose last process ended before its rows were relayed."""
    monkeypatch.setattr("unibus.bus.outbox.relay.Relay._wake", lambda *given: True)
    for number in (1, 2):
        app.order(number)
    app.bus.close(0)
    monkeypatch.undo()
    app.bus = app.open()
    return app


def test_what_an_earlier_life_left_is_relayed_when_asked_for(abandoned: App) -> None:
    assert abandoned.rows() == 2
    assert abandoned.relay() == Relayed(2, 0, 0)
    assert abandoned.bodies() == [1, 2]
    assert abandoned.relay() == Relayed(0, 0, 0)
    assert abandoned.rows() == 0


def test_what_an_earlier_life_left_goes_before_what_is_new(abandoned: App) -> None:
    abandoned.order(3)
    assert abandoned.bodies() == [1, 2, 3]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_locked_file_is_tried_again(app: App, mode: str) -> None:
    app.connection.execute(f"PRAGMA journal_mode = {mode}")
    app.order(0)
    app.relay()
    app.connection.execute("BEGIN")
    app.order(1)
    app.connection.commit()
    with closing(locked(app)):
        waiting = app.bus._runtime.outboxes().relay(app.path, False, False)
        if mode == "delete":
            with pytest.raises(TimeoutError):
                waiting.wait(0.3)
    waiting.wait(GUARD_S)
    assert app.bodies() == [0, 1]


def test_a_waiter_on_a_locked_file_fails_in_the_end(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unibus.bus.outbox.relay_route.PATIENCE_S", 0.1)
    app.order(0)
    app.relay()
    with closing(locked(app)), pytest.raises(StoreBusy, match="locked"):
        app.relay()


def cannot(*given: object) -> None:
    raise StoreBusy("locked")


def test_closing_does_not_wait_for_ever_for_a_locked_file(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SqliteTable, "read", cannot)
    app.order(1)
    app.bus.close(0.1)
    monkeypatch.undo()
    app.bus = app.open()
    assert held(app.bus, "orders") == []
    assert app.bodies() == [1]


# Each message once


@pytest.mark.parametrize("taking_effect", [False, True])
def test_a_store_whose_answer_is_lost_gets_no_message_twice(app: App, taking_effect: bool) -> None:
    app.bus.close()
    timers = ThreadTimers(SYSTEM_CLOCK, pytest.fail)
    store = MisbehavingStore(open_store(f"sqlite:///{app.folder}/bus.db", SYSTEM_CLOCK, timers))
    app.bus = app.open(store)
    app.order(1)
    app.relay()
    app.connection.execute("BEGIN")
    app.order(2)
    app.order(3)
    store.fail_at(1, taking_effect=taking_effect)
    app.connection.commit()
    with pytest.raises(StoreFailed):
        app.relay()
    store.heal()
    app.order(4)
    assert app.bodies() == [1, 2, 3, 4]
    app.bus.close()
    timers.stop()


@pytest.mark.parametrize("taking_effect", [False, True])
def test_a_store_that_works_on_is_relayed_into_again(app: App, taking_effect: bool) -> None:
    app.bus.close()
    timers = ThreadTimers(SYSTEM_CLOCK, pytest.fail)
    store = MisbehavingStore(open_store(f"sqlite:///{app.folder}/bus.db", SYSTEM_CLOCK, timers))
    app.bus = app.open(store)
    app.bus.create_queue("orders")
    app.connection.execute("BEGIN")
    app.order(1)
    for call in range(1, 5):  # More often than the commit and the next line ask for the row.
        store.fail_at(call, taking_effect=taking_effect, stops=False)
    app.connection.commit()
    with pytest.raises(StoreFailed):
        app.relay()
    # Nothing asks for it again: the relay itself tries once more.
    (message,) = app.bus.receive_batch("orders", 1, timeout=GUARD_S)
    assert message.body == 1
    assert app.bus.receive_batch("orders", 1, timeout=0) == []
    app.bus.close()
    timers.stop()


def test_a_store_that_stopped_is_relayed_into_after_it_was_opened_again(app: App) -> None:
    app.bus.close()
    store, journal = breaking_store(app.folder / "bus.db")
    app.bus = app.open(store)
    app.order(1)
    app.relay()
    app.connection.execute("BEGIN")
    app.order(2)
    journal.broken = True
    app.connection.commit()
    with pytest.raises(StoreFailed):
        app.relay()
    app.bus.close(GUARD_S)
    app.bus = app.open()
    assert app.bodies() == [1, 2]


def test_a_row_that_could_not_be_deleted_is_not_relayed_twice(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteTable, "delete", cannot)
    app.order(1)
    assert app.bodies() == [1]
    app.bus.close()
    assert app.rows() == 1
    monkeypatch.undo()
    app.bus = app.open()
    assert app.relay() == Relayed(0, 0, 0)
    assert (app.rows(), app.bodies()) == (0, [1])


def test_a_file_from_a_backup_skips_nothing_and_repeats_nothing(app: App) -> None:
    app.order(1)
    app.relay()
    app.connection.execute("BEGIN")
    app.order(2)
    app.connection.commit()
    app.connection.close()
    with closing(sqlite3.connect(app.path)) as source, closing(sqlite3.connect(app.folder / "backup")) as backup:
        source.backup(backup)
    app.connection = sqlite3.connect(app.path)
    for number in (3, 4, 5):
        app.order(number)
    assert app.bodies() == [1, 2, 3, 4, 5]
    app.connection.close()
    shutil.copy(app.folder / "backup", app.path)  # Into the same file; the bus is open.
    app.connection = sqlite3.connect(app.path)
    for number in (6, 7):
        app.order(number)
    assert app.bodies() == [1, 2, 3, 4, 5, 6, 7]
    app.connection.close()
    shutil.copy(app.folder / "backup", app.folder / "other")
    (app.folder / "other").rename(app.path)  # In place of the file; the bus is open.
    app.connection = sqlite3.connect(app.path)
    app.order(8)
    assert app.bodies() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_copy_of_the_file_is_another_outbox(app: App) -> None:
    app.order(1)
    app.relay()
    copy = app.folder / "copy.db"
    shutil.copy(app.path, copy)
    with closing(sqlite3.connect(copy)) as other:
        app.order(2)
        with app.bus.transaction(connection=other):
            app.bus.send("orders", "of the copy")
        app.order(3)
        app.bus.relay_outbox(copy)
    assert sorted(app.bodies(), key=str) == [1, 2, 3, "of the copy"]


def test_two_stores_on_one_file_do_not_take_from_each_other(app: App) -> None:
    with app.open(app.folder / "second.db") as second:
        for number in range(10):
            app.order(number)
            with second.transaction(connection=app.connection):
                second.send("orders", -number)
        second.relay_outbox(app.path)
        assert app.bodies() == list(range(10))
        assert held(second, "orders") == [-number for number in range(10)]


def test_what_was_left_for_a_store_that_is_gone_can_be_adopted(abandoned: App) -> None:
    with abandoned.open(abandoned.folder / "new.db") as heir:
        assert heir.relay_outbox(abandoned.path) == Relayed(0, 0, 2)
        assert heir.relay_outbox(abandoned.path, adopt=True) == Relayed(2, 0, 0)
        assert held(heir, "orders") == [1, 2]
    assert abandoned.bodies() == []


# What the store refuses


def test_what_the_store_refuses_for_ever_is_set_aside_and_logged(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.bus.close()
    app.bus = app.open(strict=True)
    app.bus.create_queue("orders")
    app.bus.create_queue("gone")
    app.connection.execute("BEGIN")
    lost = app.bus.transaction(connection=app.connection)
    with lost:
        app.bus.send("gone", 1)
    app.order(2)
    app.bus.delete_entity("gone")
    with caplog.at_level(logging.ERROR):
        app.connection.commit()
        assert app.relay().set_aside == 1
    assert "set aside" in caplog.text
    assert (app.bodies(), lost.state) == ([2], "refused")
    app.bus.create_queue("gone")
    assert app.relay() == Relayed(0, 1, 0)
    assert app.relay(again=True) == Relayed(1, 0, 0)
    assert app.bodies("gone") == [1]
    assert app.rows() == 0


def test_what_the_store_refuses_for_now_waits_and_keeps_its_order(app: App) -> None:
    app.bus.create_queue("orders", max_count=2)
    app.connection.execute("BEGIN")
    app.order(1)
    app.order(2)
    app.bus.send("orders", 0)
    app.connection.commit()
    with pytest.raises(QuotaExceeded):
        app.relay()
    assert held(app.bus, "orders") == [0, 1]
    for expected in (0, 1, 2):
        (message,) = app.bus.receive_batch("orders")  # Relayed without a kick as soon as there is space.
        assert message.body == expected
        message.complete()


def test_a_key_that_became_known_after_the_block_is_a_duplicate_and_no_error(app: App) -> None:
    app.connection.execute("BEGIN")
    result = app.order(1, dedup_key="k", on_duplicate="error")
    app.bus.send("orders", 0, dedup_key="k")
    app.connection.commit()
    assert app.relay().set_aside == 0
    assert (app.bodies(), result.duplicate) == ([0], True)


def test_a_damaged_row_is_set_aside_and_logged(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.connection.execute("BEGIN")
    app.order(1)
    app.connection.execute("UPDATE unibus_outbox SET batch = 'no bytes at all'")
    app.order(2)
    app.connection.execute("UPDATE unibus_outbox SET batch = ?, crc = ? WHERE id = 2", (b"\xc1", zlib.crc32(b"\xc1")))
    app.order(3)
    app.connection.commit()
    with caplog.at_level(logging.ERROR):
        assert app.bodies() == [3]
    assert "damaged" in caplog.text
    assert app.relay().set_aside == 2


def test_what_a_newer_version_wrote_is_left_alone(app: App) -> None:
    app.connection.execute("BEGIN")
    app.order(1)
    newer = msgspec.msgpack.encode([FORMAT + 1, "something else"])
    app.connection.execute("UPDATE unibus_outbox SET batch = ?, crc = ?", (newer, zlib.crc32(newer)))
    app.connection.commit()
    with pytest.raises(StoreVersion):
        app.relay()
    assert app.rows() == 1


# Asking for it


def test_what_is_no_outbox(app: App) -> None:
    with pytest.raises(StoreUnavailable, match="no file"):
        app.bus.relay_outbox(app.folder / "none.db")
    with pytest.raises(UsageError, match="path"):
        app.bus.relay_outbox(7)
    noise = app.folder / "noise.db"
    noise.write_bytes(b"x" * 4096)
    with pytest.raises(StoreDamaged):
        app.bus.relay_outbox(noise)
    assert app.relay() == Relayed(0, 0, 0)


def test_a_bus_that_is_dropped_lets_go_of_its_thread(folder: Path) -> None:
    before = threading.active_count()
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        bus = SyncMessageBus(folder / "bus.db")
        with bus.transaction(connection=connection):
            bus.send("orders", 1)
        (thread,) = [each for each in threading.enumerate() if each.name == "unibus-outbox"]
        del bus
        thread.join(GUARD_S)
    assert not thread.is_alive()
    assert threading.active_count() <= before + 1  # A timer may be ending.


# Batches as bytes

TEXTS = st.text(max_size=20)
NUMBERS = st.integers(0, 2**62)


@st.composite
def sends(draw: st.DrawFn) -> Send:
    who = MessageRef(
        draw(TEXTS), draw(NUMBERS), draw(st.none() | TEXTS), draw(st.none() | TEXTS), draw(st.none() | TEXTS)
    )
    send = Send(draw(TEXTS), who, draw(st.binary(max_size=50)), draw(st.integers(0, 255)))
    send.ttl_ns, send.visible_ns = draw(NUMBERS), draw(NUMBERS)
    send.dedup_key, send.creates, send.raises = draw(st.none() | TEXTS), draw(st.integers(0, 2)), draw(st.booleans())
    return send


FIELDS = ("entity", "who", "data", "size", "priority", "ttl_ns", "visible_ns", "dedup_key", "creates", "raises")


@settings(deadline=None)
@given(st.lists(sends(), max_size=5))
def test_a_batch_comes_back_as_it_was(batch: list[Send]) -> None:
    data = packed(batch)
    back = unpacked(OutboxRow(1, "", data, zlib.crc32(data)))
    assert [[getattr(each, name) for name in FIELDS] for each in back] == [
        [getattr(each, name) for name in FIELDS] for each in batch
    ]
