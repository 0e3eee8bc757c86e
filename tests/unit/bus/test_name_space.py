"""A name belongs to a channel or to an entity, whatever store the bus has: the same program never splits in silence."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import BusError, EntityExists, UsageError

KINDS = ("memory", "persistent memory", "sqlite", "jsonfile")


def opened(kind: str, folder: Path) -> SyncMessageBus:
    if kind == "memory":
        return SyncMessageBus()
    if kind == "persistent memory":
        bus = SyncMessageBus()
        bus.with_persistence("memory://")
        bus.create_channel("c", persistent=True)
        return bus
    return SyncMessageBus(f"{kind}:///{folder}/bus")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def names(bus: SyncMessageBus) -> list[str]:
    return [info.name for info in bus.entities()]


@pytest.mark.parametrize("how", ["send", "send_many", "delayed", "transaction"])
def test_what_is_sent_to_a_channel_reaches_its_handler_or_is_an_error(kind: str, how: str, tmp_path: Path) -> None:
    got = Collector()
    with opened(kind, tmp_path) as bus:

        def in_transaction() -> None:
            with bus.transaction():
                bus.send("c", 1)

        calls: dict[str, Callable[[], object]] = {
            "send": lambda: bus.send("c", 1),
            "send_many": lambda: bus.send_many("c", [1]),
            "delayed": lambda: bus.send("c", 1, delay=0.001),
            "transaction": in_transaction,
        }
        bus.subscribe("c", got, group="g")
        if kind == "memory":
            with pytest.raises(EntityExists, match="'c' is a channel in memory") as caught:
                calls[how]()
            assert "publish() to the channel" in caught.value.hint
            assert names(bus) == []
        else:
            calls[how]()
            assert got.wait(1) == [1]


def test_a_channel_that_was_created_is_no_queue_either(kind: str, tmp_path: Path) -> None:
    got = Collector()
    with opened(kind, tmp_path) as bus:
        bus.create_channel("c", persistent=None if kind != "persistent memory" else True)
        if kind == "memory":
            with pytest.raises(EntityExists, match="'c' is a channel in memory"):
                bus.send("c", 1)
        else:
            bus.send("c", 1)
            bus.subscribe("c", got, group="g")
            assert got.wait(1) == [1]


@pytest.mark.parametrize("how", ["create_queue", "create_topic", "entities.create_queue", "receive"])
def test_the_name_of_a_channel_with_a_handler_is_taken(kind: str, how: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as bus:
        bus.subscribe("c", Collector(), group="g")
        calls: dict[str, Callable[[], object]] = {
            "create_queue": lambda: bus.create_queue("c"),
            "create_topic": lambda: bus.create_topic("c"),
            "entities.create_queue": lambda: bus.entities.create_queue("c"),
            "receive": lambda: bus.receive_batch("c", timeout=0),
        }
        if how == "create_topic" and kind != "memory":
            calls[how]()  # It is one already.
            return
        expected: type[BusError] = UsageError if how == "receive" and kind != "memory" else EntityExists
        with pytest.raises(expected):
            calls[how]()


@pytest.mark.parametrize("made_by", ["send", "create_queue", "receive"])
def test_a_queue_cannot_be_subscribed_to(kind: str, made_by: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as bus:
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: bus.send("q", 1),
            "create_queue": lambda: bus.create_queue("q"),
            "receive": lambda: bus.receive_batch("q", timeout=0),
        }
        calls[made_by]()
        with pytest.raises(EntityExists, match=r"'q' .*is a queue"):
            bus.subscribe("q", Collector(), group="g")
        with pytest.raises(EntityExists):
            bus.create_channel("q")
        bus.send("q", 2)  # It goes on to be one.
        assert bus.receive_batch("q", 2, timeout=0)[-1].body == 2


def test_case_does_not_make_another_name(tmp_path: Path) -> None:
    with SyncMessageBus() as bus:
        bus.subscribe("Orders", Collector())
        with pytest.raises(EntityExists):
            bus.send("orders", 1)
        bus.send("Queue", 1)
        with pytest.raises(EntityExists):
            bus.subscribe("queue", Collector())
        bus.delete_entity("Queue")


def test_a_name_is_free_again_without_subscribers_and_after_a_mere_publish() -> None:
    with SyncMessageBus() as bus:
        subscription = bus.subscribe("c", Collector(), group="g")
        with pytest.raises(EntityExists):
            bus.send("c", 1)
        subscription.cancel()
        bus.publish("other", 1)
        for name in ("c", "other"):
            bus.send(name, 2)
            assert [message.body for message in bus.receive_batch(name, timeout=0)] == [2]
            bus.delete_entity(name)
        bus.subscribe("c", Collector(), group="g")  # And so is that of a queue that was deleted.
        with pytest.raises(EntityExists):
            bus.send("c", 3)


def test_the_async_api_has_the_same_rule() -> None:
    async def use() -> None:
        async with MessageBus() as bus:
            bus.subscribe("c", Collector())
            with pytest.raises(EntityExists):
                await bus.send("c", 1)
            assert await bus.drain(GUARD_S)

    asyncio.run(use())


def test_patterns_claim_no_name(kind: str, tmp_path: Path) -> None:
    got = Collector()
    with opened(kind, tmp_path) as bus:
        bus.subscribe("c.*", got, match="wildcard")
        bus.send("c.1", 1)  # Not delivered to patterns: it is a queue.
        assert [message.body for message in bus.receive_batch("c.1", timeout=0, mode="receive_and_delete")] == [1]
        assert got.messages == []


@pytest.mark.parametrize("how", ["subscribe", "create_channel"])
def test_a_channel_with_the_name_of_a_queue_is_told_to_receive(kind: str, how: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as bus:
        bus.create_queue("invoices")
        with pytest.raises(EntityExists) as error:
            bus.subscribe("invoices", print) if how == "subscribe" else bus.create_channel("invoices")
        assert error.value.what.startswith("'invoices' is a queue of the store; a ")
        assert error.value.hint == "receive() from it, or choose another name for the channel"
        assert bus.channels() == ["c"] * (kind == "persistent memory")
