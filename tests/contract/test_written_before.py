"""Stores that an earlier version wrote (written/README.md) open in this one, with every message, state and event."""

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from unibus.cli.main import app
from unibus.stores.seam.store import EntityInfo
from unibus.sync import MessageBus

WRITTEN = Path(__file__).parent / "written"
WAIT_S = 10.0
DEAD_ORDERS, DEAD_NEWS = "orders/$DeadLetterQueue", "news/Subscriptions/all/$DeadLetterQueue"
ALL_NEWS, URGENT_NEWS = "news/Subscriptions/all", "news/Subscriptions/urgent"

BODIES = [
    None,
    "text é",
    b"\x00raw\xff",
    7,
    1.5,
    True,
    2**70,
    ["a", 1, None],
    {"n": 1, "deep": {"list": [1, 2]}},
    {"$uuid": "only looks like a tag"},
    {"price": Decimal("1.10"), "day": date(2026, 1, 2)},
    (1, "two"),
    {1: "one"},
]
HEADERS = {
    "text": "é",
    "int": -5,
    "float": 0.25,
    "bool": True,
    "none": None,
    "bytes": b"\x01\x02",
    "decimal": Decimal("12.50"),
    "uuid": UUID(int=5),
    "instant": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "span": timedelta(seconds=90),
}
# Of each entity: active and locked together (the lock of one message ends while no process has the store open),
# scheduled, deferred, dead-lettered, last sequence.
COUNTS = {
    "audit": (0, 0, 0, 0, 2),
    "audit/Subscriptions/readers": (0, 0, 0, 0, 2),
    "bodies": (13, 0, 0, 0, 13),
    "late": (2, 0, 0, 0, 2),
    "news": (0, 0, 0, 0, 3),
    ALL_NEWS: (2, 0, 0, 1, 3),
    DEAD_NEWS: (1, 0, 0, 0, 1),
    URGENT_NEWS: (2, 0, 0, 0, 2),
    "orders": (3, 1, 1, 1, 7),
    DEAD_ORDERS: (1, 0, 0, 0, 1),
    "sessions": (2, 0, 0, 0, 3),
}
EVENTS = {
    "declared": 13,
    "sent": 26,
    "scheduled": 1,
    "published": 5,
    "copied": 7,
    "delivered": 9,
    "returned": 1,
    "deferred": 1,
    "completed": 4,
    "dead_lettered": 2,
    "session_taken": 1,
    "session_stated": 1,
    "session_left": 1,
}
JANUARY_2_US = 1_767_312_000_000_000
"""The first instant after everything that was written then, in microseconds."""


@pytest.fixture(params=["sqlite", "jsonfile"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    shutil.unpack_archive(WRITTEN / f"{request.param}.zip", tmp_path)
    return f"{request.param}:///{tmp_path}/{'store.db' if request.param == 'sqlite' else 'store'}"


@pytest.fixture
def bus(url: str) -> Iterator[MessageBus]:
    # By default history is kept for a week, and these events are older.
    with MessageBus(f"{url}?history_age=3000000000") as bus:
        yield bus


def counts_of(info: EntityInfo) -> tuple[int, ...]:
    return info.active + info.locked, info.scheduled, info.deferred, info.dead, info.last_sequence


def test_check_finds_nothing_wrong(url: str) -> None:
    checked = CliRunner().invoke(app, ["check", url], prog_name="unibus")
    assert checked.exit_code == 0, checked.output


def test_every_entity_is_there_with_its_counts_and_settings(bus: MessageBus) -> None:
    infos = {info.name: info for info in bus.entities()}
    assert {name: counts_of(info) for name, info in infos.items()} == COUNTS
    assert infos["orders"].settings["max_delivery_count"] == 3
    assert infos["orders"].settings["user_metadata"] == "of the shop"
    assert infos["sessions"].settings["requires_session"] is True
    assert infos["late"].settings["lock_duration"] == 30
    assert {info.created_at.date() for info in infos.values() if info.created_at} == {date(2026, 1, 1)}


def test_bodies_of_every_kind(bus: MessageBus) -> None:
    received = bus.receive_batch("bodies", 100, WAIT_S)
    assert [message.body for message in received] == BODIES
    assert [type(message.body) for message in received] == [type(body) for body in BODIES]
    bus.complete_many(received)
    assert bus.entities.get("bodies").active == 0


def test_messages_with_their_headers_and_delivery_counts(bus: MessageBus) -> None:
    urgent, abandoned, last = bus.receive_batch("orders", 100, WAIT_S)
    assert (urgent.id, urgent.body, urgent.priority, urgent.delivery_count) == ("order-5", "urgent", 0, 1)
    assert (abandoned.id, abandoned.body, abandoned.delivery_count) == ("order-3", {"n": 3}, 2)
    assert (last.id, last.body, last.delivery_count) == ("order-4", {"n": 4}, 1)
    assert dict(last.headers) == {**HEADERS, "n": 4}
    assert {name: type(value) for name, value in last.headers.items()} == {
        name: type(value) for name, value in {**HEADERS, "n": 4}.items()
    }
    assert (last.correlation_id, last.message.subject) == ("c", "new")


def test_deferred_scheduled_and_dead_lettered_messages(bus: MessageBus) -> None:
    [deferred] = bus.receive_deferred("orders", [3])
    assert (deferred.id, deferred.body) == ("order-2", {"n": 2})
    [scheduled] = [message for message in bus.peek("orders", 100) if message.body == "later"]
    assert scheduled.properties is not None
    assert scheduled.properties.scheduled_at_ns == round(datetime(2099, 1, 1, tzinfo=UTC).timestamp()) * 10**9
    bus.cancel_scheduled("orders", scheduled.sequence)
    assert counts_of(bus.entities.get("orders")) == (4, 0, 0, 1, 7), "the deferred one is locked now"
    dead = bus.dead_letter_queue().list_messages()
    assert {(each.source, each.failure_reason, each.description) for each in dead} == {
        ("orders", "Broken", "on purpose"),
        (ALL_NEWS, "Unread", "no reader"),
    }
    [order] = bus.receive_batch(DEAD_ORDERS, 10, WAIT_S)
    assert (order.id, order.body, order.headers["decimal"]) == ("order-1", {"n": 1}, Decimal("12.50"))


def test_copies_of_subscriptions_and_their_rules(bus: MessageBus) -> None:
    assert [message.body for message in bus.receive_batch(ALL_NEWS, 10, WAIT_S)] == ["hot", "hotter"]
    urgent = bus.receive_batch(URGENT_NEWS, 10, WAIT_S)
    assert [(message.body, dict(message.headers)) for message in urgent] == [
        ("hot", {"level": 9, "seen": "yes"}),
        ("hotter", {"level": 10, "seen": "yes"}),
    ]
    bus.send("news", "cold", headers={"level": 0})
    bus.send("news", "hottest", headers={"level": 11})
    assert [message.body for message in bus.receive_batch(URGENT_NEWS, 10, WAIT_S)] == ["hottest"]
    assert [rule.name for rule in bus.entities.rules("news", "urgent")] == ["hot"]


def test_sessions_with_their_state(bus: MessageBus) -> None:
    with bus.accept_session("sessions", "a", timeout=WAIT_S) as session:
        assert session.state() == b"after a1"
        assert [message.body for message in session.receive_batch(10, WAIT_S)] == ["a2"]
    with bus.accept_session("sessions", "b", timeout=WAIT_S) as session:
        assert [message.body for message in session.receive_batch(10, WAIT_S)] == ["b1"]


def test_a_lock_that_ended_meanwhile_delivers_its_message_again(bus: MessageBus) -> None:
    received = bus.receive_batch("late", 10, WAIT_S)
    assert {(message.body, message.delivery_count) for message in received} == {
        ("locked at the end", 2),
        ("never received", 1),
    }


def test_history_from_its_beginning(bus: MessageBus) -> None:
    events, end = bus.events_after(0)
    written = [event for event in events if event.ts < JANUARY_2_US]
    assert [event.seq for event in written] == list(range(1, 73))
    assert end >= 72
    assert Counter(event.kind for event in written) == EVENTS
    assert [message.body for message in bus.replay("audit")] == [{"entry": 1}, {"entry": 2}]


def test_it_can_be_written_to_and_opened_again(url: str) -> None:
    with MessageBus(url) as bus:
        bus.send("orders", "new", priority=0)
    with MessageBus(url) as bus:
        found = [message.body for message in bus.receive_batch("orders", 10, WAIT_S)]
    assert found == ["urgent", "new", {"n": 3}, {"n": 4}]
    checked = CliRunner().invoke(app, ["check", url], prog_name="unibus")
    assert checked.exit_code == 0, checked.output
