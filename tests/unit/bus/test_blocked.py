"""Many publishers that wait for room: in order, one wake-up for each free place, and no wake-up is lost."""

import asyncio
import threading
from collections.abc import Callable

from tests.unit.bus.probes import GUARD_S, Collector, Gate, Publisher, TimersClock, within
from unibus.bus.blocked import BlockedPublisher, BlockedPublishers
from unibus.bus.message_bus import MessageBus
from unibus.bus.sync_bus import SyncMessageBus
from unibus.core.message import Message


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

    def __init__(self, runs: bool = True) -> None:
        super().__init__()
        self.runs = runs
        self.wake_ups = 0

    def wake(self) -> bool:
        self.wake_ups += 1
        return self.runs

    def can_run(self) -> bool:
        return self.runs


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
    blocked, waiters = BlockedPublishers(), [Waiter() for _ in range(3)]
    for waiter in waiters:
        blocked.add(waiter)
    blocked.wake_first()
    assert [waiter.wake_ups for waiter in waiters] == [1, 0, 0]
    blocked.remove(waiters[0])
    blocked.wake_first()
    assert [waiter.wake_ups for waiter in waiters] == [1, 1, 0]


def test_one_that_may_never_run_holds_up_none() -> None:
    blocked, dead, alive = BlockedPublishers(), Waiter(runs=False), Waiter()
    blocked.add(dead)
    assert not blocked.can_run()
    blocked.add(alive)
    assert blocked.can_run()
    assert blocked.is_first(alive)
    blocked.wake_first()
    assert (dead.wake_ups, alive.wake_ups) == (1, 1)


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
