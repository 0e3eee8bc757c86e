"""Lock renewal while a message is processed: one timer, one batch, and a report of lost locks."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S, HandClock, HandTimers
from tests.unit.bus.rigs import Rig, breaking_store
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import LockLost, SessionLockLost, StoreFailed
from unibus.testing.clock.virtual_clock import VirtualClock


def test_a_lock_is_kept_for_as_long_as_the_work_takes(
    store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    rig = Rig(SyncMessageBus, store_path, hand_clock.clock(hand_timers))
    rig.create_queue("q", lock_duration=30)
    rig.send("q", 1)
    with rig.one("q") as message:
        first = message.locked_until
        for _ in range(20):
            hand_clock.advance(10)
            hand_timers.fire()
        assert (message.locked_until - first).total_seconds() == pytest.approx(200)
        assert rig.take("q") == []
    assert rig.counts("q") == (0, 0, 0, 0, 0)
    rig.end()


def test_a_lock_that_was_received_long_ago_is_kept_too(store_path: Path | None) -> None:
    clock = VirtualClock()
    rig = Rig(SyncMessageBus, store_path, clock)
    rig.create_queue("q", lock_duration=30)
    rig.send("q", 1)
    message = rig.one("q")
    clock.advance(27)
    with message:
        clock.advance(2)
        for _ in range(100):
            clock.advance(1)
            # Never in the last moment, however little was left at the beginning: a timer may be late.
            assert (message.locked_until - clock.now()).total_seconds() > 15
    assert rig.counts("q") == (0, 0, 0, 0, 0)
    rig.end()


def test_nothing_is_renewed_after_the_work(
    store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    rig = Rig(SyncMessageBus, store_path, hand_clock.clock(hand_timers))
    rig.send_many("q", [1, 2])
    with rig.one("q"):
        pass
    rig.one("q")  # Outside of a block its lock is not renewed.
    _, seen = rig.bus.events_after(0)
    for _ in range(4):
        hand_clock.advance(30)
        hand_timers.fire()
    kinds = [row.kind for row in rig.bus.events_after(seen)[0]]
    assert "renewed" not in kinds
    assert rig.one("q", 0).delivery_count == 2
    rig.end()


def test_many_locks_of_different_lengths_are_all_kept(
    store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    rig = Rig(SyncMessageBus, store_path, hand_clock.clock(hand_timers))
    lengths = (3, 30, 60)
    for length in lengths:
        rig.create_queue(f"q{length}", lock_duration=length)
        rig.send_many(f"q{length}", list(range(10)))
    messages = [message for length in lengths for message in rig.take(f"q{length}", 10)]
    for message in messages:
        message.__enter__()
    for _ in range(100):
        hand_clock.advance(1)
        hand_timers.fire()
    for message in messages:
        message.__exit__(None, None, None)
    assert [rig.counts(f"q{length}") for length in lengths] == [(0, 0, 0, 0, 0)] * 3
    rig.end()


async def test_one_lost_lock_does_not_cost_the_others_theirs(
    store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    clock = hand_clock.clock(hand_timers)
    bus = MessageBus(clock=clock) if store_path is None else MessageBus(persistence_path=store_path, clock=clock)
    await bus.send_many("q", [1, 2, 3])
    await bus.send("doomed", 4)
    messages = [*await bus.receive_batch("q", 3), *await bus.receive_batch("doomed", 1)]
    done = asyncio.Event()

    async def work(number: int) -> object:
        async with messages[number] as message:
            await done.wait()
        return message.body

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    await bus.delete_entity("doomed")
    for _ in range(10):
        hand_clock.advance(20)
        hand_timers.fire()
    with pytest.raises(LockLost):
        await asyncio.wait_for(tasks[3], GUARD_S)
    done.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks[:3]), GUARD_S) == [1, 2, 3]
    await bus.close(0.2)


async def test_a_stopped_store_takes_the_locks_with_it(
    tmp_path: Path, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = MessageBus(store, clock=hand_clock.clock(hand_timers))
    await bus.send("q", 1)
    (message,) = await bus.receive_batch("q")
    entered = asyncio.Event()

    async def work() -> None:
        async with message:
            entered.set()
            await asyncio.sleep(GUARD_S)

    task = asyncio.create_task(work())
    await entered.wait()
    journal.broken = True
    with pytest.raises(StoreFailed):
        await bus.send("q", 2)
    hand_clock.advance(61)
    store._epoch_ns += 61_000_000_000  # The store has a clock of its own here.
    hand_timers.fire()
    with pytest.raises(LockLost):
        await asyncio.wait_for(task, GUARD_S)
    await bus.close(0.2)


async def test_short_locks_in_real_time(queue_bus: MessageBus) -> None:
    await queue_bus.create_queue("q", lock_duration=0.3)
    await queue_bus.send("q", 1)
    (message,) = await queue_bus.receive_batch("q")
    first = message.locked_until
    assert first is not None
    async with message:
        while message.locked_until == first or message.locked_until is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await queue_bus.receive_batch("q", timeout=0) == []
    (info,) = await queue_bus.entities()
    assert (info.active, info.locked) == (0, 0)


def test_a_slow_handler_of_a_persistent_channel_keeps_its_message(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    renewed = threading.Event()
    calls = []

    def handler(body: int) -> None:
        calls.append(body)
        assert renewed.wait(GUARD_S)

    rig.subscribe("c", handler, group="g")
    rig.update_entity("c/Subscriptions/g", lock_duration=0.3)
    rig.publish("c", 1)
    for _ in range(500):
        if any(row.kind == "renewed" for row in rig.bus.events_after(0)[0]):
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("the lock was not renewed")
    renewed.set()
    assert rig.drain(GUARD_S)
    assert calls == [1]
    assert rig.counts("c/Subscriptions/g") == (0, 0, 0, 0, 0)


async def test_a_session_is_kept_while_its_block_is_open(virtual_clock: VirtualClock) -> None:
    bus = MessageBus(clock=virtual_clock)
    await bus.create_queue("s", requires_session=True, lock_duration=10)
    await bus.send("s", "a", session_id="c1")
    async with await bus.accept_session("s", "c1", timeout=0) as session:
        for _ in range(5):
            await virtual_clock.advance_async(8)
        [message] = await session.receive_batch(1, timeout=0)
        await message.complete()
    with pytest.raises(SessionLockLost):
        await session.set_state(b"too late")
    await bus.close()


async def test_a_session_without_a_block_ends_with_its_lock(virtual_clock: VirtualClock) -> None:
    bus = MessageBus(clock=virtual_clock)
    await bus.create_queue("s", requires_session=True, lock_duration=10)
    session = await bus.accept_session("s", "c1", timeout=0)
    await virtual_clock.advance_async(11)
    with pytest.raises(SessionLockLost):
        await session.set_state(b"too late")
    await bus.close()


class WatchedLocks(dict[int, Any]):
    """Records for each removal whether the lock that protects the table is held."""

    def __init__(self, guard: threading.Lock) -> None:
        super().__init__()
        self._guard = guard
        self.is_guarded: list[bool] = []

    def pop(self, *given: Any) -> Any:
        self.is_guarded.append(self._guard.locked())
        return super().pop(*given)


def test_a_lost_lock_is_removed_while_no_timer_reads_the_table(hand_clock: HandClock, hand_timers: HandTimers) -> None:
    # A store that answers late reports the loss in a thread of its own, while the timer iterates over the locks.
    rig = Rig(SyncMessageBus, None, hand_clock.clock(hand_timers))
    rig.create_queue("q", lock_duration=30)
    rig.send("q", 1)
    renewals = rig.bus._runtime.queues().renewals
    renewals._held = held = WatchedLocks(renewals._lock)
    message = rig.one("q").__enter__()
    hand_clock.advance(31)
    hand_timers.fire()
    assert held.is_guarded == [True]
    with pytest.raises(LockLost):
        message.__exit__(None, None, None)
    rig.end()


def test_a_session_is_renewed_at_once_inside_of_a_transaction(hand_clock: HandClock, hand_timers: HandTimers) -> None:
    # As the lock of a message: a rollback must not take the renewal back, nor may it wait for the commit.
    rig = Rig(SyncMessageBus, None, hand_clock.clock(hand_timers))
    rig.create_queue("q", requires_session=True, lock_duration=30)
    rig.send("q", 1, session_id="a")
    session = rig.accept_session("q", timeout=0)
    hand_clock.advance(20)
    transaction = rig.bus.transaction().__enter__()
    session.renew_lock()
    transaction.__exit__(ValueError, ValueError("rolled back"), None)
    hand_clock.advance(20)
    hand_timers.fire()
    session.set_state(b"still mine")
    rig.end()
