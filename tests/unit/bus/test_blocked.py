"""Many blocked publishers: in order, one wake-up for each free place, and no wake-up is lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.unit.bus.probes import (
    GUARD_S,
    Collector,
    Gate,
    HandClock,
    HandTimers,
    Publisher,
    TimersClock,
    assert_all_end,
    bus_threads,
    within,
)
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.blocked import BlockedPublisher, BlockedPublishers
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, BusError, QueueFull


class Attempts(TimersClock):
    """Counts how often admission was tried: each try reads the time once."""

    def __init__(self) -> None:
        super().__init__(None, monotonic_ns=self._count)
        self.count = 0

    def _count(self) -> int:
        self.count += 1
        return self.count


class Waiter(BlockedPublisher):
    """A publisher that only notes that it was woken."""

    def __init__(self, runs: bool = True, size: int = 1, is_prompt: bool = False) -> None:
        super().__init__(size, is_prompt)
        self.runs = runs
        self.wake_ups = 0

    def wake(self) -> bool:
        self.wake_ups += 1
        return self.runs

    def can_run(self) -> bool:
        return self.runs


class Places:
    """A channel's free places, as the test sets them."""

    def __init__(self, free: int = 0) -> None:
        self.free = free

    def __call__(self) -> int:
        return self.free


def queue_of(places: Places, *waiters: Waiter) -> BlockedPublishers:
    blocked = BlockedPublishers(places)
    for waiter in waiters:
        blocked.add(waiter)
    return blocked


def wake_ups(waiters: list[Waiter]) -> list[int]:
    return [waiter.wake_ups for waiter in waiters]


def blocked_count(bus: SyncMessageBus | MessageBus) -> int:
    return int(bus._exchange.channels["c"].blocked.count)


async def until_blocked(bus: MessageBus, count: int) -> None:
    for _ in range(10_000):
        if blocked_count(bus) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError("the publishers do not wait")


def start_in_order(bus: SyncMessageBus, count: int, publish: Callable[[int], object]) -> list[Publisher]:
    """Threads that publish, each started when those before it wait."""
    publishers = []
    before = blocked_count(bus)
    for number in range(count):
        publishers.append(Publisher(lambda number=number: publish(number)))  # type: ignore[misc]
        for _ in range(int(GUARD_S * 1_000)):
            if blocked_count(bus) == before + number + 1:
                break
            threading.Event().wait(0.001)
        else:
            raise AssertionError("a publisher does not wait")
    return publishers


def test_a_free_place_wakes_one() -> None:
    waiters, places = [Waiter() for _ in range(3)], Places(1)
    blocked = queue_of(places, *waiters)
    blocked.grant()
    blocked.grant()  # For whatever reason: the one free place is granted.
    assert wake_ups(waiters) == [1, 0, 0]
    blocked.remove(waiters[0])
    blocked.grant()
    assert wake_ups(waiters) == [1, 1, 0]


def test_a_further_place_is_for_the_next_one_while_the_first_has_not_used_its_own() -> None:
    waiters, places = [Waiter() for _ in range(4)], Places(1)
    blocked = queue_of(places, *waiters)
    blocked.grant()
    places.free = 3
    blocked.grant()
    assert wake_ups(waiters) == [1, 1, 1, 0]
    assert [blocked.has_place(waiter) for waiter in waiters] == [True, True, True, False]


def test_threads_get_their_places_one_after_the_other() -> None:
    # They run at once when they are woken, and so they publish in the order in which they came.
    waiters, places = [Waiter(is_prompt=True) for _ in range(3)], Places(3)
    blocked = queue_of(places, *waiters)
    blocked.grant()
    assert wake_ups(waiters) == [1, 0, 0]
    places.free = 2
    blocked.remove(waiters[0])
    blocked.grant()
    assert wake_ups(waiters) == [1, 1, 0]


def test_a_place_of_many_messages_is_reserved_for_all_of_them() -> None:
    first, many, last = Waiter(), Waiter(size=3), Waiter()
    blocked = queue_of(places := Places(3), first, many, last)
    blocked.grant()
    assert wake_ups([first, many, last]) == [1, 0, 0]  # The last one does not pass.
    places.free = 4
    blocked.grant()
    assert wake_ups([first, many, last]) == [1, 1, 0]


def test_one_that_found_no_place_keeps_its_position() -> None:
    waiters, places = [Waiter() for _ in range(4)], Places(3)
    blocked = queue_of(places, *waiters)
    blocked.grant()
    places.free = 0  # Handlers took the places: they wait behind none.
    for waiter in (waiters[1], waiters[0], waiters[2]):
        blocked.wait_again(waiter)
    assert wake_ups(waiters) == [1, 1, 1, 0]
    for count in range(1, 5):
        places.free = count
        blocked.grant()
        assert [blocked.has_place(waiter) for waiter in waiters] == [number < count for number in range(4)]


def test_a_place_that_comes_free_while_the_first_one_tries_is_not_missed() -> None:
    waiter, places = Waiter(is_prompt=True), Places(1)
    blocked = queue_of(places, waiter)
    blocked.grant()
    blocked.grant()  # While it tries in vain.
    blocked.wait_again(waiter)
    assert blocked.has_place(waiter)
    blocked.wait_again(waiter)
    assert not blocked.has_place(waiter)  # Nothing has come since: it does not try for ever.


def test_a_place_that_comes_free_while_the_first_one_gives_its_own_back_is_not_missed() -> None:
    places = Places(1)

    class Returning(Waiter):
        """Gives its place back in the middle of the next grant, as another thread may."""

        def can_run(self) -> bool:
            if blocked.has_place(self) and self.wake_ups == 1:
                blocked.wait_again(self)
            return True

    first, second = Returning(is_prompt=True), Waiter(is_prompt=True)
    blocked = queue_of(places, first, second)
    blocked.grant()
    blocked.grant()
    assert blocked.has_place(first)
    assert first.wake_ups == 2


def test_one_that_may_never_run_holds_up_none() -> None:
    dead, alive, places = Waiter(runs=False), Waiter(), Places(1)
    blocked = queue_of(places, dead)
    assert not blocked.can_run()
    blocked.add(alive)
    assert blocked.can_run()
    blocked.grant()
    assert (dead.wake_ups, alive.wake_ups) == (1, 1)
    assert not blocked.has_place(dead)
    assert blocked.has_place(alive)


def test_a_place_of_one_that_stopped_is_taken_back() -> None:
    stopped, alive, places = Waiter(), Waiter(), Places(1)
    blocked = queue_of(places, stopped, alive)
    blocked.grant()
    stopped.runs = False
    blocked.grant()
    assert [blocked.has_place(waiter) for waiter in (stopped, alive)] == [False, True]
    blocked.remove(alive)
    stopped.runs = True
    blocked.resume(stopped)  # It was woken before.
    assert blocked.has_place(stopped)
    blocked.remove(stopped)
    assert blocked.count == 0
    assert not blocked.can_run()


async def attempts_of(publishers: int) -> int:
    clock = Attempts()
    got: list[object] = []

    async def handler(message: Message) -> None:
        got.append(message.body)

    async with MessageBus(clock=clock) as bus:
        bus.create_channel("c", max_queue_size=1, drop_policy="block")
        waiting = [asyncio.ensure_future(bus.publish("c", number)) for number in range(publishers)]
        await until_blocked(bus, publishers - 1)
        bus.subscribe("c", handler)
        await asyncio.wait_for(asyncio.gather(*waiting), GUARD_S)
        assert await bus.drain(GUARD_S)
    assert got == list(range(publishers)), "the order of blocked publishers"
    return clock.count


async def test_attempts_grow_with_the_number_of_tasks_and_not_with_its_square() -> None:
    few, many = await attempts_of(50), await attempts_of(400)
    assert many <= 8 * few + 20
    assert many <= 4 * 400


def test_attempts_grow_with_the_number_of_threads_and_not_with_its_square() -> None:
    count, clock = 60, Attempts()
    bus = SyncMessageBus(clock=clock)
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish("c", -1)
    publishers = start_in_order(bus, count, lambda number: bus.publish("c", number))
    got = Collector()
    bus.subscribe("c", got)
    for publisher in publishers:
        publisher.join()
    assert got.wait(count + 1) == list(range(-1, count))
    assert clock.count <= 5 * count
    bus.close(1)


async def test_a_woken_publisher_that_is_cancelled_passes_its_wake_up_on(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    await async_bus.publish("c", 0)
    first = asyncio.ensure_future(async_bus.publish("c", 1))
    second = asyncio.ensure_future(async_bus.publish("c", 2))
    await until_blocked(async_bus, 2)
    assert async_bus.pop("c") is not None  # Wakes the first one, which does not get to run.
    first.cancel()
    await asyncio.wait_for(second, GUARD_S)
    assert first.cancelled()
    message = async_bus.pop("c")
    assert message is not None
    assert message.body == 2
    assert blocked_count(async_bus) == 0


def test_two_places_that_come_at_once_are_both_used(sync_bus: SyncMessageBus) -> None:
    # The first publisher is woken, and wakes the second one.
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    sync_bus.publish_many("c", [1, 2])
    publishers = start_in_order(sync_bus, 2, lambda number: sync_bus.publish("c", number))
    sync_bus.create_channel("c", max_queue_size=4, drop_policy="block", update=True)
    for publisher in publishers:
        publisher.join()
    assert sync_bus.queue_size("c") == 4


async def test_a_new_publisher_waits_behind_those_that_wait(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    await async_bus.publish("c", 0)
    first = asyncio.ensure_future(async_bus.publish("c", 1))
    await until_blocked(async_bus, 1)
    assert async_bus.pop("c") is not None
    second = asyncio.ensure_future(async_bus.publish("c", 2))  # There is a place, and it is the first one's.
    await asyncio.wait_for(first, GUARD_S)
    assert [message.body for message in [async_bus.pop("c")] if message] == [1]
    await asyncio.wait_for(second, GUARD_S)


def test_a_handler_does_not_wait_behind_others(sync_bus: SyncMessageBus) -> None:
    # The first publisher waits for two places. The handler that makes them publishes one message itself.
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    gate, done = Gate(), threading.Event()
    got: list[object] = []

    def handler(message: Message) -> None:
        got.append(message.body)
        if message.body == 1:
            gate(message)
            sync_bus.publish("c", "from the handler")
        if len(got) == 5:
            done.set()

    sync_bus.subscribe("c", handler)
    sync_bus.publish("c", 1)
    gate.wait_entered()
    sync_bus.publish("c", 2)
    (publisher,) = start_in_order(sync_bus, 1, lambda number: sync_bus.publish_many("c", [3, 4]))
    gate.open()
    publisher.join()
    assert done.wait(GUARD_S)
    assert got == [1, 2, "from the handler", 3, 4]


def test_publishers_for_other_groups_are_not_held_up_by_the_first(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    slow, quick = Gate(), Gate()
    sync_bus.subscribe("c", slow, group="slow", filter=lambda message: message.body == "slow")
    sync_bus.subscribe("c", quick, group="quick", filter=lambda message: message.body == "quick")
    for gate, body in ((slow, "slow"), (quick, "quick")):
        sync_bus.publish("c", body)
        gate.wait_entered()
        sync_bus.publish("c", body)
    bodies = ["slow", "slow", "quick"]
    publishers = start_in_order(sync_bus, 3, lambda number: sync_bus.publish("c", bodies[number]))
    quick.open()
    publishers[2].join()
    assert publishers[0].is_waiting
    assert publishers[1].is_waiting
    slow.open()
    for publisher in publishers:
        publisher.join()


@pytest.fixture
def still_bus() -> Iterator[SyncMessageBus]:
    """Its timers do not fire: a place is found only where the side that frees it grants it."""
    bus = SyncMessageBus(clock=HandClock().clock(HandTimers()))
    yield bus
    bus.close(0.2)


class BusyLoop:
    """An event loop in a thread of its own that the test can keep busy."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._go_on = threading.Event()

    def keep_busy(self) -> None:
        entered = threading.Event()

        def block() -> None:
            entered.set()
            assert self._go_on.wait(GUARD_S)

        self.loop.call_soon_threadsafe(block)
        assert entered.wait(GUARD_S)

    def go_on(self) -> None:
        self._go_on.set()

    def end(self) -> None:
        self.go_on()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(GUARD_S)
        self.loop.close()


@pytest.fixture
def busy_loop() -> Iterator[BusyLoop]:
    busy = BusyLoop()
    yield busy
    busy.end()


@pytest.fixture
def full_bus() -> Iterator[MessageBus]:
    """Its channel has two places, and both are taken."""
    bus = MessageBus()
    bus.create_channel("c", max_queue_size=2, drop_policy="block")
    bus.publish_from_sync("c", 0)
    bus.publish_from_sync("c", 1)
    yield bus
    asyncio.run(bus.close(0.2))


def block_a_task(bus: MessageBus, busy: BusyLoop) -> "Future[Message]":
    """Up to here: a task on the loop waits for a place, and the loop is busy."""

    async def publish() -> Message:
        return await bus.publish("c", "task")

    task = asyncio.run_coroutine_threadsafe(publish(), busy.loop)
    for _ in range(int(GUARD_S * 1_000)):
        if blocked_count(bus) == 1:
            break
        threading.Event().wait(0.001)
    busy.keep_busy()
    return task


def block_a_thread(bus: MessageBus) -> Publisher:
    publisher = Publisher(lambda: bus.publish_from_sync("c", "thread"))
    for _ in range(int(GUARD_S * 1_000)):
        if blocked_count(bus) == 2:
            break
        threading.Event().wait(0.001)
    return publisher


def popped(bus: MessageBus) -> object:
    message = bus.pop("c")
    assert message is not None
    return message.body


def test_a_task_on_a_busy_loop_keeps_one_place_and_no_other(full_bus: MessageBus, busy_loop: BusyLoop) -> None:
    task = block_a_task(full_bus, busy_loop)
    thread = block_a_thread(full_bus)
    assert [popped(full_bus), popped(full_bus)] == [0, 1]
    thread.join()
    assert thread.error is None
    assert not task.done()
    assert full_bus.queue_size("c") == 1
    busy_loop.go_on()
    assert task.result(GUARD_S).body == "task"
    assert [popped(full_bus), popped(full_bus)] == ["thread", "task"]


def test_the_first_free_place_is_kept_for_a_task_on_a_busy_loop(full_bus: MessageBus, busy_loop: BusyLoop) -> None:
    task = block_a_task(full_bus, busy_loop)
    thread = block_a_thread(full_bus)
    assert popped(full_bus) == 0
    busy_loop.go_on()
    assert task.result(GUARD_S).body == "task"
    assert [popped(full_bus), popped(full_bus)] == [1, "task"]
    thread.join()
    assert popped(full_bus) == "thread"


def test_a_task_on_a_busy_loop_holds_up_no_publisher_for_other_groups(
    full_bus: MessageBus, busy_loop: BusyLoop
) -> None:
    gates = {"task": Gate(), "thread": Gate()}
    assert [popped(full_bus), popped(full_bus)] == [0, 1]
    for name, gate in gates.items():
        full_bus.subscribe("c", gate, group=name, filter=lambda message, name=name: message.body == name)  # type: ignore[misc]
        for count in range(3):  # One at work, two that wait.
            full_bus.publish_from_sync("c", name)
            if count == 0:
                gate.wait_entered()
    task = block_a_task(full_bus, busy_loop)
    thread = block_a_thread(full_bus)
    gates["task"].open()
    gates["thread"].open()
    thread.join()
    assert thread.error is None
    assert not task.done()
    busy_loop.go_on()
    assert task.result(GUARD_S).body == "task"


def test_a_publisher_that_runs_an_inline_handler_holds_up_no_other(sync_bus: SyncMessageBus) -> None:
    # It was admitted before the handler began, so it does not wait for a place any more.
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    slow, inline = Gate(), Gate()
    sync_bus.subscribe("c", slow)
    sync_bus.subscribe("c", lambda message: inline(message) if message.body == "first" else None, dispatch="inline")
    sync_bus.publish("c", 0)
    slow.wait_entered()
    sync_bus.publish_many("c", [1, 2])
    first, second = start_in_order(sync_bus, 2, lambda number: sync_bus.publish("c", ["first", "second"][number]))
    slow.open()
    inline.wait_entered()
    second.join()
    assert first.is_waiting
    inline.open()
    first.join()


def test_a_stopped_loop_with_a_waiting_task_holds_up_no_thread(sync_bus: SyncMessageBus) -> None:
    loop = asyncio.new_event_loop()
    bus = MessageBus()
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish_from_sync("c", 0)

    async def start() -> "asyncio.Task[Message]":
        task = asyncio.ensure_future(bus.publish("c", "never runs"))
        await until_blocked(bus, 1)
        return task

    task = loop.run_until_complete(start())
    try:
        publisher = Publisher(lambda: bus.publish_from_sync("c", 1))
        assert within(lambda: bus.pop("c")) is not None
        publisher.join()
        assert bus.queue_size("c") == 1
    finally:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(bus.close(1))
        loop.close()


async def test_expired_messages_make_room_for_the_first_that_waits() -> None:
    clock = Attempts()
    wall = [1_700_000_000 * 10**9]
    clock.wall_ns = lambda: wall[0]
    bus = MessageBus(clock=clock)
    async with bus:
        bus.create_channel("c", max_queue_size=1, drop_policy="block")
        await bus.publish("c", "old", ttl=1)
        first = asyncio.ensure_future(bus.publish("c", 1))
        await until_blocked(bus, 1)
        wall[0] += 2 * 10**9
        second = asyncio.ensure_future(bus.publish("c", 2))
        await asyncio.wait_for(first, GUARD_S)
        second.cancel()
        message = bus.pop("c")
        assert message is not None
        assert message.body == 1


def test_the_end_of_a_full_group_of_a_pattern_frees_a_publisher(still_bus: SyncMessageBus) -> None:
    still_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    slow, quick = Gate(), Collector()
    subscription = still_bus.subscribe("*", slow)
    still_bus.subscribe("c", quick)
    still_bus.publish("c", 1)
    slow.wait_entered()
    quick.wait(1)
    still_bus.publish("c", 2)
    quick.wait(2)
    # Two: the first one has tried in vain when the second one waits.
    publishers = start_in_order(still_bus, 2, lambda number: still_bus.publish("c", 3 + number))
    subscription.cancel()
    try:
        for publisher in publishers:
            publisher.join()
        assert quick.wait(4) == [1, 2, 3, 4]
    finally:
        slow.open()


def test_one_that_found_no_place_while_its_loop_was_thought_to_be_stopped_waits_on() -> None:
    # Its loop began to run between the wake-up and the note that it does not run.
    waiter, places = Waiter(runs=False), Places(1)
    blocked = queue_of(places, waiter)
    blocked.grant()
    waiter.runs = True
    places.free = 0  # A handler took the place.
    blocked.wait_again(waiter)
    places.free = 1
    blocked.grant()
    assert waiter.wake_ups == 2
    assert blocked.has_place(waiter)


@pytest.mark.parametrize("change", [{"max_queue_size": 2}, {"max_queue_size": 4, "drop_policy": "drop_new"}])
def test_new_settings_refuse_a_publisher_that_they_leave_no_place(
    still_bus: SyncMessageBus, change: dict[str, Any]
) -> None:
    still_bus.create_channel("c", max_queue_size=4, drop_policy="block")
    still_bus.publish_many("c", [1, 2])
    (publisher,) = start_in_order(still_bus, 1, lambda number: still_bus.publish_many("c", [3, 4, 5]))
    still_bus.create_channel("c", update=True, **{"drop_policy": "block", **change})
    publisher.join()
    assert isinstance(publisher.error, QueueFull)
    assert blocked_count(still_bus) == 0


async def test_new_settings_refuse_a_task_that_they_leave_no_place(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=4, drop_policy="block")
    await async_bus.publish_many("c", [1, 2])
    many = asyncio.ensure_future(async_bus.publish_many("c", [3, 4, 5]))
    await until_blocked(async_bus, 1)
    one = asyncio.ensure_future(async_bus.publish("c", 6))
    await until_blocked(async_bus, 2)
    async_bus.create_channel("c", max_queue_size=2, drop_policy="block", update=True)
    with pytest.raises(QueueFull):
        await asyncio.wait_for(many, GUARD_S)
    assert async_bus.pop("c") is not None
    await asyncio.wait_for(one, GUARD_S)  # What can never be admitted holds up no other.


def test_a_handler_that_waits_for_a_place_ends_with_the_bus() -> None:
    bus = SyncMessageBus()
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish("c", 1)
    errors: list[BaseException] = []

    def handler(message: Message) -> None:
        try:
            bus.publish("c", 2)
        except BusError as error:
            errors.append(error)
            raise

    bus.subscribe("in", handler, 0)
    before = bus_threads()
    bus.publish("in", 1)
    for _ in range(int(GUARD_S * 1_000)):
        if blocked_count(bus) == 1:
            break
        threading.Event().wait(0.001)
    within(lambda: bus.close(0.05))
    assert_all_end(bus_threads() - before)
    assert [type(error) for error in errors] == [BusClosed]


def blocked_beside_a_stopped_loop(
    bus: MessageBus, loop: asyncio.AbstractEventLoop
) -> "tuple[asyncio.Task[Message], Publisher]":
    """A task was granted the only place, and its loop stopped before it ran. A thread waits behind it."""

    async def start() -> "tuple[asyncio.Task[Message], Publisher]":
        task = asyncio.ensure_future(bus.publish("c", "task"))
        await until_blocked(bus, 1)
        publisher = Publisher(lambda: bus.publish_from_sync("c", "thread"))
        await until_blocked(bus, 2)
        assert bus.pop("c") is not None
        return task, publisher

    return loop.run_until_complete(start())


def test_a_loop_that_stops_with_a_granted_place_holds_up_no_thread() -> None:
    timers = HandTimers()
    loop, bus = asyncio.new_event_loop(), MessageBus(clock=HandClock().clock(timers))
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish_from_sync("c", 0)
    task, publisher = blocked_beside_a_stopped_loop(bus, loop)
    try:
        timers.fire()
        publisher.join()
        assert popped(bus) == "thread"
    finally:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(bus.close(1))
        loop.close()


def test_messages_that_expire_free_a_publisher_that_waits_already() -> None:
    timers, clock = HandTimers(), HandClock()
    bus = SyncMessageBus(clock=clock.clock(timers))
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish("c", "old", ttl=1)
    (publisher,) = start_in_order(bus, 1, lambda number: bus.publish("c", "new"))
    timers.fire()
    assert publisher.is_waiting
    clock.advance(2)
    timers.fire_until(lambda: not publisher.is_waiting)
    message = bus.pop("c")
    assert message is not None
    assert message.body == "new"
    bus.close(1)


def test_a_channel_is_looked_at_again_only_while_publishers_wait() -> None:
    timers = HandTimers()
    bus = SyncMessageBus(clock=HandClock().clock(timers))
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish("c", 0)
    publishers = start_in_order(bus, 3, lambda number: bus.publish("c", number))
    assert len(timers.delays_ns) == 1
    timers.fire()
    assert len(timers.delays_ns) == 2
    got = Collector()
    bus.subscribe("c", got)
    for publisher in publishers:
        publisher.join()
    timers.fire()
    assert len(timers.delays_ns) == 2
    bus.close(1)


def test_messages_that_expire_in_a_group_of_a_pattern_free_publishers_of_its_other_channels() -> None:
    clock, entered, opened = HandClock(), threading.Event(), threading.Event()

    def slow(message: Message) -> None:
        entered.set()
        opened.wait(2 * GUARD_S)

    bus = SyncMessageBus(clock=clock.clock(HandTimers()))
    for name in ("c", "d"):
        bus.create_channel(name, max_queue_size=3, drop_policy="block")
    bus.subscribe("*", slow)
    bus.publish("d", "at work")
    assert entered.wait(GUARD_S)
    bus.publish_many("d", ["old"] * 3, ttl=1)
    # Two: the first one has tried in vain when the second one waits.
    publishers = start_in_order(bus, 2, lambda number: bus.publish("c", number))
    clock.advance(2)
    try:
        bus.publish("d", "new")  # Finds that they have expired.
        for publisher in publishers:
            publisher.join()
    finally:
        opened.set()
        bus.close(1)
