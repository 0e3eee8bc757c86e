"""The policy `block`: publishers wait until the channel has a free place, and whatever frees one wakes them."""

import asyncio
import gc
import threading

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, Publisher, within
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import BusClosed, PublishError, QueueFull


def waiting_publisher(bus: SyncMessageBus, body: object = "waiting") -> Publisher:
    """Started on a full channel. It registers for a wake-up before it waits, so a place freed at any time counts."""
    return Publisher(lambda: bus.publish("c", body))


def test_a_publisher_waits_until_a_handler_takes_one(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    gate = Gate()
    sync_bus.subscribe("c", gate)
    sync_bus.publish("c", 1)
    gate.wait_entered()
    sync_bus.publish("c", 2)
    publisher = waiting_publisher(sync_bus, 3)
    assert sync_bus.queue_size("c") == 1
    assert publisher.is_waiting
    gate.open()
    publisher.join()
    assert publisher.error is None
    assert sync_bus.drain(10)
    assert [message.body for message in gate.messages] == [1, 2, 3]


def test_a_publisher_waits_until_one_is_popped_by_hand(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    sync_bus.publish("c", 1)
    publisher = waiting_publisher(sync_bus)
    assert sync_bus.pop("c") is not None
    publisher.join()
    assert sync_bus.queue_size("c") == 1


def test_a_first_subscriber_frees_a_waiting_publisher(sync_bus: SyncMessageBus) -> None:
    # What was kept moves to the subscriber's queue and is handled there: that frees a place too.
    for _ in range(20):
        bus = SyncMessageBus()
        bus.create_channel("c", max_queue_size=1, drop_policy="block")
        bus.publish("c", 1)
        publisher = waiting_publisher(bus)
        got = Collector()
        bus.subscribe("c", got)
        publisher.join()
        assert got.wait(2) == [1, "waiting"]
        bus.close(1)


def test_cancelling_the_full_group_frees_a_waiting_publisher(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    slow, quick = Gate(), Collector()
    subscription = sync_bus.subscribe("c", slow)
    sync_bus.subscribe("c", quick)
    sync_bus.publish("c", 1)
    slow.wait_entered()
    quick.wait(1)
    sync_bus.publish("c", 2)
    quick.wait(2)
    publisher = waiting_publisher(sync_bus, 3)
    subscription.cancel()  # type: ignore[attr-defined]
    try:
        publisher.join()
        assert quick.wait(3) == [1, 2, 3]
    finally:
        slow.open()


def test_a_larger_bound_frees_a_waiting_publisher(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    sync_bus.publish("c", 1)
    publisher = waiting_publisher(sync_bus)
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block", update=True)
    publisher.join()
    assert sync_bus.queue_size("c") == 2


def test_closing_the_bus_frees_a_waiting_publisher_with_an_error() -> None:
    # An error, because the message will never be delivered.
    bus = SyncMessageBus()
    bus.create_channel("c", max_queue_size=1, drop_policy="block")
    bus.publish("c", 1)
    publisher = waiting_publisher(bus)
    within(lambda: bus.close(0.05))
    publisher.join()
    assert isinstance(publisher.error, (BusClosed, PublishError))


def test_a_time_out_is_queue_full_and_leaves_no_trace(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block", block_timeout=0.01)
    sync_bus.publish("c", 1)
    with pytest.raises(QueueFull) as caught:
        sync_bus.publish("c", 2)
    assert caught.value.item.body == 2  # type: ignore[attr-defined]
    assert sync_bus.queue_size("c") == 1
    assert sync_bus.snapshot("c").channels[0].outcomes["queue_full"] == 1
    assert sync_bus.pop("c") is not None
    assert sync_bus.pop("c") is None


def test_many_that_can_never_fit_are_refused_at_once(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    with pytest.raises(QueueFull):
        within(lambda: sync_bus.publish_many("c", [1, 2, 3]))
    assert sync_bus.queue_size("c") == 0


def test_many_wait_for_room_for_all(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    sync_bus.publish("c", 0)
    publisher = Publisher(lambda: sync_bus.publish_many("c", [1, 2]))
    assert sync_bus.pop("c") is not None
    publisher.join()
    assert [message.body for message in (sync_bus.pop("c"), sync_bus.pop("c")) if message] == [1, 2]


def test_many_wait_for_room_beside_a_filter_and_arrive_once(sync_bus: SyncMessageBus) -> None:
    # Exactly once, also when the first try found free places for a part of them.
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    gate = Gate()
    sync_bus.subscribe("c", gate, filter=lambda message: True)
    sync_bus.publish("c", 0)
    gate.wait_entered()
    sync_bus.publish("c", 1)
    publisher = Publisher(lambda: sync_bus.publish_many("c", [2, 3]))
    gate.open()
    publisher.join()
    assert sync_bus.drain(10)
    assert [message.body for message in gate.messages] == [0, 1, 2, 3]


def test_many_blocked_publishers_all_get_through_exactly_once(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="block")
    got = Collector()
    sync_bus.subscribe("c", got)
    publishers = [
        Publisher(lambda start=start: [sync_bus.publish("c", start + number) for number in range(100)])  # type: ignore[misc]
        for start in range(0, 800, 100)
    ]
    for publisher in publishers:
        publisher.join()
        assert publisher.error is None
    assert sync_bus.drain(10)
    assert sorted(got.bodies, key=int) == list(range(800))  # type: ignore[arg-type]
    outcomes = sync_bus.snapshot("c").channels[0].outcomes
    assert outcomes["accepted"] == sum(outcomes.values()) == 800


def test_waiting_leaves_nothing_behind(sync_bus: SyncMessageBus) -> None:
    # A publisher that was woken, or gave up, must not be kept for ever.
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block", block_timeout=0.0001)
    sync_bus.publish("c", 1)
    gc.collect()
    before = sum(isinstance(each, threading.Condition) for each in gc.get_objects())
    for _ in range(50):
        with pytest.raises(QueueFull):
            sync_bus.publish("c", 2)
    sync_bus.pop("c")
    sync_bus.subscribe("c", Collector())
    sync_bus.create_channel("c", max_queue_size=1, drop_policy="block", block_timeout=GUARD_S, update=True)
    for number in range(200):
        sync_bus.publish("c", number)
    assert sync_bus.drain(10)
    gc.collect()
    after = sum(isinstance(each, threading.Condition) for each in gc.get_objects())
    assert after - before < 20


async def test_an_async_publisher_waits_without_blocking_its_loop(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    await async_bus.publish("c", 1)
    waiting = asyncio.ensure_future(async_bus.publish("c", 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert async_bus.pop("c") is not None
    message = await asyncio.wait_for(waiting, GUARD_S)
    assert message.sequence == 2


async def test_async_time_out(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block", block_timeout=0.01)
    await async_bus.publish("c", 1)
    with pytest.raises(QueueFull):
        await async_bus.publish("c", 2)
    with pytest.raises(QueueFull):
        await async_bus.publish_many("c", [2])
    assert async_bus.queue_size("c") == 1


async def test_an_async_publisher_that_is_cancelled_publishes_nothing(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    await async_bus.publish("c", 1)
    waiting = asyncio.ensure_future(async_bus.publish("c", 2))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert async_bus.pop("c") is not None
    await asyncio.sleep(0)
    assert async_bus.queue_size("c") == 0


async def test_an_async_handler_makes_room(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    got: list[object] = []

    async def handler(message: object) -> None:
        await asyncio.sleep(0)
        got.append(message)

    async_bus.subscribe("c", handler)
    for number in range(50):
        await asyncio.wait_for(async_bus.publish("c", number), GUARD_S)
    assert await async_bus.drain(GUARD_S)
    assert len(got) == 50


async def test_publish_from_sync_never_blocks_the_loops_own_thread(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    async_bus.publish_from_sync("c", 1)
    with pytest.raises(QueueFull):
        async_bus.publish_from_sync("c", 2)
    blocked = asyncio.create_task(asyncio.to_thread(async_bus.publish_from_sync, "c", 3))
    await asyncio.sleep(0)
    assert async_bus.pop("c") is not None
    message = await asyncio.wait_for(blocked, GUARD_S)
    assert message.body == 3


def test_a_blocked_handler_that_publishes_does_not_stop_the_one_that_would_free_it() -> None:
    # One worker: the producer waits for a consumer that needs a worker of its own.
    bus = SyncMessageBus(worker_count=1)
    bus.create_channel("out", max_queue_size=1, drop_policy="block")
    got = Collector()

    def producer(message: object) -> None:
        for number in range(5):
            bus.publish("out", number)

    bus.subscribe("out", got)
    bus.subscribe("in", producer)
    bus.publish("in")
    assert got.wait(5) == [0, 1, 2, 3, 4]
    bus.close(1)


def test_a_subscriber_and_a_waiting_publisher_do_not_hold_each_other_up(sync_bus: SyncMessageBus) -> None:
    # A blocked publisher must hold no lock that the code that frees a place needs.
    for number in range(50):
        name = f"c{number}"
        sync_bus.create_channel(name, max_queue_size=1, drop_policy="block")
        sync_bus.publish(name, 0)
        publisher = Publisher(lambda name=name: [sync_bus.publish(name, step) for step in range(1, 20)])  # type: ignore[misc]
        got = Collector()
        sync_bus.subscribe(name, got)
        publisher.join()
        assert got.wait(20) == list(range(20))
