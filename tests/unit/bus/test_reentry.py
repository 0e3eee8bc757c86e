"""No lock is held while a handler runs: it may do anything with the bus."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, event_wait
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed

PLACES = ["pool", "inline", "async"]


def run_inside(bus: SyncMessageBus, place: str, action: Callable[[], None], channel: str = "c") -> None:
    """The action inside of a handler; it must end, and it must not have raised."""
    done = threading.Event()
    errors: list[BaseException] = []

    def handler(message: Message) -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)
        done.set()

    async def async_handler(message: Message) -> None:
        handler(message)

    options = {"dispatch": "inline"} if place == "inline" else {}
    bus.subscribe(channel, async_handler if place == "async" else handler, retry_attempts=0, **options)
    threading.Thread(target=bus.publish, args=(channel, "x"), daemon=True).start()
    event_wait(done)
    assert errors == []


@pytest.mark.parametrize("place", PLACES)
def test_publish_inside_a_handler(sync_bus: SyncMessageBus, place: str) -> None:
    got = Collector()
    sync_bus.subscribe("out", got)
    run_inside(sync_bus, place, lambda: [sync_bus.publish("out", 1), sync_bus.publish_many("out", [2, 3])][0] and None)
    assert got.wait(3) == [1, 2, 3]


@pytest.mark.parametrize("place", PLACES)
def test_publish_to_its_own_channel_inside_a_handler(sync_bus: SyncMessageBus, place: str) -> None:
    count = 0
    done = threading.Event()

    def handler(message: Message) -> None:
        nonlocal count
        count += 1
        if count < 50:
            sync_bus.publish("c", count)
        else:
            done.set()

    async def async_handler(message: Message) -> None:
        handler(message)

    options = {"dispatch": "inline"} if place == "inline" else {}
    sync_bus.subscribe("c", async_handler if place == "async" else handler, **options)
    sync_bus.publish("c", 0)
    event_wait(done)
    assert sync_bus.drain(GUARD_S)
    assert count == 50


@pytest.mark.parametrize("place", PLACES)
def test_subscribe_inside_a_handler(sync_bus: SyncMessageBus, place: str) -> None:
    got = Collector()

    def action() -> None:
        sync_bus.subscribe("new", got)
        sync_bus.subscribe("n", got, match="prefix", group="second")
        sync_bus.publish("new", 1)

    run_inside(sync_bus, place, action)
    assert got.wait(2) == [1, 1]


@pytest.mark.parametrize("place", PLACES)
def test_unsubscribe_another_inside_a_handler(sync_bus: SyncMessageBus, place: str) -> None:
    got = Collector()
    sync_bus.subscribe("out", got)

    def action() -> None:
        assert sync_bus.unsubscribe(got)
        sync_bus.publish("out", 1)

    run_inside(sync_bus, place, action)
    assert sync_bus.drain(GUARD_S)
    assert got.bodies == []


@pytest.mark.parametrize("place", PLACES)
def test_create_a_channel_inside_a_handler(sync_bus: SyncMessageBus, place: str) -> None:
    def action() -> None:
        sync_bus.create_channel("made", max_queue_size=1)
        sync_bus.create_channel("made", max_queue_size=2, update=True)
        sync_bus.publish("made", 1)

    run_inside(sync_bus, place, action)
    assert sync_bus.queue_size("made") == 1


@pytest.mark.parametrize("place", PLACES)
def test_look_at_everything_inside_a_handler(sync_bus: SyncMessageBus, place: str) -> None:
    def action() -> None:
        sync_bus.metrics()
        sync_bus.snapshot()
        sync_bus.channels()
        sync_bus.queue_size("c")
        sync_bus.pop("c")
        sync_bus.dead_letters("c")

    run_inside(sync_bus, place, action)


@pytest.mark.parametrize("place", ["pool", "inline"])
@pytest.mark.parametrize("drain_timeout", [0.01, None])
def test_close_inside_a_sync_handler(place: str, drain_timeout: float | None) -> None:
    # The handler itself cannot be waited for: not for the time-out, and least of all for ever.
    bus = SyncMessageBus()
    run_inside(bus, place, lambda: bus.close(drain_timeout))
    with pytest.raises(BusClosed):
        bus.publish("c")


@pytest.mark.parametrize("drain_timeout", [0.01, None])
async def test_close_inside_an_async_handler(drain_timeout: float | None) -> None:
    bus = MessageBus()
    closed = asyncio.Event()

    async def handler(message: Message) -> None:
        await bus.close(drain_timeout)
        closed.set()

    bus.subscribe("c", handler, retry_attempts=0)
    await bus.publish("c")
    await asyncio.wait_for(closed.wait(), GUARD_S)
    with pytest.raises(BusClosed):
        await bus.publish("c")


@pytest.mark.parametrize("place", ["pool", "inline"])
def test_stop_inside_a_sync_handler(place: str) -> None:
    bus = SyncMessageBus()
    run_inside(bus, place, lambda: bus.stop(GUARD_S) and None)
    bus.close(0.01)


@pytest.mark.parametrize("place", ["pool", "inline"])
def test_a_sync_handler_that_unsubscribes_itself(sync_bus: SyncMessageBus, place: str) -> None:
    got: list[object] = []
    sync_bus.create_channel("c")

    def handler(message: Message) -> None:
        assert sync_bus.unsubscribe(handler)
        got.append(message.body)

    options = {"dispatch": "inline"} if place == "inline" else {}
    sync_bus.publish("c", 0)
    sync_bus.publish("c", 1)
    sync_bus.subscribe("c", handler, retry_attempts=0, **options)
    assert sync_bus.drain(GUARD_S)
    assert got == [0]
    assert sync_bus.queue_size("c") == 1
    assert sync_bus.metrics()["dispatched"] == 1


async def test_an_async_handler_that_unsubscribes_itself_runs_to_its_end(async_bus: MessageBus) -> None:
    # A one-shot handler: its own cancel must not cut it in two, and its message counts as handled.
    steps: list[str] = []
    ended = asyncio.Event()

    async def handler(message: Message) -> None:
        try:
            steps.append("before")
            async_bus.unsubscribe(handler)
            await asyncio.sleep(0)
            steps.append("after")
        finally:
            ended.set()

    async_bus.create_channel("c")
    async_bus.subscribe("c", handler, retry_attempts=0)
    await async_bus.publish("c", 1)
    await async_bus.publish("c", 2)
    await asyncio.wait_for(ended.wait(), GUARD_S)
    assert await async_bus.drain(GUARD_S)
    assert steps == ["before", "after"]
    assert async_bus.metrics()["dispatched"] == 1
    assert async_bus.queue_size("c") == 1


async def test_an_async_handler_may_await_everything(async_bus: MessageBus) -> None:
    done = asyncio.Event()
    got = Collector()

    async def handler(message: Message) -> None:
        async_bus.create_channel("out")
        subscription = await async_bus.subscribe("out", got)  # type: ignore[misc]
        await async_bus.publish("out", 1)
        await async_bus.publish_many("out", [2])
        await asyncio.to_thread(got.wait, 2)
        await subscription.cancel()
        done.set()

    async_bus.subscribe("c", handler, retry_attempts=0)
    await async_bus.publish("c")
    await asyncio.wait_for(done.wait(), GUARD_S)
    assert await async_bus.drain(GUARD_S)
    assert async_bus.metrics()["errors"] == 0


async def test_stop_inside_an_async_handler_does_not_wait_for_itself() -> None:
    # As in a sync handler: the caller is the one that cannot be waited for.
    bus = MessageBus()
    stopped: list[bool] = []
    done = asyncio.Event()

    async def handler(message: Message) -> None:
        stopped.append(await bus.stop(60))
        done.set()

    bus.subscribe("c", handler, retry_attempts=0)
    await bus.publish("c")
    await asyncio.wait_for(done.wait(), GUARD_S)
    assert stopped == [True]
    bus.start()
    await bus.close(GUARD_S)
