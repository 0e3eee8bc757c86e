"""Retries: how often, how long, in which place, and never acknowledged before success."""

import asyncio

import pytest

from tests.unit.bus.probes import GUARD_S, SECOND, Collector, Flaky, Gate, HandTimers
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message


@pytest.mark.parametrize("dispatch", ["pool", "inline"])
def test_three_retries_are_four_deliveries_with_their_counts(sync_bus: SyncMessageBus, dispatch: str) -> None:
    # The count of deliveries is preserved.
    handler = Flaky(failures=100)
    sync_bus.subscribe("c", handler, retry_attempts=3, retry_delay=0, dispatch=dispatch)
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    assert handler.seen == [("x", 1), ("x", 2), ("x", 3), ("x", 4)]
    (letter,) = sync_bus.dead_letters("c")
    assert letter.headers["DeadLetterAttempts"] == 4


def test_a_success_after_failures_ends_the_retries(sync_bus: SyncMessageBus) -> None:
    handler = Flaky(failures=2)
    sync_bus.subscribe("c", handler, retry_delay=0)
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    assert [count for _, count in handler.seen] == [1, 2, 3]
    channel = sync_bus.snapshot("c").channels[0]
    assert (channel.errors, channel.retried, channel.dispatched, channel.dead_lettered) == (2, 2, 1, 0)


def test_no_retries_when_told_so(sync_bus: SyncMessageBus) -> None:
    handler = Flaky(failures=1)
    sync_bus.subscribe("c", handler, retry_attempts=0)
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    assert len(handler.seen) == 1
    assert len(sync_bus.dead_letters("c")) == 1


def test_delays_double_by_default_within_the_jitter(retry_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    retry_bus.subscribe("c", Flaky(failures=100), retry_attempts=4, retry_delay=1)
    retry_bus.publish("c")
    for _ in range(4):
        hand_timers.wait(1)
        hand_timers.fire()
    assert retry_bus.drain(10)
    assert len(hand_timers.delays_ns) == 4
    for delay_ns, base_s in zip(hand_timers.delays_ns, [1, 2, 4, 8], strict=True):
        assert 0.9 * base_s * SECOND <= delay_ns <= 1.1 * base_s * SECOND


def test_backoff_one_without_jitter_is_the_fixed_delay(retry_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    retry_bus.subscribe("c", Flaky(failures=100), 3, 0.1, retry_backoff=1.0, retry_jitter=0.0)
    retry_bus.publish("c")
    for _ in range(3):
        hand_timers.wait(1)
        hand_timers.fire()
    assert retry_bus.drain(10)
    assert hand_timers.delays_ns == [SECOND // 10] * 3


def test_a_message_that_waits_for_its_retry_holds_up_nobody(retry_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    handler = Flaky(failures=1)
    retry_bus.subscribe("c", handler, retry_delay=1)
    retry_bus.publish("c", "first")
    hand_timers.wait(1)
    retry_bus.publish("c", "second")
    assert not retry_bus.drain(0.01)  # The first is still on its way.
    assert [body for body, _ in handler.seen] == ["first", "second"]
    hand_timers.fire()
    assert retry_bus.drain(10)
    assert handler.seen == [("first", 1), ("second", 1), ("first", 2)]


@pytest.mark.parametrize(("requeue", "expected"), [("front", ["b", "c"]), ("back", ["c", "b"])])
def test_a_retried_message_keeps_its_place_or_goes_to_the_end(
    retry_bus: SyncMessageBus, hand_timers: HandTimers, requeue: str, expected: list[str]
) -> None:
    # "a" blocks the only slot, "b" failed before and is older than "c".
    gate, order = Gate(), Collector()
    left = ["b"]

    def handler(message: Message) -> None:
        if message.body == "a":
            gate(message)
        elif message.body in left:
            left.remove(str(message.body))
            raise ValueError("once")
        else:
            order(message)

    retry_bus.subscribe("c", handler, retry_delay=1, requeue=requeue)
    retry_bus.publish("c", "b")
    hand_timers.wait(1)
    retry_bus.publish("c", "a")
    gate.wait_entered()
    retry_bus.publish("c", "c")
    hand_timers.fire()
    gate.open()
    assert order.wait(2) == expected


def test_a_retry_concerns_its_own_group_only(sync_bus: SyncMessageBus) -> None:
    flaky, steady = Flaky(failures=2), Flaky(failures=0)
    sync_bus.subscribe("c", flaky, retry_delay=0)
    sync_bus.subscribe("c", steady, retry_delay=0)
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    assert flaky.seen == [("x", 1), ("x", 2), ("x", 3)]
    assert steady.seen == [("x", 1)]


def test_a_retry_due_after_its_subscriber_left_goes_back_to_the_created_channel(
    retry_bus: SyncMessageBus, hand_timers: HandTimers
) -> None:
    # Nothing is acknowledged that was not handled.
    retry_bus.create_channel("c")
    subscription = retry_bus.subscribe("c", Flaky(failures=1), retry_delay=1)
    retry_bus.publish("c", "x")
    hand_timers.wait(1)
    subscription.cancel()  # type: ignore[attr-defined]
    hand_timers.fire()
    assert retry_bus.queue_size("c") == 1
    got = Collector()
    retry_bus.subscribe("c", got)
    assert got.wait(1) == ["x"]


class Blocked:
    """An async handler that blocks at its first call and returns at all others."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.again = asyncio.Event()
        self.calls: list[object] = []

    async def __call__(self, message: Message) -> None:
        self.calls.append(message.body)
        if len(self.calls) > 1:
            self.again.set()
            return
        self.entered.set()
        await asyncio.Event().wait()


def slots() -> list["asyncio.Task[object]"]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("unibus-slot")]


async def test_cancelling_a_worker_in_mid_handler_redelivers(async_bus: MessageBus) -> None:
    # Acknowledging in `finally` would lose it. No further publish is needed to bring it back.
    handler = Blocked()
    async_bus.subscribe("c", handler)
    await async_bus.publish("c", "x")
    await asyncio.wait_for(handler.entered.wait(), GUARD_S)
    (slot,) = slots()
    slot.cancel()
    await asyncio.wait_for(handler.again.wait(), GUARD_S)
    assert handler.calls == ["x", "x"]
    assert await async_bus.drain(GUARD_S)
    assert async_bus.metrics()["dispatched"] == 1


async def test_cancelling_a_worker_loses_nothing_even_if_only_the_next_publish_shows_it(async_bus: MessageBus) -> None:
    handler = Blocked()
    async_bus.subscribe("c", handler)
    await async_bus.publish("c", "x")
    await asyncio.wait_for(handler.entered.wait(), GUARD_S)
    (slot,) = slots()
    slot.cancel()
    await asyncio.gather(slot, return_exceptions=True)
    await async_bus.publish("c", "y")
    await asyncio.wait_for(handler.again.wait(), GUARD_S)
    assert await async_bus.drain(GUARD_S)
    assert handler.calls == ["x", "x", "y"]


async def test_a_cancelled_members_message_goes_to_another_member(async_bus: MessageBus) -> None:
    blocked = Blocked()
    member = async_bus.subscribe("c", blocked, group="g")
    await async_bus.publish("c", "x")
    await asyncio.wait_for(blocked.entered.wait(), GUARD_S)
    other = Blocked()
    other.calls.append("already")
    async_bus.subscribe("c", other, group="g")
    await member.cancel()  # type: ignore[attr-defined]
    await asyncio.wait_for(other.again.wait(), GUARD_S)
    assert other.calls == ["already", "x"]


async def test_a_cancelled_subscription_gives_its_message_back_in_its_place(async_bus: MessageBus) -> None:
    # The one that was being handled is the oldest.
    async_bus.create_channel("c")
    handler = Blocked()
    subscription = async_bus.subscribe("c", handler)
    for body in ("first", "second", "third"):
        await async_bus.publish("c", body)
    await asyncio.wait_for(handler.entered.wait(), GUARD_S)
    await subscription.cancel()  # type: ignore[attr-defined]
    popped = [async_bus.pop("c") for _ in range(3)]
    assert [message.body for message in popped if message is not None] == ["first", "second", "third"]


async def test_a_handler_that_raises_cancelled_itself_has_failed(async_bus: MessageBus) -> None:
    # Its own doing, not ours: it counts, and is retried.
    calls: list[int] = []

    async def handler(message: Message) -> None:
        calls.append(message.delivery_count)
        if len(calls) < 3:
            raise asyncio.CancelledError

    async_bus.subscribe("c", handler, retry_delay=0)
    await async_bus.publish("c", "x")
    assert await async_bus.drain(GUARD_S)
    assert calls == [1, 2, 3]
    assert async_bus.metrics()["errors"] == 2
    await async_bus.publish("c", "y")
    assert await async_bus.drain(GUARD_S)
    assert len(calls) == 4


async def test_a_cancelled_task_of_the_handlers_own_is_a_failure_like_any_other(async_bus: MessageBus) -> None:
    async def cancelled_inside(message: Message) -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    async_bus.subscribe("c", cancelled_inside, retry_attempts=1, retry_delay=0)
    await async_bus.publish("c", "x")
    assert await async_bus.drain(GUARD_S)
    (letter,) = async_bus.dead_letters("c")
    assert letter.headers["DeadLetterErrorType"] == "CancelledError"


def test_system_exit_in_a_sync_handler_does_not_end_the_worker(sync_bus: SyncMessageBus) -> None:
    bus = SyncMessageBus(worker_count=1)
    handler = Flaky(failures=1, error=SystemExit(3))
    other = Collector()
    bus.subscribe("c", handler, retry_delay=0)
    bus.subscribe("c", other)
    for number in range(3):
        bus.publish("c", number)
    assert other.wait(3) == [0, 1, 2]
    assert bus.drain(10)
    assert handler.seen == [(0, 1), (0, 2), (1, 1), (2, 1)]
    bus.close(10)


def test_system_exit_in_an_async_handler_on_our_own_loop_does_not_end_the_loop() -> None:
    # A failing subscriber never hurts another.
    with SyncMessageBus() as bus:
        calls: list[object] = []

        async def exiting(message: Message) -> None:
            calls.append(message.body)
            raise SystemExit(3)

        got = Collector()

        async def healthy(message: Message) -> None:
            got(message)

        bus.subscribe("c", exiting, retry_attempts=0)
        bus.subscribe("c", healthy)
        bus.publish("c", 1)
        got.wait(1)
        bus.publish("c", 2)
        assert got.wait(2) == [1, 2]
