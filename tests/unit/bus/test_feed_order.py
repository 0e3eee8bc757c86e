"""The order in which a persistent channel hands messages to handlers: by (priority, sequence) over all that wait.

A feed claims messages ahead. What it holds must not start before a more urgent message that is still in the store, nor
before one that failed and keeps its place, nor while a claim of such a message is being written.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, HandClock, HandTimers, event_wait
from tests.unit.bus.rigs import Rig, breaking_store
from unibus import Priority
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.persistent.delivery_order import AHEAD
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.claiming import Claimed
from unibus.errors import StoreUnavailable
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.pending import CommitResult, Pending
from unibus.stores.seam.store import ClaimRequest

GROUP = "c/Subscriptions/g"
EMPTY = (0, 0, 0, 0, 0)
BACKLOG = 2 * AHEAD
"""More than a feed claims ahead: some are held by it, some are in the store."""


@pytest.fixture
def channel_rig(rig: Rig) -> Rig:
    rig.create_channel("c", persistent=True, max_queue_size=0)
    return rig


@pytest.fixture
def hand_rig(timed_rig: Rig) -> Rig:
    timed_rig.create_channel("c", persistent=True, max_queue_size=0)
    return timed_rig


class Turnstile:
    """A sync handler whose calls each wait until `pass_one` ends one of them, first come first served."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._may_leave = 0
        self.bodies: list[object] = []
        self.counts: list[int] = []

    def __call__(self, message: Message) -> None:
        with self._changed:
            number = len(self.bodies)
            self.bodies.append(message.body)
            self.counts.append(message.delivery_count)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._may_leave > number, GUARD_S), "it was not passed"

    def wait_entered(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.bodies) >= count, GUARD_S), f"entered: {self.bodies}"

    def pass_one(self) -> None:
        with self._changed:
            self._may_leave += 1
            self._changed.notify_all()

    def open(self) -> None:
        with self._changed:
            self._may_leave = 1_000_000
            self._changed.notify_all()


# One handler at a time


def test_an_urgent_message_overtakes_everything_that_waits(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish_many("c", list(range(BACKLOG)))
    gate.wait_entered()
    channel_rig.publish("c", "urgent", priority=Priority.CRITICAL)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [0, "urgent", *range(1, BACKLOG)]
    assert {message.delivery_count for message in gate.messages} == {1}
    assert channel_rig.counts(GROUP) == EMPTY
    assert channel_rig.bus.metrics("c")["dispatched"] == BACKLOG + 1


def test_many_urgent_messages_come_in_their_order(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish_many("c", list(range(BACKLOG)))
    gate.wait_entered()
    channel_rig.publish_many("c", [f"high {number}" for number in range(BACKLOG)], priority=Priority.HIGH)
    channel_rig.publish_many("c", [f"first {number}" for number in range(BACKLOG)], priority=Priority.CRITICAL)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    first = [f"first {number}" for number in range(BACKLOG)]
    high = [f"high {number}" for number in range(BACKLOG)]
    assert [message.body for message in gate.messages] == [0, *first, *high, *range(1, BACKLOG)]
    assert channel_rig.counts(GROUP) == EMPTY


def test_urgent_messages_that_handlers_publish_come_next(channel_rig: Rig) -> None:
    bodies: list[object] = []

    def handler(message: Message) -> None:
        bodies.append(message.body)
        if isinstance(message.body, int) and message.body % 10 == 0:
            channel_rig.bus.publish_from_sync("c", f"after {message.body}", priority=Priority.CRITICAL)

    channel_rig.create_subscription("c", "g")
    channel_rig.publish_many("c", list(range(BACKLOG)))
    channel_rig.subscribe("c", handler, group="g")
    assert channel_rig.drain(GUARD_S)
    expected: list[object] = []
    for number in range(BACKLOG):
        expected += [number, f"after {number}"] if number % 10 == 0 else [number]
    assert bodies == expected


@pytest.mark.immediate
@pytest.mark.parametrize("is_async", [False, True], ids=["pool", "loop"])
def test_a_retry_without_delay_comes_before_the_others(channel_rig: Rig, is_async: bool) -> None:
    seen: list[tuple[object, int]] = []

    def handler(message: Message) -> None:
        seen.append((message.body, message.delivery_count))
        if message.body in (0, 5) and message.delivery_count < 3:
            raise ValueError("not now")

    async def async_handler(message: Message) -> None:
        handler(message)

    channel_rig.create_subscription("c", "g")
    channel_rig.publish_many("c", list(range(BACKLOG)))
    channel_rig.subscribe("c", async_handler if is_async else handler, group="g", retry_attempts=5, retry_delay=0)
    assert channel_rig.drain(GUARD_S)
    expected = [(0, 1), (0, 2), (0, 3), *((number, 1) for number in range(1, 5)), (5, 1), (5, 2), (5, 3)]
    assert seen == [*expected, *((number, 1) for number in range(6, BACKLOG))]
    assert channel_rig.counts(GROUP) == EMPTY
    assert channel_rig.bus.metrics("c")["dispatched"] == BACKLOG


def test_a_retry_that_is_due_comes_before_the_others(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    turnstile = Turnstile()

    def handler(message: Message) -> None:
        turnstile(message)
        if message.body == 0 and message.delivery_count == 1:
            raise ValueError("not now")

    hand_rig.create_subscription("c", "g")
    hand_rig.publish_many("c", list(range(BACKLOG)))
    hand_rig.subscribe("c", handler, group="g", retry_attempts=2, retry_delay=10, retry_jitter=0)
    turnstile.pass_one()
    turnstile.pass_one()
    turnstile.wait_entered(3)
    hand_clock.advance(11)
    hand_timers.fire_until(lambda: hand_rig.counts(GROUP)[2] == 0)
    turnstile.open()
    assert hand_rig.drain(GUARD_S)
    assert turnstile.bodies == [0, 1, 2, 0, *range(3, BACKLOG)]


def test_a_subscription_in_order_of_sequence_stays_in_that_order(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.create_subscription("c", "g", ordering="sequence")
    channel_rig.publish_many("c", list(range(BACKLOG)))
    channel_rig.subscribe("c", gate, group="g")
    gate.wait_entered()
    channel_rig.publish("c", "last", priority=Priority.CRITICAL)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [*range(BACKLOG), "last"]


@pytest.mark.parametrize("ordering", ["sequence", "priority"])
def test_a_message_that_a_cancelled_handler_returns_keeps_its_place(channel_rig: Rig, ordering: str) -> None:
    entered, gate = threading.Event(), Gate()

    async def stuck(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    channel_rig.create_subscription("c", "g", ordering=ordering)
    priority = Priority.LOW if ordering == "sequence" else Priority.CRITICAL
    for number in range(5):
        channel_rig.publish("c", number, priority=priority if number == 0 else Priority.NORMAL)
    leaving = channel_rig.subscribe("c", stuck, group="g")
    event_wait(entered)
    channel_rig.subscribe("c", gate, group="g")
    gate.wait_entered()
    channel_rig.do(leaving.cancel)
    (group,) = [group for group in channel_rig.bus._runtime.registry.groups() if group.name == "g"]
    until(lambda: len(group.queue) == 4)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [1, 0, 2, 3, 4]
    assert channel_rig.counts(GROUP) == EMPTY


def test_an_order_that_is_changed_counts_for_what_is_claimed_ahead(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish("c", 0)
    gate.wait_entered()
    for number in range(1, 5):
        channel_rig.publish("c", number, priority=Priority.LOW if number == 1 else Priority.NORMAL)
    channel_rig.update_entity(GROUP, ordering="sequence")
    channel_rig.publish("c", 5)
    (group,) = [group for group in channel_rig.bus._runtime.registry.groups() if group.name == "g"]
    until(lambda: len(group.queue) == 5)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [0, 1, 2, 3, 4, 5]


# Several at a time


def test_no_handler_of_several_starts_a_less_urgent_message_first(channel_rig: Rig) -> None:
    turnstile = Turnstile()
    channel_rig.subscribe("c", turnstile, group="g", concurrency=4)
    channel_rig.subscribe("c", turnstile, group="g", concurrency=4)
    channel_rig.publish_many("c", list(range(BACKLOG)))
    turnstile.wait_entered(8)
    urgent = [f"urgent {number}" for number in range(10)]
    channel_rig.publish_many("c", urgent, priority=Priority.CRITICAL)
    for number in range(10):  # One handler ends, the next message starts: nothing else can be on its way.
        turnstile.pass_one()
        turnstile.wait_entered(9 + number)
    assert sorted(turnstile.bodies[:8], key=str) == list(range(8))
    assert turnstile.bodies[8:] == urgent
    turnstile.open()
    assert channel_rig.drain(GUARD_S)
    assert len(turnstile.bodies) == BACKLOG + 10
    assert channel_rig.counts(GROUP) == EMPTY


async def test_several_slots_of_a_loop_start_in_order(tmp_path: Path) -> None:
    started: list[object] = []
    all_busy, go_on = asyncio.Event(), asyncio.Event()

    async def handler(message: Message) -> None:
        started.append(message.body)
        if len(started) == 8:
            all_busy.set()
        await go_on.wait()

    async with MessageBus(persistence_path=tmp_path / "bus.db") as bus:
        bus.create_channel("c", persistent=True, max_queue_size=0)
        bus.subscribe("c", handler, group="g", concurrency=8)
        await bus.publish_many("c", list(range(BACKLOG)))
        async with asyncio.timeout(GUARD_S):
            await all_busy.wait()
        urgent = [f"urgent {number}" for number in range(BACKLOG)]
        await bus.publish_many("c", urgent, priority=Priority.HIGH)
        go_on.set()
        assert await bus.drain(GUARD_S)
    assert started == [*range(8), *urgent, *range(8, BACKLOG)]


# While a claim is being written


class HeldStore:
    """A store whose claims are decided at once, and answered when the test says so."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.holds = False
        self.refuses: Exception | None = None
        self.claimed = threading.Event()
        self._held: list[tuple[Pending[list[Claimed]], CommitResult]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        if self.refuses is not None:
            raise self.refuses
        pending = self._store.claim(request)
        if not self.holds or not pending.value:
            return pending
        outcome = CommitResult(None)
        self._held.append((pending, outcome))
        self.claimed.set()
        return Pending(pending.value, outcome)

    def answer(self) -> None:
        self.holds = False
        held, self._held = self._held, []
        for pending, outcome in held:
            pending.wait(GUARD_S)
            outcome.decide()


@pytest.fixture
def held_store(tmp_path: Path) -> HeldStore:
    return HeldStore(breaking_store(tmp_path / "bus.db")[0])


@pytest.fixture
def held_bus(held_store: HeldStore) -> Iterator[SyncMessageBus]:
    bus = SyncMessageBus(held_store)
    bus.create_channel("c", persistent=True, max_queue_size=0)
    yield bus
    held_store.refuses = None
    held_store.answer()
    bus.close(1)


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(GUARD_S * 200)):
        if is_so():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")


def held_back(bus: SyncMessageBus, store: HeldStore, turnstile: Turnstile, concurrency: int) -> None:
    """Up to here: an urgent message is claimed, its claim is not answered, and every slot of the group is idle."""
    subscription = bus.subscribe("c", turnstile, group="g", concurrency=concurrency)
    bus.publish_many("c", list(range(BACKLOG)))
    turnstile.wait_entered(concurrency)
    store.holds = True
    bus.publish("c", "urgent", priority=Priority.CRITICAL)
    for _ in range(concurrency):
        turnstile.pass_one()
    event_wait(store.claimed)
    group = subscription.consumer.group
    until(lambda: group.running == 0)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_nothing_starts_before_an_urgent_message_that_is_being_claimed(
    held_bus: SyncMessageBus, held_store: HeldStore, concurrency: int
) -> None:
    turnstile = Turnstile()
    held_back(held_bus, held_store, turnstile, concurrency)
    assert len(turnstile.bodies) == concurrency
    assert not held_bus.drain(0.01)  # Neither quiet nor lost.
    held_store.answer()
    turnstile.wait_entered(concurrency + 1)
    assert "urgent" in turnstile.bodies[concurrency : 2 * concurrency]
    turnstile.open()
    assert held_bus.drain(GUARD_S)
    assert sorted(turnstile.bodies, key=str) == sorted([*range(BACKLOG), "urgent"], key=str)
    assert set(turnstile.counts) == {1}


def test_what_is_held_back_is_released_when_the_last_handler_leaves(
    held_bus: SyncMessageBus, held_store: HeldStore
) -> None:
    turnstile = Turnstile()
    held_back(held_bus, held_store, turnstile, 1)
    assert held_bus.unsubscribe(turnstile)
    held_store.answer()
    assert held_bus.drain(GUARD_S)
    assert turnstile.bodies == [0]
    got = Collector()
    held_bus.subscribe("c", got, group="g")
    assert got.wait(BACKLOG) == ["urgent", *range(1, BACKLOG)]
    assert {message.delivery_count for message in got.messages} == {1}


def test_locks_of_messages_that_are_held_back_are_kept(
    hand_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    gate = Gate()
    hand_rig.subscribe("c", gate, group="g")
    hand_rig.publish_many("c", list(range(BACKLOG)))
    gate.wait_entered()
    for _ in range(10):  # Locks last for 60 seconds, and are renewed at a third of that.
        hand_rig.publish("c", "urgent", priority=Priority.CRITICAL)
        hand_clock.advance(21)
        hand_timers.fire()
    gate.open()
    assert hand_rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [0, *["urgent"] * 10, *range(1, BACKLOG)]
    assert {message.delivery_count for message in gate.messages} == {1}


# When the claim comes to nothing


def test_a_claim_that_is_refused_stops_nothing_that_is_held(
    held_bus: SyncMessageBus, held_store: HeldStore, caplog: pytest.LogCaptureFixture
) -> None:
    turnstile = Turnstile()
    held_bus.subscribe("c", turnstile, group="g")
    held_bus.publish_many("c", list(range(BACKLOG)))
    turnstile.wait_entered(1)
    held_bus.publish("c", "urgent", priority=Priority.CRITICAL)
    held_store.refuses = StoreUnavailable("not now", "later")
    for number in range(AHEAD):
        turnstile.pass_one()
        turnstile.wait_entered(number + 2)
    assert turnstile.bodies == list(range(AHEAD + 1))
    held_store.refuses = None
    turnstile.open()
    held_bus.publish("c", "wakes", priority=Priority.BACKGROUND)
    assert held_bus.drain(GUARD_S)
    assert turnstile.bodies == [*range(AHEAD + 1), "urgent", *range(AHEAD + 1, BACKLOG), "wakes"]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_an_urgent_message_that_may_not_be_received_holds_back_nothing(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.subscribe("c", gate, group="g")
    channel_rig.publish_many("c", list(range(AHEAD)))
    gate.wait_entered()
    channel_rig.publish("c", "urgent", priority=Priority.CRITICAL)
    channel_rig.update_entity(GROUP, status="receive_disabled")
    gate.open()
    until(lambda: len(gate.messages) >= AHEAD)
    assert [message.body for message in gate.messages if message.body != "urgent"] == list(range(AHEAD))


# All of it together


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_while_messages_overtake_and_fail(channel_rig: Rig, seed: int) -> None:
    # Publishers in threads, of all priorities; handlers that fail; members of the group that come and go.
    done: list[object] = []

    def handler(message: Message) -> None:
        assert isinstance(message.body, int)
        if message.body % 7 == 0 and message.delivery_count == 1:
            raise ValueError("not now")
        done.append(message.body)

    def publish(first: int) -> None:
        chance = random.Random(seed + first)
        for body in range(first, first + 150):
            channel_rig.publish("c", body, priority=chance.choice([0, 25, 50, 100]))

    options = {"group": "g", "concurrency": 4, "retry_attempts": 5, "retry_delay": 0}
    channel_rig.subscribe("c", handler, **options)
    threads = [threading.Thread(target=publish, args=(first,), daemon=True) for first in (0, 1_000, 2_000)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        channel_rig.do(channel_rig.subscribe("c", handler, **options).cancel)
        threads[0].join(0.002)
        threads[-1].join(0.002)
    assert channel_rig.drain(3 * GUARD_S)
    assert sorted(done, key=str) == sorted(
        [body + first for first in (0, 1_000, 2_000) for body in range(150)], key=str
    )
    assert channel_rig.counts(GROUP) == EMPTY
    assert channel_rig.bus.metrics("c")["dispatched"] == len(done)
