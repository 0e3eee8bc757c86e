"""A slot that was claimed for a message is run, or the message goes to another consumer: for every way to lose a slot.

The consumer whose turn it is loses its slot between the wake-up and the first step: it is cancelled, its task is
cancelled by others, its loop is stopped or closed, the bus is stopped and started.
"""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.unit.bus.probes import (
    GUARD_S,
    Collector,
    Gate,
    assert_slots_are_free,
    assert_slots_are_free_here,
    bus_threads,
    within,
)
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.group import Consumer
from unibus.bus.pubsub.subscription import Subscription
from unibus.core.atomic import COMPILED
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed

Handler = Callable[[Message], Awaitable[None]]
PLAIN = pytest.mark.skipif(COMPILED, reason="replaces a method, to come between two steps of a thread")
GROUP = "c/Subscriptions/g"


def opened(kind: str, folder: Path) -> MessageBus:
    """A bus whose channel `c` is in memory, persistent in a store in memory, or persistent in a SQLite file."""
    if kind == "channel":
        bus = MessageBus()
        bus.create_channel("c")
        return bus
    url = "memory://" if kind == "memory" else f"sqlite:///{folder}/bus.db?durability=D1"
    bus = MessageBus().with_persistence(url)
    bus.create_channel("c", persistent=True)
    return bus


@pytest.fixture(params=["channel", "memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


FIRST, NEW, PARKED = "first of its loop", "new", "parked"
slots = pytest.mark.parametrize("slot", [FIRST, NEW, PARKED])
"""The slot that is claimed: the first one on a loop that the bus has not met yet, a new one, or one that has run."""


async def warmed_up(bus: MessageBus, slot: str) -> None:
    if slot == FIRST:
        return
    bus.create_channel("warm", persistent=False)
    bus.subscribe("warm", collector([]))
    await bus.publish("warm")
    assert await bus.drain(GUARD_S)


def collector(got: list[object]) -> Handler:
    async def handler(message: Message) -> None:
        got.append(message.body)

    return handler


async def claimed(got: list[object], *subscriptions: Subscription) -> Subscription:
    """The one whose slot was claimed; any, if its handler was quicker. On a persistent channel the store is asked."""
    async with asyncio.timeout(GUARD_S):
        while not any(each.consumer.active for each in subscriptions) and not got:  # noqa: ASYNC110 - by a thread
            await asyncio.sleep(0)
    return next((each for each in subscriptions if each.consumer.active), subscriptions[0])


@slots
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_woken_consumer_that_is_cancelled_leaves_its_message_to_the_other(
    kind: str, slot: str, concurrency: int, tmp_path: Path
) -> None:
    bus = opened(kind, tmp_path)
    await warmed_up(bus, slot)
    for turn in range(4):
        got: list[object] = []
        one = bus.subscribe("c", collector(got), group="g", concurrency=concurrency)
        two = bus.subscribe("c", collector(got), group="g", concurrency=concurrency)
        for number in range(6 if slot == PARKED else 0):
            await bus.publish("c", number)
            assert await bus.drain(GUARD_S)
        for number in range(turn % 2):  # So that it is the turn of the one, or of the other.
            await bus.publish("c", number)
            assert await bus.drain(GUARD_S)
        got.clear()
        published = bus.publish("c", "last")
        (await claimed(got, one, two)).cancel()
        await published
        assert await bus.drain(GUARD_S)
        assert got == ["last"]
        await assert_slots_are_free_here(bus)
        await one.cancel()
        await two.cancel()
        assert await bus.drain(GUARD_S)
    await bus.close(GUARD_S)


@slots
async def test_a_woken_consumer_that_is_the_last_leaves_its_message_where_it_waits(
    kind: str, slot: str, tmp_path: Path
) -> None:
    bus = opened(kind, tmp_path)
    await warmed_up(bus, slot)

    async def handler(message: Message) -> None:
        if message.body:
            await asyncio.Event().wait()

    only = bus.subscribe("c", handler, group="g")
    if slot == PARKED:
        await bus.publish("c", 0)
        assert await bus.drain(GUARD_S)
    published = bus.publish("c", 1)
    await (await claimed([], only)).cancel()
    await published
    assert await bus.drain(GUARD_S)
    assert bus.queue_size("c") == 1
    if kind != "channel":
        (info,) = [info for info in await bus.entities() if info.name == GROUP]
        assert (info.active, info.locked) == (1, 0)
    later: list[object] = []
    bus.subscribe("c", collector(later), group="g")
    assert await bus.drain(GUARD_S)
    assert later == [1]
    await bus.close(GUARD_S)


@slots
async def test_a_slot_whose_task_is_cancelled_by_others_is_claimed_again(kind: str, slot: str, tmp_path: Path) -> None:
    # A program that cancels all tasks it can find, and goes on.
    bus = opened(kind, tmp_path)
    await warmed_up(bus, slot)
    got: list[object] = []
    subscription = bus.subscribe("c", collector(got), group="g")
    if slot == PARKED:
        await bus.publish("c", 0)
        assert await bus.drain(GUARD_S)
        got.clear()
    published = bus.publish("c", 1)
    await claimed(got, subscription)
    for task in asyncio.all_tasks():
        if task.get_name().startswith("unibus-slot"):
            task.cancel()
    await published
    assert await bus.drain(GUARD_S)
    assert got == [1]
    await assert_slots_are_free_here(bus)
    await bus.close(GUARD_S)


async def test_a_handler_that_is_cancelled_at_its_work_leaves_its_message_to_the_other(
    kind: str, tmp_path: Path
) -> None:
    bus = opened(kind, tmp_path)
    got: list[object] = []
    entered = asyncio.Event()

    async def stuck(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    subscription = bus.subscribe("c", stuck, group="g", concurrency=2)
    await bus.publish("c", 1)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    bus.subscribe("c", collector(got), group="g")
    subscription.cancel()
    assert await bus.drain(GUARD_S)
    assert got == [1]
    await assert_slots_are_free_here(bus)
    await bus.close(GUARD_S)


@pytest.mark.parametrize("kind", ["channel", "memory"])
async def test_a_woken_thread_whose_consumer_is_cancelled_leaves_its_message_to_the_other(
    kind: str, tmp_path: Path
) -> None:
    bus = opened(kind, tmp_path)
    bus._runtime.executors.pool.size = 1
    gate, got = Gate(), Collector()
    bus.subscribe("busy", gate)
    subscriptions = [bus.subscribe("c", got, group="g") for _ in range(2)]
    await bus.publish("busy")
    await asyncio.to_thread(gate.wait_entered)
    await bus.publish("c", 1)
    subscriptions[0].cancel()  # Its slot was claimed, and waits for a thread.
    gate.open()
    assert await bus.drain(GUARD_S)
    assert got.bodies == [1]
    await assert_slots_are_free_here(bus)
    await bus.close(GUARD_S)


async def test_consumers_that_have_left_are_forgotten_by_their_loop() -> None:
    # Also those that were woken from another thread, and left before the loop heard of it.
    bus = MessageBus()
    bus.create_channel("c")
    await warmed_up(bus, NEW)
    (executor,) = bus._runtime.executors._executors.values()
    (warm,) = executor._slots
    for _ in range(3):
        subscription = bus.subscribe("c", collector([]), group="g")
        await asyncio.to_thread(bus.publish_from_sync, "c")
        await subscription.cancel()
        subscription = bus.subscribe("c", collector([]), group="g")
        within(lambda: bus.publish_from_sync("c"))
        await subscription.cancel()
    assert await bus.drain(GUARD_S)
    await assert_slots_are_free_here(bus)
    assert [*executor._slots] == [warm]
    await bus.close(GUARD_S)


# Loops that end


@contextmanager
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs only when the test runs it, and may be closed by the test."""
    loop = asyncio.new_event_loop()
    yield loop
    if not loop.is_closed():
        loop.close()


def on(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> object:
    """Run the loop for the action and a few turns more."""

    async def run() -> object:
        result = action()
        for _ in range(5):
            await asyncio.sleep(0)
        return result

    return loop.run_until_complete(run())


def subscribed_on(loop: asyncio.AbstractEventLoop, bus: MessageBus, handler: Handler) -> Subscription:
    found = on(loop, lambda: bus.subscribe("c", handler, group="g"))
    assert isinstance(found, Subscription)
    return found


def test_a_consumer_on_a_stopped_loop_leaves_messages_to_the_others(kind: str, tmp_path: Path) -> None:
    bus = opened(kind, tmp_path)
    got, there = Collector(), list[object]()
    with other_loop() as loop:
        stopped = subscribed_on(loop, bus, collector(there))
        bus.subscribe("c", got, group="g")
        for number in range(6):
            bus.publish_from_sync("c", number)
            got.wait(number + 1)
        assert within(lambda: asyncio.run(drained(bus)))
        on(loop, lambda: None)  # What was woken there finds nothing to do, and its slot is free again.
        assert_slots_are_free(bus)
        assert there == []
        on(loop, stopped.cancel)
    asyncio.run(bus.close(GUARD_S))


async def drained(bus: MessageBus) -> bool:
    return await bus.drain(GUARD_S)


@pytest.mark.parametrize("parked", [False, True], ids=["new", "parked"])
def test_a_call_that_a_closed_loop_drops_leaves_its_message_to_the_other(
    kind: str, parked: bool, tmp_path: Path
) -> None:
    bus = opened(kind, tmp_path)
    bus._runtime.executors.pool.size = 1
    there: list[object] = []
    with other_loop() as loop:
        subscribed_on(loop, bus, collector(there))
        if parked:
            on(loop, lambda: bus.publish_from_sync("c", 0))
            assert within(lambda: asyncio.run(drained_on(bus, loop)))
        # From another thread, as publishers do: the call is in the queue of the loop when it is closed.
        within(lambda: bus.publish_from_sync("c", 1))
        if parked:
            for task in asyncio.all_tasks(loop):
                task.cancel()
        loop.close()
    got = Collector()
    bus.subscribe("c", got, group="g")
    assert got.wait(1) == [1]
    assert within(lambda: asyncio.run(drained(bus)))
    assert_slots_are_free(bus)
    asyncio.run(bus.close(GUARD_S))
    gc.collect()


async def drained_on(bus: MessageBus, loop: asyncio.AbstractEventLoop) -> bool:
    while not await bus.drain(0.01):
        await asyncio.to_thread(on, loop, lambda: None)
    return True


def test_a_loop_that_is_closed_while_it_is_called_leaves_the_message_to_the_other() -> None:
    # Without another publish, and without anybody who looks: the loop drops the call, and the call gives up its slot.
    bus = MessageBus()
    got = Collector()
    in_last_turn, go_on = threading.Event(), threading.Event()

    def last() -> None:
        in_last_turn.set()
        assert go_on.wait(GUARD_S)

    with other_loop() as loop:
        subscribed_on(loop, bus, collector([]))
        bus.subscribe("c", got, group="g")
        loop.call_soon(loop.stop)
        loop.call_soon(last)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        assert in_last_turn.wait(GUARD_S)
        bus.publish_from_sync("c", 1)
        go_on.set()
        thread.join(GUARD_S)
        assert bus.queue_size("c") == 1
        loop.close()
    assert got.wait(1) == [1]
    assert within(lambda: asyncio.run(drained(bus)))
    assert_slots_are_free(bus)
    asyncio.run(bus.close(GUARD_S))


@pytest.mark.parametrize("look", ["subscribe", "drain", "wait", "cancel"])
def test_a_handler_in_the_middle_of_its_work_on_a_loop_that_is_closed(kind: str, look: str, tmp_path: Path) -> None:
    # Such a task is never resumed. The message it had goes to another consumer as soon as anybody looks.
    bus = opened(kind, tmp_path)
    got, ended = Collector(), list[object]()
    entered = threading.Event()

    async def stuck(message: Message) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(message.body)

    with other_loop() as loop:
        subscription = subscribed_on(loop, bus, stuck)
        bus.publish_from_sync("c", 1)
        while not entered.is_set():
            on(loop, lambda: None)
        if look != "subscribe":
            bus.subscribe("c", got, group="g")
        silenced(loop)
        loop.close()
    if look == "subscribe":
        bus.subscribe("c", got, group="g")
    elif look == "cancel":
        subscription.cancel()
    elif look == "wait":
        assert within(lambda: bus._runtime.drain.wait(GUARD_S))
    else:
        assert within(lambda: asyncio.run(drained(bus)))
    assert got.wait(1) == [1]
    assert ended == [1]
    assert within(lambda: asyncio.run(drained(bus)))
    assert_slots_are_free(bus)
    asyncio.run(bus.close(GUARD_S))
    gc.collect()


def test_consumers_on_a_closed_loop_are_not_woken_again(kind: str, tmp_path: Path) -> None:
    bus = opened(kind, tmp_path)
    got = Collector()
    with other_loop() as loop:
        for _ in range(2):
            subscribed_on(loop, bus, collector([]))
        loop.close()
    bus.subscribe("c", got, group="g")
    for number in range(3):
        bus.publish_from_sync("c", number)
        got.wait(number + 1)
    assert within(lambda: asyncio.run(drained(bus)))
    assert_slots_are_free(bus)
    asyncio.run(bus.close(GUARD_S))


def silenced(loop: asyncio.AbstractEventLoop) -> None:
    """asyncio reports every task that it destroys; here that is the point of the test."""
    loop.set_exception_handler(lambda loop, context: None)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_messages_of_a_group_whose_loops_are_all_closed_go_back_to_the_store(kind: str, tmp_path: Path) -> None:
    bus = opened(kind, tmp_path)
    with other_loop() as loop:
        subscribed_on(loop, bus, collector([]))
        within(lambda: bus.publish_from_sync("c", 1))
        loop.close()
    within(lambda: bus.publish_from_sync("c", 2))
    assert within(lambda: asyncio.run(drained(bus)))
    (info,) = [info for info in asyncio.run(entities(bus)) if info.name == GROUP]
    assert (info.active, info.locked) == (2, 0)
    asyncio.run(bus.close(GUARD_S))


async def entities(bus: MessageBus) -> list[object]:
    return list(await bus.entities())


# Stop and start


@PLAIN
@pytest.mark.parametrize("is_async", [False, True], ids=["pool", "loop"])
def test_a_slot_given_up_while_the_bus_starts_is_claimed_again(sync_bus: SyncMessageBus, is_async: bool) -> None:
    # The publisher sees a stopped bus; the start comes before it has given up the slot, and finds nothing to wake.
    got = Collector()

    async def handler(message: Message) -> None:
        got(message)

    subscription = sync_bus.subscribe("c", handler if is_async else got)
    assert sync_bus.stop(GUARD_S)
    group = subscription.consumer.group
    give_up = group.give_up

    def late(consumer: Consumer) -> None:
        group.give_up = give_up  # type: ignore[method-assign]
        sync_bus.start()
        give_up(consumer)

    group.give_up = late  # type: ignore[method-assign]
    sync_bus.publish("c", 1)
    assert got.wait(1) == [1]


@PLAIN
def test_a_slot_made_ready_while_the_pool_stops_is_given_up(sync_bus: SyncMessageBus) -> None:
    # The publisher sees a pool at work; the stop comes before the slot is in the queue of the pool.
    got = Collector()
    subscription = sync_bus.subscribe("c", got)
    pool = sync_bus._runtime.executors.pool
    enqueue = pool._enqueue

    def late(consumer: Consumer) -> object:
        pool._enqueue = enqueue  # type: ignore[method-assign]
        assert sync_bus.stop(GUARD_S)
        return enqueue(consumer)

    pool._enqueue = late  # type: ignore[method-assign, assignment]
    sync_bus.publish("c", 1)
    assert subscription.consumer.active == 0
    sync_bus.start()
    assert got.wait(1) == [1]


def test_starting_a_closed_bus_wakes_nobody() -> None:
    # Its own loop has ended, and what could not be delivered does not wait for it.
    bus = SyncMessageBus()
    entered = threading.Event()

    async def stuck(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    bus.subscribe("c", stuck)
    bus.publish("c", 1)
    assert entered.wait(GUARD_S)
    before = bus_threads()
    bus.close(0.01)
    with suppress(BusClosed):
        within(bus.start)
    assert bus_threads() <= before


# Inline


def test_an_inline_consumer_that_leaves_after_admission_loses_no_message(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    subscription = sync_bus.subscribe("c", lambda message: None, dispatch="inline")
    exchange = sync_bus._runtime.exchange
    channel = exchange.channels["c"]
    group = subscription.consumer.group
    message = exchange.envelope(channel, 1, None, None)
    exchange.refresh(channel)
    assert channel.offer_only(group, message)
    subscription.cancel()
    exchange.run_inline(group, message)
    assert sync_bus.queue_size("c") == 1


# Loops that end as asyncio.run ends them: all of their tasks are cancelled, then they are closed


def test_a_loop_that_ends_begins_no_handler_again_and_leaves_its_message_to_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MessageBus()
    entered: list[object] = []
    got = Collector()

    async def use() -> None:
        is_entered = asyncio.Event()

        async def handler(message: Message) -> None:
            entered.append(message.body)
            is_entered.set()
            await asyncio.Event().wait()

        bus.subscribe("c", handler, group="g", concurrency=1)
        await bus.publish("c", 1)
        await is_entered.wait()
        await bus.publish("c", 2)

    asyncio.run(use())
    gc.collect()
    assert entered == [1]  # It was cancelled, and not called again by a loop that is about to close.
    bus.subscribe("c", got, group="g")
    assert asyncio.run(drained(bus))
    assert [message.body for message in got.messages] == [1, 2]
    asyncio.run(bus.close())
    assert caplog.text == ""


def turn(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    """Run the loop for the action and a few turns more, without a task of our own."""
    loop.call_soon(action)
    for _ in range(5):
        loop.call_soon(loop.stop)
        loop.run_forever()


def test_a_loop_that_goes_on_after_all_its_tasks_were_cancelled_starts_the_slot_again() -> None:
    bus = MessageBus()
    entered: list[object] = []
    delayed: list[Callable[[], object]] = []

    async def handler(message: Message) -> None:
        entered.append(message.body)
        await asyncio.Event().wait()

    with other_loop() as loop:

        def cancel_all() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()

        subscribed_on(loop, bus, handler)
        on(loop, lambda: bus.publish_from_sync("c", 1))
        assert entered == [1]
        loop.call_later = lambda delay_s, call: delayed.append(call)  # type: ignore[assignment, method-assign]
        turn(loop, cancel_all)
        assert (entered, len(delayed)) == ([1], 1)
        turn(loop, delayed.pop())
        assert entered == [1, 1]
        loop.run_until_complete(bus.close(0.0))


def test_a_worker_gives_its_slot_up_while_the_bus_is_paused() -> None:
    # `stop` pauses the bus before it stops the pool. A worker that took its slot again and again until then would keep
    # the interpreter for itself: compiled code does not let other threads run in between.
    bus, gate = SyncMessageBus(), Gate()
    bus.subscribe("c", gate)
    bus.publish("c", 1)
    gate.wait_entered()
    bus.publish("c", 2)
    bus._runtime.delivery.paused = True
    gate.open()
    assert_slots_are_free(bus)
    assert [message.body for message in gate.messages] == [1]
    bus.start()
    assert bus.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [1, 2]
    bus.close(1)
