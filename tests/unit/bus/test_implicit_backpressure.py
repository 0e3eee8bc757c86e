"""A full channel that was not created: a publisher that can wait does, and raises at once where no place can come."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, HandTimers, Publisher, TimersClock, event_wait, within
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, QueueFull, RequestTimeout
from unibus.limits import BLOCK_TIMEOUT_S_DEFAULT, QUEUE_SIZE_DEFAULT

FULL = list(range(QUEUE_SIZE_DEFAULT))


def blocked_count(bus: MessageBus | SyncMessageBus, name: str = "c") -> int:
    return int(bus._exchange.channels[name].blocked.count)


def until_blocked(bus: MessageBus | SyncMessageBus, name: str = "c") -> None:
    for _ in range(int(GUARD_S * 1_000)):
        if blocked_count(bus, name):
            return
        threading.Event().wait(0.001)
    raise AssertionError("no publisher waits")


async def until_task_blocked(bus: MessageBus, name: str = "c") -> None:
    for _ in range(10_000):
        if blocked_count(bus, name):
            return
        await asyncio.sleep(0)
    raise AssertionError("no publisher waits")


def assert_nothing_waits(bus: MessageBus | SyncMessageBus, name: str = "c") -> None:
    assert blocked_count(bus, name) == 0
    assert bus._runtime.backpressure.graph._waits == {}


@pytest.fixture
def full(sync_bus: SyncMessageBus) -> Iterator[Gate]:
    """The channel "c" is full; its handler has one message more, and returns when the gate is opened."""
    gate = Gate()
    sync_bus.subscribe("c", gate)
    sync_bus.publish("c", -1)
    gate.wait_entered()
    sync_bus.publish_many("c", FULL)
    yield gate
    gate.open()


class AsyncGate:
    """An async handler that says when it was entered and returns when it is opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.bodies: list[object] = []

    async def __call__(self, message: Message) -> None:
        self.bodies.append(message.body)
        self.entered.set()
        await self.opened.wait()


async def filled(bus: MessageBus) -> AsyncGate:
    gate = AsyncGate()
    bus.subscribe("c", gate)
    await bus.publish("c", -1)
    await gate.entered.wait()
    await bus.publish_many("c", FULL)
    return gate


# Waiting


async def test_five_thousand_awaited_publishes_to_a_slow_handler_succeed(async_bus: MessageBus) -> None:
    gate = await filled(async_bus)

    async def publish_all() -> None:
        for number in range(1_000, 5_000):
            await async_bus.publish("c", number)

    publishing = asyncio.create_task(publish_all())
    await until_task_blocked(async_bus)
    assert async_bus.queue_size("c") == QUEUE_SIZE_DEFAULT
    gate.opened.set()
    await asyncio.wait_for(publishing, GUARD_S)
    assert await async_bus.drain(GUARD_S)
    assert gate.bodies == list(range(-1, 5_000))
    assert_nothing_waits(async_bus)


def test_five_thousand_publishes_of_a_thread_succeed(sync_bus: SyncMessageBus, full: Gate) -> None:
    publisher = Publisher(lambda: [sync_bus.publish("c", number) for number in range(1_000, 5_000)])
    until_blocked(sync_bus)
    full.open()
    publisher.join()
    assert publisher.error is None
    assert sync_bus.drain(GUARD_S)
    assert [message.body for message in full.messages] == list(range(-1, 5_000))
    assert_nothing_waits(sync_bus)


async def test_a_batch_waits_until_all_of_it_fits(async_bus: MessageBus) -> None:
    gate = await filled(async_bus)
    publishing = asyncio.ensure_future(async_bus.publish_many("c", range(1_000, 2_000)))
    await until_task_blocked(async_bus)
    gate.opened.set()
    assert len(await asyncio.wait_for(publishing, GUARD_S)) == 1_000
    assert await async_bus.drain(GUARD_S)
    assert gate.bodies == list(range(-1, 2_000))


async def test_a_batch_that_never_fits_is_refused_at_once(async_bus: MessageBus) -> None:
    async_bus.subscribe("c", Collector())
    with pytest.raises(QueueFull, match=r"takes at most 1,000 messages .* the batch has 1,001") as caught:
        async_bus.publish_many("c", range(1_001))
    assert "smaller batches" in caught.value.hint


def test_the_wait_ends_after_thirty_seconds_by_default(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", Collector())
    assert BLOCK_TIMEOUT_S_DEFAULT == 30.0
    assert sync_bus._exchange.channels["c"].block_timeout_s == 30.0
    sync_bus.create_channel("created")
    assert sync_bus._exchange.channels["created"].block_timeout_s is None


def test_a_time_out_says_how_long_it_waited_for_what(sync_bus: SyncMessageBus, full: Gate) -> None:
    sync_bus._exchange.channels["c"].block_timeout_s = 0.01
    with pytest.raises(QueueFull) as caught:
        sync_bus.publish("c", "late")
    assert caught.value.what == ("channel 'c' is full: 1,000 messages waiting (max_queue_size), also after 0.01 s")
    assert "block_timeout" in caught.value.hint
    assert caught.value.item.body == "late"  # type: ignore[attr-defined]
    assert_nothing_waits(sync_bus)
    full.open()
    assert sync_bus.drain(GUARD_S)
    assert [message.body for message in full.messages] == list(range(-1, 1_000))


async def test_a_task_times_out_too(async_bus: MessageBus) -> None:
    gate = await filled(async_bus)
    async_bus._exchange.channels["c"].block_timeout_s = 0.01
    with pytest.raises(QueueFull, match=r"also after 0\.01 s"):
        await async_bus.publish("c", "late")
    assert_nothing_waits(async_bus)
    gate.opened.set()
    assert await async_bus.drain(GUARD_S)
    assert gate.bodies == list(range(-1, 1_000))


async def test_a_cancelled_task_publishes_nothing(async_bus: MessageBus) -> None:
    gate = await filled(async_bus)
    waiting = asyncio.ensure_future(async_bus.publish("c", "never"))
    await until_task_blocked(async_bus)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert_nothing_waits(async_bus)
    gate.opened.set()
    assert await async_bus.drain(GUARD_S)
    assert gate.bodies == list(range(-1, 1_000))


def test_ctrl_c_leaves_no_publisher_behind(
    sync_bus: SyncMessageBus, full: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sync_bus.publish("c", "never")
    assert_nothing_waits(sync_bus)


def test_close_refuses_publishers_that_wait() -> None:
    bus, gate = SyncMessageBus(), Gate()
    bus.subscribe("c", gate)
    bus.publish("c", -1)
    gate.wait_entered()
    bus.publish_many("c", FULL)
    publishers = [Publisher(lambda: bus.publish("c", "never")) for _ in range(3)]
    until_blocked(bus)
    closing = Publisher(lambda: bus.close(GUARD_S))
    for publisher in publishers:
        publisher.join()
        assert isinstance(publisher.error, BusClosed)
    gate.open()
    closing.join()
    assert [message.body for message in gate.messages] == list(range(-1, 1_000))
    assert_nothing_waits(bus)


# No wait


def test_publish_from_sync_never_waits(sync_bus: SyncMessageBus, full: Gate) -> None:
    with pytest.raises(QueueFull) as caught:
        within(lambda: sync_bus.publish_from_sync("c", "no"))
    assert "await publish()" in caught.value.hint


async def test_publish_from_sync_of_the_async_bus_never_waits(async_bus: MessageBus) -> None:
    gate = await filled(async_bus)
    with pytest.raises(QueueFull):
        async_bus.publish_from_sync("c", "no")
    with pytest.raises(QueueFull):
        await asyncio.to_thread(async_bus.publish_from_sync, "c", "no")
    gate.opened.set()


async def test_a_thread_that_cannot_await_is_refused_at_the_call(async_bus: MessageBus) -> None:
    # A sync handler that calls `publish` gets no coroutine that never runs.
    gate = await filled(async_bus)
    with pytest.raises(QueueFull):
        await asyncio.to_thread(async_bus.publish, "c", "no")
    with pytest.raises(QueueFull):
        await asyncio.to_thread(async_bus.publish_many, "c", ["no"])
    gate.opened.set()


async def test_the_sync_bus_never_blocks_an_event_loop(sync_bus: SyncMessageBus, full: Gate) -> None:
    with pytest.raises(QueueFull):
        sync_bus.publish("c", "no")


def test_a_created_channel_keeps_its_policy(sync_bus: SyncMessageBus, full: Gate) -> None:
    publisher = Publisher(lambda: sync_bus.publish("c", "waits"))
    until_blocked(sync_bus)
    sync_bus.create_channel("c")  # drop_new by default: also for the publisher that waits.
    publisher.join()
    assert isinstance(publisher.error, QueueFull)
    with pytest.raises(QueueFull) as caught:
        sync_bus.publish("c", "no")
    assert "drop_policy 'block'" in caught.value.hint


# No handler that can run


def test_a_stopped_bus_refuses_at_once(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("c", got, group="workers")
    assert sync_bus.stop()
    sync_bus.publish_many("c", FULL)
    with pytest.raises(QueueFull, match="and no handler of group 'workers' can take one") as caught:
        within(lambda: sync_bus.publish("c", "no"))
    assert "start()" in caught.value.hint
    sync_bus.start()
    assert got.wait(1_000) == FULL
    sync_bus.publish("c", "yes")


def test_a_stopped_bus_refuses_a_batch_that_has_some_free_places(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", Collector())
    assert sync_bus.stop()
    sync_bus.publish("c", 0)
    with pytest.raises(QueueFull, match="no handler of group"):
        within(lambda: sync_bus.publish_many("c", FULL))
    assert sync_bus.queue_size("c") == 1


async def test_a_group_that_cannot_run_does_not_refuse_what_its_filter_rejects(async_bus: MessageBus) -> None:
    # The loop of the group "stopped" does not run. A publisher that waits for the other group is not refused for it.
    stopped = asyncio.new_event_loop()

    async def never(message: Message) -> None: ...

    async def subscribe() -> None:
        async_bus.subscribe("c", never, group="stopped", filter=lambda message: message.body == "stopped")

    await asyncio.to_thread(stopped.run_until_complete, subscribe())
    gate = AsyncGate()
    async_bus.subscribe("c", gate, filter=lambda message: message.body != "stopped")
    await async_bus.publish_many("c", ["stopped"] * QUEUE_SIZE_DEFAULT)
    await async_bus.publish("c", -1)
    await gate.entered.wait()
    await async_bus.publish_many("c", FULL)
    waiting = asyncio.ensure_future(async_bus.publish("c", "waits"))
    await until_task_blocked(async_bus)
    gate.opened.set()
    await asyncio.wait_for(waiting, GUARD_S)
    async_bus.unsubscribe(never)
    stopped.close()


def test_a_stop_refuses_publishers_that_wait(sync_bus: SyncMessageBus, full: Gate) -> None:
    publisher = Publisher(lambda: sync_bus.publish("c", "no"))
    until_blocked(sync_bus)
    stopping = Publisher(sync_bus.stop)
    publisher.join()
    assert isinstance(publisher.error, QueueFull)
    full.open()
    stopping.join()
    assert_nothing_waits(sync_bus)


def test_a_stop_does_not_wait_for_a_handler_that_waits_for_a_place(sync_bus: SyncMessageBus, full: Gate) -> None:
    errors: list[BaseException] = []

    def handler(message: Message) -> None:
        try:
            sync_bus.publish("c", "no")
        except QueueFull as error:
            errors.append(error)

    sync_bus.subscribe("in", handler)
    sync_bus.publish("in", 1)
    until_blocked(sync_bus)
    stopping = Publisher(lambda: sync_bus.stop(GUARD_S))
    full.open()
    stopping.join()
    assert stopping.error is None
    assert len(errors) == 1
    assert_nothing_waits(sync_bus)


def test_a_closed_loop_of_the_handlers_refuses_at_once() -> None:
    bus, home = MessageBus(), asyncio.new_event_loop()
    gate = home.run_until_complete(filled(bus))
    task = home.run_until_complete(_start(bus))
    with pytest.raises(QueueFull, match="no handler of group"):
        asyncio.run(asyncio.wait_for(_publish(bus), GUARD_S))  # Its loop does not run.
    task.cancel()
    home.run_until_complete(asyncio.gather(task, return_exceptions=True))
    gate.opened.set()
    home.run_until_complete(bus.close(GUARD_S))
    home.close()


async def _publish(bus: MessageBus) -> Message:
    return await bus.publish("c", "no")


async def _start(bus: MessageBus) -> "asyncio.Task[Message]":
    task = asyncio.create_task(_publish(bus))
    await until_task_blocked(bus)
    return task


def test_a_loop_that_stops_during_the_wait_refuses_the_publisher() -> None:
    timers = HandTimers()
    bus, home = MessageBus(clock=TimersClock(timers)), asyncio.new_event_loop()
    ready, stopped = threading.Event(), threading.Event()

    async def subscribe() -> None:
        gate = await filled(bus)
        ready.set()
        await asyncio.to_thread(event_wait, stopped)
        del gate

    thread = Publisher(lambda: home.run_until_complete(subscribe()))
    event_wait(ready)
    publisher = Publisher(lambda: asyncio.run(_publish(bus)))
    until_blocked(bus)
    timers.fire()
    assert publisher.is_waiting
    stopped.set()
    thread.join()
    timers.fire_until(lambda: not publisher.is_waiting)
    publisher.join()
    assert isinstance(publisher.error, QueueFull)
    assert_nothing_waits(bus)
    home.run_until_complete(bus.close(0.05))
    home.close()


def test_the_end_of_the_subscription_frees_the_publisher_to_no_subscriber(sync_bus: SyncMessageBus, full: Gate) -> None:
    # As a publish that comes a moment later: the channel has no subscriber, and the message is counted as unrouted.
    publisher = Publisher(lambda: sync_bus.publish("c", "late"))
    until_blocked(sync_bus)
    sync_bus.unsubscribe("c")
    publisher.join()
    assert publisher.error is None
    assert sync_bus.snapshot("c").channels[0].outcomes["unrouted"] == 1
    assert_nothing_waits(sync_bus)


# Requests


def test_the_timeout_of_a_request_covers_its_wait_for_a_place(sync_bus: SyncMessageBus, full: Gate) -> None:
    with pytest.raises(RequestTimeout):
        sync_bus.request("c", "late", timeout=0.01)
    assert_nothing_waits(sync_bus)


async def test_the_timeout_of_an_async_request_covers_its_wait_for_a_place(async_bus: MessageBus) -> None:
    gate = await filled(async_bus)
    with pytest.raises(RequestTimeout):
        await async_bus.request("c", "late", timeout=0.01)
    assert_nothing_waits(async_bus)
    gate.opened.set()
