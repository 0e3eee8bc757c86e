"""Between the store and the handlers of a persistent channel: failures, lost locks, and every way to stop."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Flaky, Gate, HandClock, HandTimers, event_wait, within
from tests.unit.bus.rigs import Rig, breaking_store
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.persistent import channels as durable_channels
from unibus.bus.persistent.pump import SubscriptionPump
from unibus.bus.persistent.pump_handlers import pump_handler
from unibus.core.atomic import COMPILED
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.claiming import Claimed
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.pending import Pending

PLAIN = pytest.mark.skipif(COMPILED, reason="replaces a method, to come between two steps of a thread")
GROUP = "c/Subscriptions/g"
EMPTY = (0, 0, 0, 0, 0)


@pytest.fixture
def channel_rig(rig: Rig) -> Rig:
    rig.create_channel("c", persistent=True)
    return rig


@pytest.fixture
def saved_rig(file_rig: Rig) -> Rig:
    file_rig.create_channel("c", persistent=True)
    return file_rig


@pytest.fixture
def hand_rig(timed_rig: Rig) -> Rig:
    timed_rig.create_channel("c", persistent=True)
    return timed_rig


class AsyncGate:
    """An async handler that says when it was entered and what became of it, and returns when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.bodies: list[object] = []
        self.cancelled = threading.Event()
        self._open = threading.Event()

    async def __call__(self, message: Message) -> None:
        self.bodies.append(message.body)
        self.entered.release()
        try:
            while not self._open.is_set():  # noqa: ASYNC110 - it is opened from a thread
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=GUARD_S), "the handler was not called"

    def open(self) -> None:
        self._open.set()


# Failing


def test_a_failure_is_tried_again_and_then_done(channel_rig: Rig) -> None:
    flaky = Flaky(2)
    channel_rig.subscribe("c", flaky, group="g", retry_attempts=3, retry_delay=0.01)
    channel_rig.publish("c", 1)
    assert channel_rig.drain(GUARD_S)
    assert flaky.seen == [(1, 1), (1, 2), (1, 3)]
    assert channel_rig.counts(GROUP) == EMPTY
    assert channel_rig.bus.metrics("c")["errors"] == 2


def test_a_retry_waits_for_its_delay(hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers) -> None:
    flaky = Flaky(1)
    hand_rig.subscribe("c", flaky, group="g", retry_attempts=3, retry_delay=10, retry_jitter=0)
    hand_rig.publish("c", 1)
    for _ in range(1_000):
        if hand_rig.counts(GROUP)[2] == 1:
            break
        threading.Event().wait(0.005)
    assert hand_rig.drain(0.01) is False  # It is still on its way.
    hand_clock.advance(9)
    hand_timers.fire()
    assert len(flaky.seen) == 1
    hand_clock.advance(1.5)
    hand_timers.fire_until(lambda: len(flaky.seen) == 2)
    assert hand_rig.drain(GUARD_S)
    assert flaky.seen == [(1, 1), (1, 2)]


def test_a_retry_that_never_comes_keeps_nobody_waiting(channel_rig: Rig) -> None:
    # It expires before it is due; the next one is received by another receiver.
    channel_rig.subscribe("c", Flaky(2), group="g", retry_attempts=5, retry_delay=0.05)
    channel_rig.publish("c", 1, ttl=0.04)
    assert channel_rig.drain(GUARD_S)
    channel_rig.publish("c", 2)
    subscription = channel_rig.subscribe("c", Collector(), group="other")
    channel_rig.unsubscribe(subscription)
    assert channel_rig.drain(GUARD_S)
    assert channel_rig.counts(GROUP) == EMPTY


def test_the_last_failure_is_a_dead_letter_that_tells_all(channel_rig: Rig) -> None:
    def broken(message: Message) -> None:
        raise ValueError("never \udc80")

    channel_rig.subscribe("c", broken, group="g", retry_attempts=1, retry_delay=0)
    sent = channel_rig.publish("c", {"a": 1}, headers={"k": "v"})
    assert channel_rig.drain(GUARD_S)
    assert channel_rig.counts(GROUP) == (0, 0, 0, 0, 1)
    letter = channel_rig.one(f"{GROUP}/$DeadLetterQueue")
    assert (letter.body, letter.id, letter.headers["k"]) == ({"a": 1}, sent.id, "v")
    assert letter.headers["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert letter.headers["DeadLetterErrorDescription"].startswith("never")
    assert letter.headers["DeadLetterErrorType"] == "ValueError"
    assert letter.headers["DeadLetterAttempts"] == 2
    assert letter.headers["DeadLetterSource"] == GROUP
    assert letter.headers["DeadLetterGroup"] == "g"
    assert "def broken" in letter.headers["DeadLetterTraceback"] or "in broken" in letter.headers["DeadLetterTraceback"]


def test_a_payload_that_does_not_fit_is_not_tried_again(channel_rig: Rig) -> None:
    calls = []

    def typed(body: int) -> None:
        calls.append(body)

    channel_rig.subscribe("c", typed, group="g", retry_attempts=5, retry_delay=0)
    channel_rig.publish("c", "text")
    assert channel_rig.drain(GUARD_S)
    assert calls == []
    letter = channel_rig.one(f"{GROUP}/$DeadLetterQueue")
    assert (letter.headers["DeadLetterReason"], letter.headers["DeadLetterAttempts"]) == ("PayloadMismatch", 1)


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True], ids=["pool", "loop"])
def test_whatever_a_handler_raises_is_a_failure(channel_rig: Rig, error: type[BaseException], is_async: bool) -> None:
    # An awaited task that was cancelled, a library that calls sys.exit: the message must not be lost on the way.
    def broken(message: Message) -> None:
        raise error

    async def broken_async(message: Message) -> None:
        raise error

    channel_rig.subscribe("c", broken_async if is_async else broken, group="g", retry_attempts=1, retry_delay=0)
    channel_rig.publish("c", 1)
    assert channel_rig.drain(GUARD_S)
    assert channel_rig.counts(GROUP) == (0, 0, 0, 0, 1)
    assert "c/$DeadLetterQueue" not in channel_rig.bus.channels()  # They are in the store, and only there.
    assert [letter.body for letter in channel_rig.bus.dead_letters("c")] == [1]
    assert channel_rig.one(f"{GROUP}/$DeadLetterQueue").headers["DeadLetterErrorType"] == error.__name__


def test_one_groups_failure_is_not_the_others(channel_rig: Rig) -> None:
    got = Collector()
    channel_rig.subscribe("c", got, group="fine")
    channel_rig.subscribe("c", Flaky(9), group="g", retry_attempts=1, retry_delay=0)
    channel_rig.publish("c", 1)
    assert channel_rig.drain(GUARD_S)
    assert got.bodies == [1]
    assert channel_rig.counts("c/Subscriptions/fine") == EMPTY


def test_a_dead_letter_channel_gets_the_letters(rig: Rig) -> None:
    rig.create_channel("dead", persistent=True)
    rig.create_channel("c", persistent=True, dead_letter_channel="dead")
    letters = Collector()
    rig.subscribe("dead", letters, group="undertaker")
    rig.subscribe("c", Flaky(9), group="g", retry_attempts=0)
    rig.publish("c", 1)
    assert letters.wait(1) == [1]
    assert letters.messages[0].headers["DeadLetterSource"] == GROUP
    assert rig.drain(GUARD_S)
    assert rig.counts(GROUP) == EMPTY


def test_a_dead_letter_channel_keeps_the_letters_until_somebody_comes(rig: Rig) -> None:
    rig.create_channel("dead", persistent=True)
    rig.create_channel("c", persistent=True, dead_letter_channel="dead")
    rig.subscribe("c", Flaky(9), group="g", retry_attempts=0)
    rig.publish("c", 1)
    assert rig.drain(GUARD_S)
    if rig.durable:
        rig.reopen()
        rig.create_channel("dead", persistent=True)
    letters = Collector()
    rig.subscribe("dead", letters, group="undertaker")
    assert letters.wait(1) == [1]
    assert letters.messages[0].headers["DeadLetterErrorType"] == "ValueError"


def test_dead_letters_go_to_a_queue_where_the_channel_is_none(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, dead_letter_channel="dead")
    rig.subscribe("c", Flaky(9), group="g", retry_attempts=0)
    rig.publish("c", 1)
    assert rig.drain(GUARD_S)
    assert rig.one("dead").headers["DeadLetterReason"] == "MaxDeliveryCountExceeded"


def test_a_failure_with_a_restart_in_between_keeps_its_count(saved_rig: Rig) -> None:
    first = Flaky(9)
    subscription = saved_rig.subscribe("c", first, group="g", retry_attempts=2, retry_delay=0.2)
    saved_rig.publish("c", 1)
    for _ in range(1_000):
        if saved_rig.counts(GROUP)[2] == 1:
            break
        threading.Event().wait(0.005)
    saved_rig.unsubscribe(subscription)
    saved_rig.reopen()
    saved_rig.create_channel("c", persistent=True)
    again = Flaky(9)
    saved_rig.subscribe("c", again, group="g", retry_attempts=2, retry_delay=0)
    letter = saved_rig.one(f"{GROUP}/$DeadLetterQueue")
    assert letter.headers["DeadLetterAttempts"] == 3
    assert [count for _, count in [*first.seen, *again.seen]] == [1, 2, 3]


def test_a_filter_says_what_is_handled(channel_rig: Rig) -> None:
    got = Collector()

    def odd(message: Message) -> bool:
        assert isinstance(message.body, int)
        return message.body % 2 == 1

    channel_rig.subscribe("c", got, group="g", filter=odd)
    channel_rig.publish_many("c", [1, 2, "no number", 3])
    assert channel_rig.drain(GUARD_S)
    assert got.bodies == [1, 3]
    assert channel_rig.counts(GROUP) == EMPTY


# Locks


def test_a_lost_lock_delivers_again_and_settles_the_new_one(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # The handler that lost its lock ends late. It must not take the new delivery of its message with it.
    gate = Gate()
    hand_rig.subscribe("c", gate, group="g", concurrency=2)
    hand_rig.publish("c", 1)
    gate.wait_entered()
    hand_clock.advance(61)
    hand_timers.fire_until(lambda: len(gate.messages) == 2)
    gate.wait_entered()
    assert [message.delivery_count for message in gate.messages] == [1, 2]
    gate.open()
    assert hand_rig.drain(GUARD_S)
    assert hand_rig.counts(GROUP) == EMPTY
    assert len(gate.messages) == 2
    hand_rig.publish("c", 2)
    gate.wait_entered()


def test_a_lost_lock_stops_an_async_handler(hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers) -> None:
    gate = AsyncGate()
    hand_rig.subscribe("c", gate, group="g", concurrency=2)
    hand_rig.publish("c", 1)
    gate.wait_entered()
    hand_clock.advance(61)
    hand_timers.fire_until(gate.cancelled.is_set)
    hand_timers.fire_until(lambda: len(gate.bodies) == 2)
    gate.wait_entered()
    gate.open()
    assert hand_rig.drain(GUARD_S)
    assert hand_rig.counts(GROUP) == EMPTY
    assert gate.bodies == [1, 1]


def test_a_handler_that_outlives_its_lock_leaves_no_cancellation_to_the_next_one(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # It ends in its own way when it is cancelled. A TaskGroup of the next handler would not know its own failure.
    entered, cancelling, done = threading.Event(), [], threading.Event()

    async def handler(message: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        if len(cancelling) > 1:
            done.set()
            return
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    hand_rig.subscribe("c", handler, group="g")
    hand_rig.publish("c", 1)
    event_wait(entered)
    hand_clock.advance(61)
    hand_timers.fire_until(done.is_set)
    assert cancelling == [0, 0]


def test_a_loop_that_ends_while_a_lock_is_lost_ends_its_handlers(tmp_path: Path) -> None:
    clock, timers = HandClock(), HandTimers()
    bus = MessageBus(persistence_path=tmp_path / "bus.db", clock=clock.clock(timers))
    gate = AsyncGate()

    async def main() -> None:
        bus.create_channel("c", persistent=True)
        bus.subscribe("c", gate, group="g")
        await bus.publish("c", 1)
        await asyncio.to_thread(gate.wait_entered)
        clock.advance(61)
        timers.fire()  # The loop cancels the handler in its next step, and then all of its tasks.

    within(lambda: asyncio.run(main()))
    assert gate.cancelled.is_set()
    within(lambda: asyncio.run(bus.close(1)))


def test_a_lock_lost_while_it_waits_is_not_worked_under(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    gate = Gate()
    hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish_many("c", [1, 2])
    gate.wait_entered()
    hand_clock.advance(61)
    hand_timers.fire()
    gate.open()
    hand_timers.fire_until(lambda: sum(message.delivery_count == 2 for message in gate.messages) == 2)
    assert hand_rig.drain(GUARD_S)
    # Each of them under a lock that held; the first one was at work when it lost its own.
    assert [(message.body, message.delivery_count) for message in gate.messages if message.delivery_count == 2] == [
        (1, 2),
        (2, 2),
    ]
    assert hand_rig.counts(GROUP) == EMPTY


def test_a_message_that_another_receiver_has_by_now_is_not_handled_here(hand_rig: Rig, hand_clock: HandClock) -> None:
    # Claimed ahead. Its lock ended before any renewal, and no timer has reported that.
    gate = Gate()
    hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish_many("c", [1, 2, 3])
    gate.wait_entered()
    hand_clock.advance(61)
    taken = hand_rig.take(GROUP, 3)
    assert [message.body for message in taken] == [1, 2, 3]
    gate.open()
    assert hand_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [1]
    for message in taken:
        hand_rig.do(message.complete)
    assert hand_rig.counts(GROUP) == EMPTY
    (figures,) = hand_rig.bus.snapshot("c").channels
    assert (figures.locks_lost, figures.dispatched) == (3, 1)
    hand_rig.publish("c", 4)
    gate.wait_entered()


def test_a_message_that_is_claimed_again_starts_once_under_its_new_lock(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # The group's queue has the message twice then: under the lock that was lost, and under the new one.
    gate, other = Gate(), Gate()
    hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish_many("c", [1, 2, 3])
    gate.wait_entered()
    hand_clock.advance(61)
    (group,) = [group for group in hand_rig.bus._runtime.registry.groups() if group.name == "g"]
    hand_timers.fire_until(lambda: len(group.queue) == 5)
    hand_rig.subscribe("c", other, group="g", concurrency=8)
    other.wait_entered(3)
    other.open()
    gate.open()
    assert hand_rig.drain(GUARD_S)
    assert sorted((message.body, message.delivery_count) for message in other.messages) == [(1, 2), (2, 2), (3, 2)]
    assert len(gate.messages) == 1
    assert hand_rig.counts(GROUP) == EMPTY
    assert hand_rig.bus.snapshot("c").channels[0].locks_lost == 3


def test_a_handler_that_leaves_releases_no_message_that_another_works_on(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # What it releases are the messages that wait; of those, one was lost and is handled under a new lock.
    gate, other = Gate(), Gate()
    hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish_many("c", [1, 2])
    gate.wait_entered()
    hand_clock.advance(61)
    (group,) = [group for group in hand_rig.bus._runtime.registry.groups() if group.name == "g"]
    hand_timers.fire_until(lambda: len(group.queue) == 3)
    first, stale, second = group.queue.drain()
    assert [message.body for message in (first, stale, second)] == [1, 2, 2]
    for message in (first, second):
        group.queue.restore(message, message.priority, message.sequence)
    hand_rig.subscribe("c", other, group="g", concurrency=2)
    other.wait_entered(2)
    group.queue.restore(stale, stale.priority, stale.sequence)
    hand_rig.unsubscribe(gate)
    hand_rig.unsubscribe(other)
    assert hand_rig.counts(GROUP) == (0, 2, 0, 0, 0)
    other.open()
    gate.open()
    assert hand_rig.drain(GUARD_S)
    assert hand_rig.counts(GROUP) == EMPTY


def test_a_lost_lock_keeps_no_other_message_from_being_released(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    gate = Gate()
    subscription = hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish_many("c", [1, 2])
    gate.wait_entered()
    hand_clock.advance(61)
    assert len(hand_rig.take(GROUP, 2)) == 2  # Another receiver has these now.
    hand_timers.fire()
    hand_rig.publish("c", 3)
    (group,) = [group for group in hand_rig.bus._runtime.registry.groups() if group.name == "g"]
    hand_timers.fire_until(lambda: len(group.queue) == 2)
    hand_rig.unsubscribe(subscription)
    assert hand_rig.counts(GROUP) == (1, 2, 0, 0, 0)
    gate.open()
    assert hand_rig.drain(GUARD_S)


def test_messages_that_expire_while_they_wait_here_block_nobody(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # They are claimed ahead. Had they been dropped without word to the store, their places would never be free again.
    gate = Gate()
    hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish("c", "first")
    gate.wait_entered()
    hand_rig.publish_many("c", list(range(100)), ttl=5)
    hand_clock.advance(6)
    gate.open()
    hand_rig.publish_many("c", ["fresh"] * 50)
    assert hand_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == ["first", *["fresh"] * 50]
    assert hand_rig.counts(GROUP) == EMPTY


class ImpatientStore:
    """A store that calls its watcher at once, in vain, before it returns how to stop. The contract allows that."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.vain = 3

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        if self.vain:
            self.vain -= 1
            call()
            return lambda: None
        return self._store.watch(entity, call)

    def apply(self, *given: object) -> object:
        return self._store.apply(*given)  # type: ignore[arg-type]


def test_a_call_in_vain_is_not_the_last_one(tmp_path: Path) -> None:
    store = ImpatientStore(breaking_store(tmp_path / "bus.db")[0])
    bus = SyncMessageBus(store)
    got = Collector()
    bus.subscribe("c", got, group="g")
    for number in range(10):
        bus.publish("c", number)
        got.wait(number + 1)
    bus.close(1)


# Stopping


def test_unsubscribing_leaves_its_messages_to_who_comes(channel_rig: Rig) -> None:
    gate = Gate()
    subscription = channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish_many("c", list(range(50)))
    gate.wait_entered()
    assert channel_rig.unsubscribe(subscription)
    assert not channel_rig.unsubscribe(subscription)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    assert len(gate.messages) == 1
    assert channel_rig.counts(GROUP) == (49, 0, 0, 0, 0)
    got = Collector()
    channel_rig.subscribe("c", got, group="g")
    assert got.wait(49) == list(range(1, 50))
    assert {message.delivery_count for message in got.messages} == {1}


def test_unsubscribing_an_async_handler_gives_back_what_it_was_at(channel_rig: Rig) -> None:
    gate = AsyncGate()
    subscription = channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish("c", 1)
    gate.wait_entered()
    channel_rig.do(subscription.cancel)
    event_wait(gate.cancelled)
    assert channel_rig.drain(GUARD_S)
    got = Collector()
    channel_rig.subscribe("c", got, group="g")
    assert got.wait(1) == [1]
    assert got.messages[0].delivery_count == 1
    assert channel_rig.drain(GUARD_S)
    assert channel_rig.counts(GROUP) == EMPTY


def test_slots_are_served_beside_many_handlers_that_take_long(channel_rig: Rig) -> None:
    # More of them than messages are claimed ahead.
    gate, done = AsyncGate(), Collector()

    async def handler(message: Message) -> None:
        if isinstance(message.body, int) and message.body < 20:
            await gate(message)
        else:
            done(message)

    channel_rig.subscribe("c", handler, group="g", concurrency=24)
    channel_rig.publish_many("c", list(range(120)))
    try:
        assert len(done.wait(100)) == 100
    finally:
        gate.open()


def test_one_consumer_of_two_may_go(channel_rig: Rig) -> None:
    gate, got = AsyncGate(), Collector()
    first = channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish("c", 1)
    gate.wait_entered()
    channel_rig.subscribe("c", got, group="g")
    channel_rig.do(first.cancel)
    assert got.wait(1) == [1]
    assert channel_rig.drain(GUARD_S)
    assert channel_rig.counts(GROUP) == EMPTY


def test_unsubscribing_by_handler_and_by_id(channel_rig: Rig) -> None:
    one, other = Collector(), Collector()
    channel_rig.subscribe("c", one, group="one")
    subscription = channel_rig.subscribe("c", other, group="other")
    assert channel_rig.unsubscribe(one)
    assert channel_rig.unsubscribe(subscription.id)
    channel_rig.publish("c", 1)
    assert channel_rig.drain(GUARD_S)
    assert one.bodies == other.bodies == []


def test_stop_hands_over_nothing_and_start_goes_on(channel_rig: Rig) -> None:
    got = Collector()
    channel_rig.subscribe("c", got, group="g")
    channel_rig.publish("c", 1)
    got.wait(1)
    assert channel_rig.stop(GUARD_S)
    channel_rig.publish_many("c", [2, 3])
    assert got.bodies == [1]
    channel_rig.start()
    assert got.wait(3) == [1, 2, 3]


@pytest.mark.parametrize("backlog", [40, 2_000])
def test_close_does_not_wait_for_a_durable_backlog(saved_rig: Rig, backlog: int) -> None:
    gate = Gate()
    saved_rig.create_channel("c", persistent=True, max_queue_size=0, update=True)
    saved_rig.subscribe("c", gate, group="g", retry_attempts=0)
    saved_rig.publish_many("c", list(range(backlog)))
    gate.wait_entered()
    (pump,) = saved_rig.bus._durable._pumps.values()
    closing = threading.Thread(target=lambda: saved_rig.close(GUARD_S), daemon=True)
    closing.start()
    for _ in range(1_000):
        if pump.stopped:
            break
        threading.Event().wait(0.005)
    gate.open()
    closing.join(GUARD_S)
    assert not closing.is_alive()
    handled = len(gate.messages)
    assert handled < 40
    saved_rig.reopen()
    assert saved_rig.counts(GROUP) == (backlog - handled, 0, 0, 0, 0)
    left = saved_rig.take(GROUP, backlog)
    assert [message.body for message in left] == list(range(handled, backlog))
    assert {message.delivery_count for message in left} == {1}


def test_close_gives_back_what_an_async_handler_is_at(saved_rig: Rig) -> None:
    gate = AsyncGate()
    saved_rig.subscribe("c", gate, group="g")
    saved_rig.publish("c", 1)
    gate.wait_entered()
    saved_rig.close(0.05)
    event_wait(gate.cancelled)
    saved_rig.reopen()
    assert saved_rig.counts(GROUP) == (1, 0, 0, 0, 0)
    assert saved_rig.one(GROUP).delivery_count == 1


def test_close_lets_a_handler_finish_and_settles_it(saved_rig: Rig) -> None:
    gate = Gate()
    saved_rig.subscribe("c", gate, group="g")
    saved_rig.publish("c", 1)
    gate.wait_entered()
    threading.Timer(0.02, gate.open).start()
    saved_rig.close(GUARD_S)
    saved_rig.reopen()
    assert saved_rig.counts(GROUP) == EMPTY


# Handlers that use the bus


def test_a_handler_may_publish_send_and_subscribe(channel_rig: Rig) -> None:
    got, late = Collector(), Collector()

    def handler(body: int) -> None:
        if body == 1:
            channel_rig.bus.publish_from_sync("c", 2)
            channel_rig.send("q", "sent")
            channel_rig.subscribe("c", late, group="late", start="beginning")
        else:
            got(Message.new("x", body))

    channel_rig.subscribe("c", handler, group="g")
    channel_rig.publish("c", 1)
    assert got.wait(1) == [2]
    assert late.wait(2) == [1, 2]
    assert channel_rig.one("q").body == "sent"
    assert channel_rig.drain(GUARD_S)


async def test_an_async_handler_may_do_all_of_that(queue_bus: MessageBus, store_path: Path | None) -> None:
    if store_path is None:
        queue_bus.with_persistence("memory://")
    queue_bus.create_channel("c", persistent=True)
    done = asyncio.Event()
    bodies: list[object] = []

    async def late(message: Message) -> None:
        bodies.append(message.body)
        if len(bodies) == 2:
            done.set()

    async def handler(body: int) -> None:
        if body == 1:
            async with queue_bus.transaction():
                await queue_bus.publish("c", 2)
                await queue_bus.send("q", "sent")
            queue_bus.subscribe("c", late, group="late", start="beginning")

    subscription = queue_bus.subscribe("c", handler, group="g")
    await queue_bus.publish("c", 1)
    await asyncio.wait_for(done.wait(), GUARD_S)
    assert bodies == [1, 2]
    assert [message.body for message in await queue_bus.receive_batch("q", timeout=0)] == ["sent"]
    await subscription.cancel()


def test_a_handler_may_unsubscribe_itself(channel_rig: Rig) -> None:
    calls = []

    def handler(body: int) -> None:
        calls.append(body)
        channel_rig.unsubscribe(subscription)

    subscription = channel_rig.subscribe("c", handler, group="g")
    channel_rig.publish_many("c", [1, 2, 3])
    assert channel_rig.drain(GUARD_S)
    assert calls == [1]
    assert channel_rig.counts(GROUP) == (2, 0, 0, 0, 0)


def test_a_handler_may_close_the_bus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus(tmp_path / "bus.db")
    closed = threading.Event()

    def handler(body: int) -> None:
        bus.close(0.1)
        closed.set()

    bus.subscribe("c", handler, group="g")
    bus.publish_many("c", [1, 2])
    event_wait(closed)
    within(bus.close)
    again = SyncMessageBus(tmp_path / "bus.db")
    # Nothing is lost: the one whose handler closed the store is redelivered, the other was released.
    assert [(each.body, each.delivery_count) for each in again.receive_batch(GROUP, 5, timeout=0)] == [(1, 2), (2, 1)]
    again.close()


def test_what_handlers_publish_while_the_bus_closes_is_stored(tmp_path: Path) -> None:
    bus = SyncMessageBus(tmp_path / "bus.db")
    gate = Gate()

    def handler(message: Message) -> None:
        gate(message)
        bus.publish("out", message.body)
        bus.send("q", message.body)

    bus.subscribe("c", handler, group="g")
    bus.create_topic("out")
    bus.create_subscription("out", "s")
    bus.publish("c", 1)
    gate.wait_entered()
    threading.Timer(0.02, gate.open).start()
    bus.close(GUARD_S)
    again = SyncMessageBus(tmp_path / "bus.db")
    assert [again.receive_batch(name, timeout=0)[0].body for name in ("out/Subscriptions/s", "q")] == [1, 1]
    again.close()


# A store that stops


def test_a_stopped_store_is_told_to_every_publisher(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = SyncMessageBus(store)
    got = Collector()
    bus.subscribe("c", got, group="g")
    bus.publish("c", 1)
    got.wait(1)
    bus.drain(GUARD_S)
    journal.broken = True
    with caplog.at_level(logging.CRITICAL, logger="unibus"):
        for _ in range(3):
            with pytest.raises(StoreFailed):
                bus.publish("c", 2)
        with pytest.raises(StoreFailed):
            bus.publish_many("c", [2])
        assert bus.health_check().status == "unhealthy"
        bus.close(0.2)
    again = SyncMessageBus(tmp_path / "bus.db")
    # The first message is redelivered if its completion was not written. The second one was never stored.
    assert {message.body for message in again.receive_batch(GROUP, 5, timeout=0)} <= {1}
    again.close()


# Consumers that come and go while a pump claims


@pytest.fixture
def pump_bus() -> Iterator[SyncMessageBus]:
    bus = SyncMessageBus()
    bus.with_persistence("memory://")
    bus.create_channel("c", persistent=True)
    yield bus
    bus.close(0.2)


def pump_of(bus: SyncMessageBus) -> SubscriptionPump:
    assert bus._runtime.durable is not None
    return bus._runtime.durable._pumps[GROUP]


@PLAIN
def test_a_consumer_that_joins_while_the_last_one_leaves_is_served(
    pump_bus: SyncMessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = Collector()
    leaving = pump_bus.subscribe("c", Collector(), group="g")
    pump = pump_of(pump_bus)
    stop = pump.stop

    def late(only_if_unrunnable: bool = False) -> None:
        monkeypatch.undo()
        pump_bus.subscribe("c", got, group="g")  # The group has no consumer, and is about to be stopped.
        stop(only_if_unrunnable)

    monkeypatch.setattr(pump, "stop", late)
    leaving.cancel()  # type: ignore[attr-defined]
    pump_bus.publish("c", 1)
    assert got.wait(1) == [1]


@pytest.mark.immediate
@PLAIN
def test_a_consumer_that_joins_while_a_late_claim_is_released_is_served(
    pump_bus: SyncMessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The claim was under way when the last consumer left. What it brings is for the one that has joined since.
    got = Collector()
    leaving = pump_bus.subscribe("c", Collector(), group="g")
    pump = pump_of(pump_bus)
    arrived, release = pump._arrived, pump._release_unseen

    def late_release() -> None:
        monkeypatch.undo()
        pump_bus.subscribe("c", got, group="g")
        release()

    def late_arrival(pending: Pending[list[Claimed]]) -> None:
        if pending.value:
            leaving.cancel()  # type: ignore[attr-defined]
            monkeypatch.setattr(pump, "_release_unseen", late_release)
        arrived(pending)

    monkeypatch.setattr(pump, "_arrived", late_arrival)
    assert pump_bus.stop(GUARD_S)  # So that the new one cannot take it before the release looks.
    pump_bus.publish("c", 1)
    pump_bus.start()
    assert got.wait(1) == [1]
    assert not pump.stopped
    assert pump_bus.drain(GUARD_S)


@pytest.mark.immediate
@PLAIN
def test_a_group_is_not_drained_while_its_messages_go_back_to_the_store(
    pump_bus: SyncMessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else drain() could say that all is done, and a consumer that has just joined gets them after that.
    gate = Gate()
    leaving = pump_bus.subscribe("c", gate, group="g")
    pump_bus.publish_many("c", [1, 2, 3])
    gate.wait_entered()
    pump = pump_of(pump_bus)
    renewals = pump_bus._runtime.queues().renewals
    stop = renewals.stop
    delayed: list[int] = []

    def late(claimed: Claimed) -> None:
        delayed.append(int(pump.group.delayed))
        stop(claimed)

    monkeypatch.setattr(renewals, "stop", late)
    leaving.cancel()  # type: ignore[attr-defined]
    assert delayed == [1, 1]
    assert pump.group.delayed == 0
    gate.open()
    assert pump_bus.drain(GUARD_S)


@PLAIN
def test_a_lock_is_kept_before_any_handler_can_settle_its_message(
    pump_bus: SyncMessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a quick handler would be first, and the lock of a message that is gone would be renewed for ever.
    got = Collector()
    pump_bus.subscribe("c", got, group="g")
    pump = pump_of(pump_bus)
    renewals = pump_bus._runtime.queues().renewals
    start = renewals.start
    offered: list[int] = []

    def late(claimed: Claimed, on_lost: object) -> None:
        offered.append(len(pump.group.queue) + len(got.bodies))
        start(claimed, on_lost)  # type: ignore[arg-type]

    monkeypatch.setattr(renewals, "start", late)
    pump_bus.publish("c", 1)
    assert got.wait(1) == [1]
    assert pump_bus.drain(GUARD_S)
    assert offered == [0]
    assert renewals._held == {}


async def test_a_message_handed_back_after_its_feed_was_stopped_goes_back_to_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its handler is cancelled while another consumer is left; that one leaves before the message is back in the queue.
    bus = MessageBus()
    bus.with_persistence("memory://")
    bus.create_channel("c", persistent=True)
    entered = asyncio.Event()

    async def stuck(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    class Late:
        """The pump as its handler sees it. The other consumer leaves as soon as the pump has decided."""

        def __init__(self, pump: SubscriptionPump) -> None:
            self._feed = pump

        def __getattr__(self, name: str) -> object:
            return getattr(self._feed, name)

        def takes_back(self, claimed: Claimed, message: Message) -> bool:
            decided = self._feed.takes_back(claimed, message)
            second.cancel()
            return decided

    monkeypatch.setattr(
        durable_channels,
        "pump_handler",
        lambda pump, inner, is_async: pump_handler(cast(SubscriptionPump, Late(pump)), inner, is_async),
    )
    first = bus.subscribe("c", stuck, group="g")
    await bus.publish("c", 1)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    second = bus.subscribe("c", stuck, group="g")
    await first.cancel()
    assert await bus.drain(GUARD_S)
    (info,) = [info for info in await bus.entities() if info.name == GROUP]
    assert (info.active, info.locked) == (1, 0)
    await bus.close(GUARD_S)


def test_consumers_that_have_left_are_forgotten(pump_bus: SyncMessageBus) -> None:
    for _ in range(3):
        pump_bus.subscribe("c", Collector(), group="g").cancel()  # type: ignore[attr-defined]
    assert pump_of(pump_bus).inner == {}
