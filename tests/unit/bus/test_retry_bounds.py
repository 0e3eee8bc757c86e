"""A message that waits for its retry has a place in the bound, until it is delivered again."""

import asyncio
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S, Flaky, HandClock, HandTimers, Publisher, TimersClock
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import QueueFull


class Failing:
    """Fails until the test lets it succeed."""

    def __init__(self) -> None:
        self.fails = True
        self.handled: list[object] = []

    def __call__(self, message: Message) -> None:
        if self.fails:
            raise ValueError("not yet")
        self.handled.append(message.body)


@pytest.mark.parametrize("dispatch", ["pool", "inline"])
@pytest.mark.parametrize("policy", ["drop_new", "drop_old"])
def test_messages_that_wait_for_a_retry_count(
    retry_bus: SyncMessageBus, hand_timers: HandTimers, dispatch: Any, policy: str
) -> None:
    retry_bus.create_channel("c", max_queue_size=3, drop_policy=policy)
    retry_bus.subscribe("c", Failing(), retry_attempts=5, retry_delay=30, dispatch=dispatch)
    for number in range(3):
        retry_bus.publish("c", number)
        hand_timers.wait(number + 1)
    assert retry_bus.queue_size("c") == 3
    with pytest.raises(QueueFull):
        retry_bus.publish("c", 3)
    with pytest.raises(QueueFull):
        retry_bus.publish_many("c", [3])
    assert retry_bus.queue_size("c") == 3


def test_the_place_is_free_when_the_message_was_handled(retry_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    retry_bus.create_channel("c", max_queue_size=1)
    handler = Failing()
    retry_bus.subscribe("c", handler, retry_attempts=5, retry_delay=30)
    for _ in range(2):  # Twice: nothing is left of the first one in the count.
        handler.fails = True
        retry_bus.publish("c", 1)
        hand_timers.wait(1)
        hand_timers.fire()
        hand_timers.wait(1)
        assert retry_bus.queue_size("c") == 1
        handler.fails = False
        hand_timers.fire()
        assert retry_bus.drain(GUARD_S)
        assert retry_bus.queue_size("c") == 0
    assert handler.handled == [1, 1]


@pytest.mark.parametrize("dispatch", ["pool", "inline"])
@pytest.mark.parametrize("policy", ["drop_new", "drop_old", "block"])
def test_a_retry_may_publish_to_its_own_full_channel(
    retry_bus: SyncMessageBus, hand_timers: HandTimers, dispatch: Any, policy: str
) -> None:
    """It would wait for its own place, or be refused for it."""
    retry_bus.create_channel("c", max_queue_size=1, drop_policy=policy)
    handled: list[object] = []

    def handler(message: Message) -> None:
        if message.body == "first" and message.delivery_count == 1:
            raise ValueError("not yet")
        if message.body == "first":
            retry_bus.publish("c", "next")
        handled.append(message.body)

    retry_bus.subscribe("c", handler, retry_attempts=5, retry_delay=30, dispatch=dispatch)
    retry_bus.publish("c", "first")
    hand_timers.wait(1)
    hand_timers.fire()
    assert retry_bus.drain(GUARD_S)
    assert sorted(map(str, handled)) == ["first", "next"]
    assert retry_bus.queue_size("c") == 0


def test_the_place_is_free_when_the_message_is_dead(retry_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    retry_bus.create_channel("c", max_queue_size=1, drop_policy="block")
    retry_bus.subscribe("c", Flaky(2), retry_attempts=1, retry_delay=30)
    retry_bus.publish("c", 1)
    hand_timers.wait(1)
    publisher = Publisher(lambda: retry_bus.publish("c", 2))
    hand_timers.fire()
    publisher.join()
    assert publisher.error is None
    assert retry_bus.drain(GUARD_S)
    assert [message.body for message in retry_bus.dead_letters("c")] == [1]
    assert retry_bus.queue_size("c") == 0


def test_the_place_is_free_when_the_message_has_expired(hand_clock: HandClock, hand_timers: HandTimers) -> None:
    bus = SyncMessageBus(clock=hand_clock.clock(hand_timers))
    bus.create_channel("c", max_queue_size=1)
    handler = Failing()
    bus.subscribe("c", handler, retry_attempts=5, retry_delay=30)
    bus.publish("c", 1, ttl=10)
    hand_timers.wait(1)
    hand_clock.advance(30)
    hand_timers.fire()
    assert bus.drain(GUARD_S)
    assert bus.queue_size("c") == 0
    assert bus.snapshot("c").channels[0].expired == 1
    bus.close(1)


async def test_a_blocked_task_is_woken_when_an_async_handler_has_handled_the_retry(hand_timers: HandTimers) -> None:
    handled: list[object] = []

    async def handler(message: Message) -> None:
        if message.delivery_count == 1 and message.body == 1:
            raise ValueError("not yet")
        await asyncio.sleep(0)
        handled.append(message.body)

    async with MessageBus(clock=TimersClock(hand_timers)) as bus:
        bus.create_channel("c", max_queue_size=1, drop_policy="block")
        bus.subscribe("c", handler, retry_attempts=5, retry_delay=30)
        await bus.publish("c", 1)
        await asyncio.to_thread(hand_timers.wait, 1)
        waiting = asyncio.ensure_future(bus.publish("c", 2))
        await asyncio.sleep(0)
        assert not waiting.done()
        hand_timers.fire()
        await asyncio.wait_for(waiting, GUARD_S)
        assert await bus.drain(GUARD_S)
        assert handled == [1, 2]
        assert bus.queue_size("c") == 0


async def test_a_cancelled_redelivery_is_counted_once(hand_timers: HandTimers) -> None:
    entered = asyncio.Event()

    async def handler(message: Message) -> None:
        if message.delivery_count == 1:
            raise ValueError("not yet")
        entered.set()
        await asyncio.Event().wait()

    async with MessageBus(clock=TimersClock(hand_timers)) as bus:
        bus.create_channel("c", max_queue_size=5)
        subscription = bus.subscribe("c", handler, group="g", retry_attempts=5, retry_delay=30)
        await bus.publish("c", 1)
        await asyncio.to_thread(hand_timers.wait, 1)
        hand_timers.fire()
        await asyncio.wait_for(entered.wait(), GUARD_S)
        await subscription.cancel()
        assert bus.queue_size("c") == 1  # The channel keeps it for the next group.
        handled: list[object] = []
        bus.subscribe("c", lambda message: handled.append(message.body), group="g")
        assert await bus.drain(GUARD_S)
        assert handled == [1]
        assert bus.queue_size("c") == 0


def test_a_lossy_subscriber_is_bounded_with_its_retries(retry_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    subscription = retry_bus.subscribe(
        "c", Failing(), retry_attempts=5, retry_delay=30, overflow="drop_oldest", queue_size=2
    )
    for number in range(2):
        retry_bus.publish("c", number)
        hand_timers.wait(number + 1)
    retry_bus.publish("c", 2)
    assert subscription.dropped == 1


def test_drain_and_close_end_with_a_full_channel_of_retries() -> None:
    bus = SyncMessageBus()
    bus.create_channel("c", max_queue_size=2, drop_policy="block")
    handler = Flaky(8)
    bus.subscribe("c", handler, retry_attempts=3, retry_delay=0.001)
    for number in range(6):
        bus.publish("c", number)
    assert bus.drain(GUARD_S)
    assert bus.queue_size("c") == 0
    bus.close(GUARD_S)
