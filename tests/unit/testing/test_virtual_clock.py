"""The clock itself: when it moves, what it fires, and what it waits for."""

import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.timers import ThreadTimers
from unibus.clock import Clock
from unibus.core.envelope.message import Message
from unibus.errors import LoopMismatch, UsageError
from unibus.testing import VirtualClock

MS = 1_000_000


def at_rest() -> bool:
    return True


def test_time_stands_still_until_it_is_told_to_move():
    clock = VirtualClock()
    first = clock.wall_ns(), clock.monotonic_ns()
    time.sleep(0.002)
    assert (clock.wall_ns(), clock.monotonic_ns()) == first


def test_advance_moves_both_readings_by_the_same():
    clock = VirtualClock(datetime(2030, 5, 1, 12, tzinfo=UTC))
    wall, monotonic = clock.wall_ns(), clock.monotonic_ns()
    clock.advance(1.5)
    assert clock.wall_ns() - wall == clock.monotonic_ns() - monotonic == 1_500 * MS
    assert clock.elapsed == 1.5
    assert clock.now() == datetime(2030, 5, 1, 12, 0, 1, 500_000, tzinfo=UTC)


def test_ten_tenths_are_one_second():
    clock = VirtualClock()
    for _ in range(10):
        clock.advance(0.1)
    assert clock.monotonic_ns() == 1_000 * MS


def test_the_start_may_be_in_any_time_zone_but_not_in_none():
    east = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert VirtualClock(east).now() == datetime(2030, 1, 1, tzinfo=UTC)
    assert VirtualClock(east).wall_ns() == 1_893_456_000 * 1_000 * MS
    with pytest.raises(UsageError, match="time zone"):
        VirtualClock(datetime(2030, 1, 1))


@pytest.mark.parametrize("seconds", [-0.001, float("nan"), float("inf")])
def test_time_moves_forward_by_a_finite_amount(seconds):
    clock = VirtualClock()
    with pytest.raises(UsageError, match="set_wall"):
        clock.advance(seconds)
    assert clock.elapsed == 0


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_jump_of_the_wall_clock_is_no_passing_of_time(jump):
    clock = VirtualClock()
    fired = []
    clock.timers(at_rest).after(1, lambda: fired.append("early"))
    target = clock.now() + jump
    clock.set_wall(target)
    assert (clock.now(), clock.monotonic_ns(), fired) == (target, 0, [])
    clock.advance(2)
    assert clock.now() == target + timedelta(seconds=2)


def test_timers_fire_in_order_and_each_reads_its_own_instant():
    clock = VirtualClock()
    timers = clock.timers(at_rest)
    fired = []
    for delay in (30, 10, 20):
        timers.after(delay * MS, lambda delay=delay: fired.append((delay, clock.elapsed)))
    clock.advance(1)
    assert fired == [(10, 0.01), (20, 0.02), (30, 0.03)]
    assert clock.elapsed == 1


def test_timers_of_one_instant_fire_in_the_order_of_their_making_across_buses():
    clock = VirtualClock()
    one, other = clock.timers(at_rest), clock.timers(at_rest)
    fired = []
    for number, timers in enumerate((one, other, one, other)):
        timers.after(MS, lambda number=number: fired.append(number))
    clock.advance(0.001)
    assert fired == [0, 1, 2, 3]


def test_a_timer_fires_at_its_nanosecond_and_not_before():
    clock = VirtualClock()
    fired = []
    clock.timers(at_rest).after(1_000, lambda: fired.append(clock.monotonic_ns()))
    clock.advance(999e-9)
    assert fired == []
    clock.advance(1e-9)
    assert fired == [1_000]


def test_a_timer_that_a_timer_makes_fires_in_the_same_advance_if_it_is_due():
    clock = VirtualClock()
    timers = clock.timers(at_rest)
    ticks = []

    def tick():
        ticks.append(clock.elapsed)
        timers.after(400 * MS, tick)

    timers.after(400 * MS, tick)
    clock.advance(1)
    assert ticks == [0.4, 0.8]
    clock.advance(0.2)
    assert ticks == [0.4, 0.8, 1.2]


def test_stopped_timers_forget_their_own_calls_only():
    clock = VirtualClock()
    one, other = clock.timers(at_rest), clock.timers(at_rest)
    fired = []
    one.after(MS, lambda: fired.append("one"))
    other.after(MS, lambda: fired.append("other"))
    one.stop()
    one.after(MS, lambda: fired.append("late"))
    clock.advance(1)
    assert fired == ["other"]


def test_run_timers_goes_to_the_last_one_and_no_further():
    clock = VirtualClock()
    timers = clock.timers(at_rest)
    timers.after(MS, lambda: timers.after(2 * MS, lambda: None))
    clock.run_timers()
    assert clock.monotonic_ns() == 3 * MS


def test_run_timers_of_one_bus_leaves_the_later_ones_of_another():
    clock = VirtualClock()
    one, other = clock.timers(at_rest), clock.timers(at_rest)
    fired = []
    one.after(2 * MS, lambda: fired.append("one"))
    other.after(MS, lambda: fired.append("other, on the way"))
    other.after(9 * MS, lambda: fired.append("other, later"))
    clock.run_timers(one)
    assert fired == ["other, on the way", "one"]
    assert clock.monotonic_ns() == 2 * MS


def test_between_two_timers_the_clock_waits_for_whoever_is_at_work():
    clock = VirtualClock()
    work = threading.Semaphore(0)
    resting = threading.Event()
    resting.set()
    seen = []

    def worker():
        for _ in range(3):
            work.acquire()
            time.sleep(0.002)
            seen.append(clock.elapsed)
            resting.set()

    thread = threading.Thread(target=worker)
    thread.start()
    timers = clock.timers(resting.is_set)

    def start_work():
        resting.clear()
        work.release()

    for second in (1, 2, 3):
        timers.after(second * 1_000 * MS, start_work)
    clock.advance(10)
    thread.join()
    assert seen == [1.0, 2.0, 3.0]


def test_a_handler_that_does_not_return_is_reported_and_the_clock_stays():
    clock = VirtualClock()
    clock.timers(lambda: False)
    with pytest.raises(TimeoutError, match="settle=False"):
        clock.advance(1, timeout=0.001)
    assert clock.elapsed == 0
    clock.advance(1, settle=False)
    assert clock.elapsed == 1


async def test_a_handler_that_does_not_return_is_reported_on_a_loop_too():
    clock = VirtualClock()
    clock.timers(lambda: False)
    with pytest.raises(TimeoutError, match="settle=False"):
        await clock.advance_async(1, timeout=0.001)
    await clock.advance_async(1, settle=False)
    assert clock.elapsed == 1


async def test_on_a_loop_the_blocking_ways_are_refused_and_nothing_moves():
    clock = VirtualClock()
    fired = []
    clock.timers(at_rest).after(MS, lambda: fired.append("fired"))
    with pytest.raises(LoopMismatch, match="advance_async"):
        clock.advance(1)
    with pytest.raises(LoopMismatch, match="run_timers_async"):
        clock.run_timers()
    assert (clock.elapsed, fired) == (0, [])
    clock.advance(1, settle=False)
    assert (clock.elapsed, fired) == (1, ["fired"])


def test_entered_it_gives_its_time_to_messages_that_are_made_outside_of_a_bus():
    start = datetime(2040, 1, 1, tzinfo=UTC)
    with VirtualClock(start) as clock, VirtualClock() as inner:
        assert Message.new("orders").timestamp_ns == inner.wall_ns()
        inner.advance(1)
        assert Message.new("orders").timestamp_ns == inner.wall_ns()
        assert clock.now() == start
    assert abs(Message.new("orders").timestamp_ns - time.time_ns()) < 60_000 * MS


def test_a_real_clock_brings_no_timers_so_the_bus_has_a_thread_for_them():
    with SyncMessageBus() as bus:
        assert isinstance(bus._runtime.timers, ThreadTimers)
    assert Clock().timers(at_rest) is None


def test_a_bus_that_was_closed_is_not_waited_for():
    clock = VirtualClock()
    started, release = threading.Event(), threading.Event()

    def stuck():
        started.set()
        release.wait(5)

    bus = SyncMessageBus(clock=clock)
    bus.subscribe("orders", stuck)
    bus.publish("orders")
    assert started.wait(5)
    with pytest.raises(TimeoutError):
        clock.advance(1, timeout=0.001)
    bus.close(drain_timeout=0.001)
    clock.advance(1)
    assert clock.elapsed == 1
    release.set()


def test_a_stopped_bus_is_not_waited_for_and_goes_on_later():
    clock = VirtualClock()
    with SyncMessageBus(clock=clock) as bus:
        seen = []
        bus.subscribe("orders", lambda message: seen.append(message.body))
        bus.stop()
        bus.publish("orders", 1)
        clock.advance(1)
        assert seen == []
        bus.start()
        clock.advance(0)
        assert seen == [1]


async def test_one_argument_is_enough_for_time_and_timers():
    clock = VirtualClock(datetime(2031, 1, 1, tzinfo=UTC))
    seen = []

    async def fails_once(message):
        seen.append((clock.elapsed, message.timestamp_ns))
        if len(seen) == 1:
            raise ValueError("once")

    async with MessageBus(clock=clock) as bus:
        bus.subscribe("orders", fails_once, retry_delay=30.0, retry_jitter=0.0)
        await bus.publish("orders")
        made = clock.wall_ns()
        await clock.advance_async(30)
    assert seen == [(0.0, made), (30.0, made)]
