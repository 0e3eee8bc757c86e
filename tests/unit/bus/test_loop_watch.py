"""A handler that blocks its event loop is named, once a minute; one that only takes long is not."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S, HandClock, HandTimers
from unibus import Message, MessageBus
from unibus.bus.execution.loop_watch import LOOK_NS, LoopWatch
from unibus.testing import VirtualClock

Handler = Callable[[Message], Awaitable[None]]


class Rig:
    """A bus whose looks are made by the test, with a clock by hand: no real time passes."""

    def __init__(self, url: str = "memory") -> None:
        self.time = HandClock()
        self.timers = HandTimers()
        self.bus = MessageBus(clock=self.time.clock())
        if url != "memory":
            self.bus = MessageBus(url, clock=self.time.clock())
        executors: Any = self.bus._runtime.executors
        executors._timers = self.timers

    @property
    def watch(self) -> LoopWatch:
        (executor,) = self.bus._runtime.executors._executors.values()
        return executor.watch

    def block(self, seconds: float, looks: int = 3) -> None:
        """What a blocking call does: time passes, other threads run, and the loop does nothing."""
        self.watch.look()
        self.time.advance(seconds)
        for _ in range(looks - 1):
            self.watch.look()

    async def run(self, handler: Handler, times: int = 1, group: str = "g") -> None:
        self.bus.subscribe("c", handler, group=group)
        for _ in range(times):
            await self.bus.publish("c", 1)
            await self.bus.drain(GUARD_S)
            await asyncio.sleep(0)  # The answer is behind the slot in the loop's queue.
        await self.bus.close(GUARD_S)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "the event loop" in each.getMessage()]


@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_a_handler_that_blocks_the_loop_is_named_with_its_line(
    place: str, folder: object, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(place if place == "memory" else f"sqlite:///{folder}/store.db")

    async def sleepy(message: Message) -> None:
        await asyncio.sleep(0)
        rig.block(2.0)

    await rig.run(sleepy)
    (line,) = lines(caplog)
    assert f"handler {__name__}.test_a_handler_that_blocks_the_loop_is_named" in line
    assert "sleepy of group 'g' blocked the event loop for 2.0 s at " in line
    assert f"{__file__}:" in line
    assert "asyncio.to_thread" in line
    assert [each.levelno for each in caplog.records if "the event loop" in each.getMessage()] == [logging.WARNING]


async def test_each_handler_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    async def sleepy(message: Message) -> None:
        rig.block(2.0)

    await rig.run(sleepy, times=32)  # 64 seconds.
    assert len(lines(caplog)) == 2


async def test_a_handler_that_waits_without_blocking_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    async def patient(message: Message) -> None:
        for _ in range(5):
            rig.watch.look()
            await asyncio.sleep(0)
            rig.time.advance(2.0)

    await rig.run(patient)
    assert lines(caplog) == []


@pytest.mark.parametrize(("seconds", "looks"), [(0.9, 3), (2.0, 2)], ids=["short", "seen once"])
async def test_a_short_block_and_a_suspended_process_are_not_named(
    seconds: float, looks: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()

    async def sleepy(message: Message) -> None:
        rig.block(seconds, looks)

    await rig.run(sleepy)
    assert lines(caplog) == []


async def test_other_code_that_blocks_the_loop_names_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    started, ended = asyncio.Event(), asyncio.Event()

    async def patient(message: Message) -> None:
        started.set()
        await ended.wait()

    rig.bus.subscribe("c", patient, group="g")
    await rig.bus.publish("c", 1)
    await started.wait()
    rig.block(2.0)
    await asyncio.sleep(0)
    ended.set()
    await rig.bus.close(GUARD_S)
    assert lines(caplog) == []


async def test_a_handler_that_never_ends_is_named_while_it_blocks(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    async def stuck(message: Message) -> None:
        rig.block(1.0)
        rig.time.advance(10.0)
        rig.watch.look()
        seen.extend(lines(caplog))

    seen: list[str] = []
    await rig.run(stuck)
    assert "stuck of group 'g' has blocked the event loop for 11.1 s and still does at " in seen[0]
    assert lines(caplog) == seen  # Not once more at its end.


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task does not show its context")
async def test_a_task_that_a_handler_has_started_counts_as_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    async def part() -> None:
        rig.block(2.0)

    async def starts(message: Message) -> None:
        await asyncio.create_task(part())

    await rig.run(starts)
    assert "starts of group 'g' blocked" in lines(caplog)[0]


async def test_an_idle_loop_is_not_asked() -> None:
    rig = Rig()

    async def quick(message: Message) -> None:
        pass

    rig.bus.subscribe("c", quick, group="g")
    await rig.bus.publish("c", 1)
    await rig.bus.drain(GUARD_S)
    assert rig.timers.delays_ns == [LOOK_NS]
    rig.timers.fire()
    assert rig.timers.delays_ns == [LOOK_NS]  # The look found nothing running, and was the last.
    await rig.bus.publish("c", 1)
    await rig.bus.drain(GUARD_S)
    assert rig.timers.delays_ns == [LOOK_NS] * 2
    await rig.bus.close(GUARD_S)


def test_a_loop_that_does_not_run_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    time, timers = HandClock(), HandTimers()
    loop = asyncio.new_event_loop()
    watch = LoopWatch(loop, timers, lambda: time.monotonic)
    try:
        watch.busy = 1
        loop.call_soon(watch.start)
        loop.call_soon(watch.look)  # Asks.
        loop.call_soon(loop.stop)
        loop.run_forever()
        time.advance(60.0)
        timers.fire()
        timers.fire()
        assert timers.delays_ns == [LOOK_NS] * 2
    finally:
        loop.close()
    watch.look()
    assert lines(caplog) == []


def test_a_bus_looks_by_itself_in_real_time_only() -> None:
    real, virtual = MessageBus(), MessageBus(clock=VirtualClock())
    assert real._runtime.executors._timers is real._runtime.timers
    assert virtual._runtime.executors._timers is None
