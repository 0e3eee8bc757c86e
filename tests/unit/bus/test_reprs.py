"""`repr` of every public object: one line that names it and its state, without bodies and keys, and never an error."""

import asyncio
import enum
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unibus
import unibus.sync
from tests.unit.bus.forks import in_child
from unibus import (
    BusConfig,
    ChannelConfig,
    CorrelationFilter,
    DeadLetterFilter,
    InMemoryQueueBackend,
    MessageBus,
    Pattern,
    Payload,
    RecoveryAction,
    RecoveryRule,
    Rule,
    SqlFilter,
    SqlitePersistence,
    SqlRuleAction,
    create_serializer,
)
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.display import LINE_CHARS_MAX, without_secrets
from unibus.stores.seam.store import StoreHealth

SECRET = "hunter2-" * 40
LONG = "n" * 128
ALWAYS_COMPLETE = (BaseException, enum.Enum)


def objects(bus: SyncMessageBus, folder: Path) -> dict[str, object]:
    """One of each public kind, with long names and a long body."""
    bus.create_topic("news")
    bus.create_subscription("news", "one")
    bus.create_queue("sessions", requires_session=True)
    sent = bus.send("orders", {"password": SECRET}, message_id=LONG, correlation_id=LONG)
    bus.send("sessions", SECRET, session_id="s" * 100)
    session = bus.accept_session("sessions", timeout=0)
    [message] = bus.receive_batch("orders", timeout=0)
    found: dict[str, object] = {"locked": repr(message)}
    message.dead_letter(LONG, LONG)
    subscription = bus.subscribe("channel", print, group="g" * 100)
    dead = bus.dead_letter_queue()
    trace = bus.trace_message(LONG)
    rows = bus.query_messages("SELECT * FROM dead_letters")
    found |= {
        "bus": bus,
        "sent": sent,
        "received": message,
        "message": message.message,
        "session": session,
        "subscription": subscription,
        "cancelled": subscription.cancel(),
        "trace": trace,
        "copy": trace.roots[0],
        "step": trace.roots[0].steps[0],
        "event": trace.events[0],
        "result": rows,
        "row": rows[0],
        "info": bus.entities.get("orders"),
        "entities": bus.entities,
        "snapshot": bus.snapshot(),
        "channel snapshot": bus.snapshot().channels[0],
        "health": bus.health_check(),
        "store health": bus.health_check().store,
        "manager": dead,
        "dead": dead.list_messages()[0],
        "group": dead.groups()[0],
        "refused": dead.discard_message("no-such-id"),
        "filter": DeadLetterFilter(queue=LONG, ids=(LONG,) * 100),
        "rule": RecoveryRule(RecoveryAction.RETRY, reason=LONG),
        "processed": dead.discard_all(DeadLetterFilter()),
        "transaction": bus.transaction(),
        "pattern": Pattern("exact", "orders"),
        "sql": SqlFilter(f"a = '{LONG}'"),
        "correlation": CorrelationFilter(LONG),
        "named rule": Rule("r", SqlFilter(f"a = '{LONG}'"), SqlRuleAction(f"SET a = '{LONG}'")),
        "config": BusConfig(),
        "channel config": ChannelConfig(ttl=5, dead_letter_channel=LONG),
        "payload": Payload(SECRET),
        "serializer": create_serializer("json"),
        "backend": InMemoryQueueBackend(),
        "failed store": StoreHealth(False, "sqlite:///x", "D2", LONG),
    }
    connection = sqlite3.connect(folder / "mine.db")
    found["outbox"] = bus.transaction(connection=connection)
    connection.close()
    session.close()
    return found


def test_each_is_one_short_line_without_bodies(tmp_path: Path) -> None:
    with SyncMessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        found = {name: each if isinstance(each, str) else repr(each) for name, each in objects(bus, tmp_path).items()}
    for name, text in found.items():
        assert len(text) <= LINE_CHARS_MAX + 40, (name, text)
        assert "\n" not in text, (name, text)
        assert " object at 0x" not in text, (name, text)
        assert "hunter2-hunter2-hunter2" not in text, (name, text)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            lambda: DeadLetterFilter(queue="orders", attempts_from=3),
            "DeadLetterFilter(queue='orders', attempts_from=3)",
        ),
        (lambda: DeadLetterFilter(), "DeadLetterFilter()"),
        (lambda: ChannelConfig(100, ttl=5), "ChannelConfig(max_queue_size=100, ttl=5)"),
        (
            lambda: RecoveryRule(RecoveryAction.REDIRECT, target="late"),
            "<RecoveryRule action='redirect', target='late'>",
        ),
        (lambda: StoreHealth(True, "sqlite:///a.db", "D2"), "<StoreHealth sqlite:///a.db at D2, ok, 0 messages>"),
        (lambda: InMemoryQueueBackend(), "<InMemoryQueueBackend 0 topics, open>"),
    ],
)
def test_some_of_them(made: Callable[[], object], text: str) -> None:
    assert repr(made()) == text


def test_a_bus_names_its_store_and_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bus = SyncMessageBus("sqlite:///bus.db")
    bus.create_channel("a")
    assert repr(bus) == "<SyncMessageBus sqlite:///bus.db, 1 channel, open>"
    bus.stop()
    assert repr(bus) == "<SyncMessageBus sqlite:///bus.db, 1 channel, stopped>"
    bus.close()
    assert repr(bus) == "<SyncMessageBus sqlite:///bus.db, 1 channel, closed>"


async def test_a_bus_in_memory_does_not_open_a_store_for_its_repr() -> None:
    async with MessageBus() as bus:
        assert repr(bus) == "<MessageBus memory, 0 channels, open>"
        assert not bus._runtime.has_store()
        pending = bus.send("q", 1)
        assert repr(pending).startswith("<Pending, ")
        await pending
        [message] = await bus.receive_batch("q", mode="receive_and_delete", timeout=0)
        assert repr(message) == f"<Received {message.id} of 'q' #1, settled>"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.processes
def test_a_forked_child_has_a_repr_too() -> None:
    with SyncMessageBus() as bus:
        text = f"<SyncMessageBus of process {os.getpid()}, not usable in this forked child>"
        assert in_child(lambda: repr(bus) == text)


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(unibus.public).values() if isinstance(each, type) and not issubclass(each, ALWAYS_COMPLETE)],
    ids=lambda kind: kind.__name__,
)
def test_an_object_that_is_not_complete_has_a_repr(kind: type) -> None:
    try:
        made = object.__new__(kind)
    except TypeError:
        made = _of_its_own_kind(kind)
    assert isinstance(repr(made), str)


def _of_its_own_kind(kind: Any) -> object:
    """An int, a str, a tuple or a Struct has a constructor of its own, and protocols have none."""
    try:
        return kind.__new__(kind)
    except (TypeError, ValueError, unibus.BusError):
        return None


def test_a_url_is_shown_without_its_secrets() -> None:
    assert without_secrets("sqlite:///bus.db?durability=D1") == "sqlite:///bus.db?durability=D1"
    assert without_secrets("other://user:pass@host:1/db?x=1") == "other://***@host:1/db?x=1"
    assert without_secrets("other://host?api_key=abc&y=2&Password=d") == "other://host?api_key=***&y=2&Password=***"
    text = without_secrets("Endpoint=sb://h;SharedAccessKeyName=R;SharedAccessKey=abc=;SharedAccessSignature=s")
    assert "abc" not in text
    assert "=s" not in text.removeprefix("Endpoint=sb")


def test_a_persistence_names_its_file(tmp_path: Path) -> None:
    kept = SqlitePersistence.new(tmp_path / "a.db")
    assert repr(kept).startswith("<SqlitePersistence sqlite:///")
    kept.close()


def test_a_backend_subscription_names_its_topic() -> None:
    async def main() -> str:
        async with MessageBus(InMemoryQueueBackend()) as bus:
            subscription: object = bus.subscribe("topic", print)
            return repr(subscription)

    assert asyncio.run(main()).endswith(" on 'topic', active>")
