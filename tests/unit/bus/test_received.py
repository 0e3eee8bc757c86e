"""A received message in its block: left, raised in, cancelled in, and robbed of its lock."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, HandClock, HandTimers
from tests.unit.bus.rigs import Rig, fails
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import BusClosed, LockLost


@pytest.fixture
def sync_rig(store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers):  # type: ignore[no-untyped-def]
    rig = Rig(SyncMessageBus, store_path, hand_clock.clock(hand_timers))
    yield rig
    rig.end()


@pytest.fixture
async def hand_bus(store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers):  # type: ignore[no-untyped-def]
    """The async face, in a time that the test moves and with timers that it fires."""
    clock = hand_clock.clock(hand_timers)
    bus = MessageBus(clock=clock) if store_path is None else MessageBus(persistence_path=store_path, clock=clock)
    yield bus
    await bus.close(0.2)


async def counts(bus: MessageBus) -> tuple[int, int]:
    (info,) = [info for info in await bus.entities() if info.name == "q"]
    return info.active, info.locked


# Settling by hand


def test_a_message_is_settled_once(rig: Rig) -> None:
    rig.send_many("q", [1, 2])
    message, other = rig.take("q", 2)
    rig.do(message.complete)
    assert message.settled
    for settle in (message.complete, message.abandon, message.defer, message.dead_letter, message.renew_lock):
        with pytest.raises(LockLost):
            rig.do(settle)
    rig.do(other.abandon)
    with pytest.raises(LockLost):
        rig.do(other.complete)
    assert rig.counts("q") == (1, 0, 0, 0, 0)


def test_a_lock_that_ended_settles_nothing(timed_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers) -> None:
    timed_rig.create_queue("q", lock_duration=10)
    timed_rig.send("q", 1)
    lost = timed_rig.one("q")
    hand_clock.advance(10)
    with pytest.raises(LockLost):
        timed_rig.do(lost.complete)
    again = timed_rig.one("q", 0)
    assert again.delivery_count == 2
    for settle in (lost.complete, lost.abandon, lost.defer, lost.dead_letter, lost.release, lost.renew_lock):
        with pytest.raises(LockLost):
            timed_rig.do(settle)
    timed_rig.do(again.complete)
    assert timed_rig.counts("q") == (0, 0, 0, 0, 0)


def test_a_renewed_lock_holds_longer(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.create_queue("q", lock_duration=10)
    timed_rig.send("q", 1)
    message = timed_rig.one("q")
    before = message.locked_until
    hand_clock.advance(8)
    timed_rig.do(message.renew_lock)
    assert (message.locked_until - before).total_seconds() == pytest.approx(8)
    hand_clock.advance(8)
    timed_rig.do(message.complete)


def test_what_a_message_tells_of_itself(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.send("q", 1, priority=5)
    message = timed_rig.one("q")
    assert message.enqueued_at.timestamp() == pytest.approx(hand_clock.wall / 1e9)
    assert (message.locked_until - message.enqueued_at).total_seconds() == pytest.approx(60)
    assert (message.priority, message.session_id) == (5, None)
    assert "locked" in repr(message)
    timed_rig.do(message.complete)
    assert "settled" in repr(message)


def test_settling_after_close_says_closed(face: type, store_path: Path | None) -> None:
    rig = Rig(face, store_path)
    rig.send("q", 1)
    message = rig.one("q")
    rig.close()
    for settle in (message.complete, message.abandon, message.defer, message.dead_letter, message.renew_lock):
        with pytest.raises(BusClosed):
            rig.do(settle)
    rig.end()


# The block of the sync face


def test_leaving_the_block_completes(sync_rig: Rig) -> None:
    sync_rig.send("q", 1)
    with sync_rig.one("q") as message:
        assert message.body == 1
    assert sync_rig.counts("q") == (0, 0, 0, 0, 0)


def test_raising_in_the_block_abandons_and_says_why(sync_rig: Rig) -> None:
    sync_rig.send("q", 1)
    with pytest.raises(ValueError, match="wrong"), sync_rig.one("q"):
        raise ValueError("wrong")
    again = sync_rig.one("q")
    assert (again.delivery_count, again.headers["LastError"]) == (2, "ValueError: wrong")


def test_ending_the_program_in_the_block_releases(sync_rig: Rig) -> None:
    sync_rig.send("q", 1)
    with pytest.raises(KeyboardInterrupt), sync_rig.one("q"):
        raise KeyboardInterrupt
    assert sync_rig.one("q").delivery_count == 1


def test_settled_in_the_block_it_is_left_alone(sync_rig: Rig) -> None:
    sync_rig.send("q", 1)
    with sync_rig.one("q") as message:
        message.defer()
    with fails(ValueError, match="late"), sync_rig.receive_deferred("q", [1])[0] as message:
        message.complete()
        raise ValueError("late")
    assert sync_rig.counts("q") == (0, 0, 0, 0, 0)


def test_a_thread_learns_of_its_lost_lock_at_the_end(sync_rig: Rig, hand_clock: HandClock) -> None:
    sync_rig.send("q", 1)
    with pytest.raises(LockLost), sync_rig.one("q"):
        hand_clock.advance(61)
    assert sync_rig.one("q", 0).delivery_count == 2


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt("mine")], ids=["error", "interrupt"])
def test_the_callers_own_error_is_not_hidden_by_a_lost_lock(
    sync_rig: Rig, hand_clock: HandClock, error: BaseException
) -> None:
    sync_rig.send("q", 1)
    with fails(type(error), match="mine"), sync_rig.one("q"):
        hand_clock.advance(61)
        raise error
    assert sync_rig.one("q", 0).delivery_count == 2


# The block of the async face


async def test_leaving_the_async_block_completes(hand_bus: MessageBus) -> None:
    await hand_bus.send("q", 1)
    async for message in hand_bus.receive("q", timeout=0):
        async with message as same:
            assert same is message
    assert await counts(hand_bus) == (0, 0)


async def test_raising_in_the_async_block_abandons(hand_bus: MessageBus) -> None:
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    with pytest.raises(ValueError, match="wrong"):
        async with message:
            raise ValueError("wrong")
    (again,) = await hand_bus.receive_batch("q")
    assert (again.delivery_count, again.headers["LastError"]) == (2, "ValueError: wrong")


async def test_cancelling_in_the_async_block_releases(hand_bus: MessageBus) -> None:
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")

    async def work() -> None:
        async with message:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (again,) = await hand_bus.receive_batch("q")
    assert again.delivery_count == 1


async def test_cancelled_with_an_ended_lock_is_still_cancelled(hand_bus: MessageBus, hand_clock: HandClock) -> None:
    # Anything else than CancelledError would break the time-out that the caller has set.
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")

    async def work() -> None:
        async with message:
            hand_clock.advance(61)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await work()
    (again,) = await hand_bus.receive_batch("q", timeout=0)
    assert again.delivery_count == 2


async def test_an_error_of_the_body_is_not_hidden_by_a_lost_lock(hand_bus: MessageBus, hand_clock: HandClock) -> None:
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    with fails(ValueError, match="mine"):
        async with message:
            hand_clock.advance(61)
            raise ValueError("mine")


async def test_a_lost_lock_stops_the_body(hand_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers) -> None:
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    entered = asyncio.Event()
    reached = []

    async def work() -> None:
        async with message:
            entered.set()
            await asyncio.Event().wait()
            reached.append("the end")

    task = asyncio.create_task(work())
    await entered.wait()
    hand_clock.advance(61)
    hand_timers.fire()
    with pytest.raises(LockLost):
        await asyncio.wait_for(task, GUARD_S)
    assert reached == []
    assert message.settled
    (again,) = await hand_bus.receive_batch("q", timeout=0)
    assert again.delivery_count == 2
    await again.complete()


async def test_the_task_goes_on_after_its_lock_was_lost(
    hand_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # The cancelling was ours, so it must leave no trace: neither a count, nor one that comes later.
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    with fails(LockLost):
        async with message:
            hand_clock.advance(61)
            hand_timers.fire()
            await asyncio.sleep(GUARD_S)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0.01)
    async with asyncio.timeout(GUARD_S):
        await asyncio.sleep(0)


async def test_a_lock_lost_as_the_block_ends_cancels_nobody_later(
    hand_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    # The news is on its way to the loop while the body returns.
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    with fails(LockLost):
        async with message:
            hand_clock.advance(61)
            hand_timers.fire()
    for _ in range(5):
        await asyncio.sleep(0)  # A stray cancelling would come here.
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_that_swallows_the_cancelling_is_told_all_the_same(
    hand_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    with fails(LockLost):
        async with message:
            hand_clock.advance(61)
            hand_timers.fire()
            try:
                await asyncio.sleep(GUARD_S)
            except asyncio.CancelledError:
                pass


async def test_what_was_settled_in_the_block_is_not_stopped(
    hand_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    await hand_bus.send("q", 1)
    (message,) = await hand_bus.receive_batch("q")
    async with message:
        await message.complete()
        hand_clock.advance(61)
        hand_timers.fire()
        await asyncio.sleep(0.01)
    assert await counts(hand_bus) == (0, 0)


def test_a_received_message_has_the_common_fields() -> None:
    with SyncMessageBus() as bus:
        bus.send("q", b"{}", content_type="application/json", subject="s", reply_to="answers")
        [message] = bus.receive_batch("q", timeout=0, mode="receive_and_delete")
    assert (message.content_type, message.subject, message.reply_to) == ("application/json", "s", "answers")


def test_a_message_that_is_not_settled_at_the_end_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SyncMessageBus(tmp_path / "bus.db") as bus:
        bus.send_many("q", [1, 2])
        bus.send("settled", 1)
        for message in bus.receive_batch("settled", timeout=0):
            message.complete()
        [kept] = bus.receive_batch("q", timeout=0)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "WARNING",
            "1 message of 'q' was received and not settled: it is redelivered when its lock ends (lock_duration of the "
            "queue)",
        )
    ]
    assert not kept.settled


async def test_the_async_bus_logs_it_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus(tmp_path / "bus.db") as bus:
        await bus.send_many("q", [1, 2])
        await bus.receive_batch("q", 2, timeout=0)
    assert [each.getMessage() for each in caplog.records] == [
        "2 messages of 'q' were received and not settled: they are redelivered when their locks end (lock_duration of "
        "the queue)"
    ]
