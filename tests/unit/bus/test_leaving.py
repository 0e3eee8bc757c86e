"""Leaving the block of a bus: what it waits for, what ends the wait, and what the log says."""

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Flaky, Gate, assert_all_end, event_wait
from tests.unit.bus.test_at_exit import wait_for_line
from tests.unit.bus.test_closing import wait_for_callers
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.shutdown import closing, unhandled
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed
from unibus.testing.clock.virtual_clock import VirtualClock

HOUR_S = 3600.0
UNDELIVERED = " undelivered"


class FastTime:
    """The time that limits of closing are measured by, which a test can move on."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    def move(self, seconds: float) -> None:
        self._ahead_s += seconds


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> FastTime:
    made = FastTime()
    monkeypatch.setattr(closing, "time", made)
    monkeypatch.setattr(unhandled, "time", made)
    return made


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says at once what is waited for."""
    monkeypatch.setattr(unhandled, "PROGRESS_S", 0.0)


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def leave(bus: SyncMessageBus, error: type[BaseException] | None = None) -> threading.Thread:
    """Leave the block of the bus in a thread, once everything was published."""
    thread = in_thread(lambda: bus.__exit__(error, None, None))
    wait_for_callers(bus, 1)  # One that waited to the end stays there.
    return thread


def pass_an_hour(bus: MessageBus | SyncMessageBus, fast: FastTime) -> None:
    """Let every limit run out, until closing has noticed: it looks once more, or it has given up its wait."""
    work = bus._runtime.shutdown.closing
    looked = threading.Event()
    is_over = bus._runtime.shutdown._unhandled._is_over

    def look() -> bool:
        looked.set()
        return is_over()

    bus._runtime.shutdown._unhandled._is_over = look  # type: ignore[method-assign]
    fast.move(HOUR_S)
    work.wake()
    for _ in range(int(GUARD_S * 200)):
        if looked.wait(0.005) or bus._runtime.delivery.paused:
            return
    raise AssertionError("closing did not look")


def stored_in_memory() -> SyncMessageBus:
    """A bus with a persistent channel whose store ends with the bus."""
    bus = SyncMessageBus()
    bus.with_persistence("memory://")
    bus.create_channel("c", persistent=True)
    return bus


# What is waited for


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_leaving_waits_for_the_backlog_however_long_it_takes(kind: str, fast: FastTime) -> None:
    bus = SyncMessageBus()
    gate = Gate()

    async def async_handler(message: Message) -> None:
        await asyncio.to_thread(gate, message)

    bus.subscribe("c", gate if kind == "sync" else async_handler, concurrency=1)
    bus.publish_many("c", range(20))
    gate.wait_entered()
    left = leave(bus)
    pass_an_hour(bus, fast)
    gate.open()
    assert_all_end({left})
    assert [message.body for message in gate.messages] == list(range(20))


async def test_leaving_an_async_block_waits_for_the_backlog(fast: FastTime) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    got: list[object] = []

    async def handler(message: Message) -> None:
        entered.set()
        await go_on.wait()
        got.append(message.body)

    bus = MessageBus()
    async with bus:
        bus.subscribe("c", handler, concurrency=1)
        await bus.publish_many("c", range(20))
        await asyncio.wait_for(entered.wait(), GUARD_S)
        leaving = asyncio.create_task(bus.__aexit__(None, None, None))
        await asyncio.sleep(0)
        pass_an_hour(bus, fast)
        go_on.set()
        await asyncio.wait_for(leaving, GUARD_S)
    assert got == list(range(20))


def test_what_handlers_publish_while_the_block_is_left_is_handled(fast: FastTime) -> None:
    bus = SyncMessageBus()
    gate, results = Gate(), Collector()

    def handler(message: Message) -> None:
        gate(message)
        bus.publish("out", message.body)

    bus.subscribe("in", handler)
    bus.subscribe("out", results)
    bus.publish_many("in", range(5))
    gate.wait_entered()
    left = leave(bus)
    pass_an_hour(bus, fast)
    gate.open()
    assert_all_end({left})
    assert results.bodies == list(range(5))


def test_a_handler_on_a_loop_that_was_just_made_is_waited_for() -> None:
    # The thread of the bus's own loop may not run when closing looks for the first time.
    for _ in range(20):
        got = Collector()

        async def handler(message: Message, got: Collector = got) -> None:
            got(message)

        with SyncMessageBus() as bus:
            bus.subscribe("c", handler)
            bus.publish("c", 1)
        assert got.bodies == [1]


def test_a_retry_that_is_near_is_waited_for() -> None:
    clock = VirtualClock()
    bus = SyncMessageBus(clock=clock)
    handler = Flaky(failures=1)
    bus.subscribe("c", handler, retry_delay=4.0, retry_jitter=0.0)
    bus.publish("c", "x")
    clock.advance(0.0)
    left = leave(bus)
    clock.advance(4.0)
    assert_all_end({left})
    assert [count for _, count in handler.seen] == [1, 2]


def test_a_retry_that_is_far_is_reported_and_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    bus = SyncMessageBus(clock=clock)
    handler = Flaky(failures=1)
    bus.subscribe("c", handler, group="g", retry_delay=6.0, retry_jitter=0.0)
    bus.publish("c", "x")
    clock.advance(0.0)
    assert_all_end({leave(bus)})
    assert [count for _, count in handler.seen] == [1]
    assert "1 message undelivered: 1 of channel 'c' (g)" in caplog.text


def test_a_clock_that_does_not_move_holds_up_nothing(fast: FastTime, caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    bus = SyncMessageBus(clock=clock)
    bus.subscribe("c", Flaky(failures=1), retry_delay=1.0, retry_jitter=0.0)
    bus.publish("c", "x")
    clock.advance(0.0)
    left = leave(bus)
    while left.is_alive():
        pass_an_hour(bus, fast)
        left.join(0.01)
    assert UNDELIVERED in caplog.text


# What is not waited for


def test_messages_without_a_subscriber_are_reported_and_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    bus.create_channel("audit")
    bus.publish_many("audit", range(3))
    bus.send("q", 1)
    bus.send("q", 2, delay=HOUR_S)
    assert_all_end({leave(bus)})
    lines = [record.getMessage() for record in caplog.records if UNDELIVERED in record.getMessage()]
    assert len(lines) == 1
    assert "5 messages undelivered" in lines[0]
    assert "3 of channel 'audit', which has no subscriber" in lines[0]
    assert "2 in queue 'q' (1 scheduled)" in lines[0]


def test_a_bus_that_was_stopped_does_not_wait_for_its_backlog(caplog: pytest.LogCaptureFixture) -> None:
    got = Collector()
    bus = SyncMessageBus()
    bus.subscribe("c", got, group="g")
    assert bus.stop(GUARD_S)
    bus.publish_many("c", range(3))
    assert_all_end({leave(bus)})
    assert got.bodies == []
    assert "3 messages undelivered: 3 of channel 'c' (g)" in caplog.text


def test_handlers_on_a_loop_that_does_not_run_are_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    bus = MessageBus()

    async def use() -> None:
        async def handler(message: Message) -> None:
            await asyncio.Event().wait()

        bus.subscribe("c", handler, group="g")
        await bus.publish_many("c", range(2))
        await asyncio.sleep(0)

    loop.run_until_complete(use())
    left = in_thread(lambda: asyncio.run(bus.__aexit__(None, None, None)))
    assert_all_end({left})
    assert UNDELIVERED in caplog.text
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_dead_lettered_messages_are_not_reported_again(caplog: pytest.LogCaptureFixture) -> None:
    with SyncMessageBus() as bus:
        bus.create_channel("d", dead_letter_channel="failed")
        for channel in ("c", "d"):
            bus.subscribe(channel, Flaky(failures=9), retry_attempts=0)
            bus.publish(channel, 1)
    assert UNDELIVERED not in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_waits_in_a_durable_store_stays_there(
    kind: str, folder: Path, caplog: pytest.LogCaptureFixture, fast: FastTime
) -> None:
    caplog.set_level(logging.INFO, "unibus")
    bus = SyncMessageBus(folder / "bus.db")
    gate = Gate()

    async def async_handler(message: Message) -> None:
        await asyncio.to_thread(gate, message)

    bus.subscribe("c", gate if kind == "sync" else async_handler, group="g", concurrency=1)
    bus.publish_many("c", range(100))
    gate.wait_entered()
    left = leave(bus)
    pass_an_hour(bus, fast)
    gate.open()
    assert_all_end({left})
    assert [message.body for message in gate.messages] == [0]  # It had begun, and was completed.
    assert UNDELIVERED not in caplog.text
    assert "99 messages of 'c/Subscriptions/g' stay in sqlite:" in caplog.text
    got = Collector()
    with SyncMessageBus(folder / "bus.db") as again:
        again.subscribe("c", got, group="g")
        assert got.wait(99) == list(range(1, 100))


def test_a_store_in_memory_is_drained_like_the_bus() -> None:
    got = Collector()
    with stored_in_memory() as bus:
        bus.subscribe("c", got, group="g", concurrency=1)
        bus.publish_many("c", range(200))
    assert got.bodies == list(range(200))


def test_a_stopped_bus_over_a_store_in_memory_reports_what_it_holds(caplog: pytest.LogCaptureFixture) -> None:
    bus = stored_in_memory()
    bus.subscribe("c", Collector(), group="g")
    assert bus.stop(GUARD_S)
    bus.publish_many("c", range(3))
    assert_all_end({leave(bus)})
    assert "3 messages undelivered: 3 in subscription 'c/Subscriptions/g'" in caplog.text


# What ends the wait


def test_a_block_that_is_left_by_an_error_has_the_limit_of_close(fast: FastTime) -> None:
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate)
    bus.publish("c")
    gate.wait_entered()
    left = leave(bus, ZeroDivisionError)
    pass_an_hour(bus, fast)
    assert_all_end({left})
    gate.open()


def test_another_close_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate, group="g", concurrency=1)
    bus.publish_many("c", range(3))
    gate.wait_entered()
    left = leave(bus)
    bus.close(drain_timeout=0)
    assert_all_end({left})
    assert "3 messages undelivered: 3 of channel 'c' (g)" in caplog.text  # One of them in-flight.
    gate.open()


async def test_a_cancelled_task_ends_the_wait_for_handlers() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bus = MessageBus()
    bus.subscribe("c", handler)
    await bus.publish("c")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    leaving = asyncio.create_task(bus.__aexit__(None, None, None))
    await asyncio.sleep(0)
    assert not leaving.done()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await asyncio.wait_for(cancelled.wait(), GUARD_S)
    await asyncio.wait_for(bus.close(None), GUARD_S)


@pytest.mark.skipif(sys.platform == "win32", reason="a thread cannot be sent a signal")
def test_ctrl_c_ends_the_wait_for_handlers(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate, group="g", concurrency=1)
    bus.publish_many("c", range(3))
    gate.wait_entered()
    main, is_interrupted = threading.get_ident(), threading.Event()

    def interrupt_once(number: int, frame: object) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        wait_for_callers(bus, 1)
        while not is_interrupted.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt_once)
    interrupter = in_thread(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            bus.__exit__(None, None, None)
        assert_all_end({interrupter})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert bus._runtime.shutdown.closing.wait(GUARD_S)  # The handler was not let go: no limit would not end this.
    assert "3 messages undelivered" in caplog.text
    gate.open()


@pytest.mark.parametrize("place", ["pool", "loop"])
def test_a_handler_may_leave_the_block_of_its_own_bus(place: str) -> None:
    bus = SyncMessageBus()
    ended = threading.Event()

    def handler(message: Message) -> None:
        with bus:
            pass
        ended.set()

    async def async_handler(message: Message) -> None:
        handler(message)

    async def other(message: Message) -> None: ...

    bus.subscribe("c", handler if place == "pool" else async_handler)
    bus.subscribe("d", other)  # On the loop that the async handler blocks.
    bus.publish("d")
    bus.publish("c")
    event_wait(ended)
    with pytest.raises(BusClosed):
        bus.publish("c")


async def test_an_async_handler_may_leave_the_block_of_its_own_bus() -> None:
    bus = MessageBus()
    ended = asyncio.Event()

    async def handler(message: Message) -> None:
        await bus.__aexit__(None, None, None)
        ended.set()

    bus.subscribe("c", handler)
    await bus.publish("c")
    await asyncio.wait_for(ended.wait(), GUARD_S)


def test_handlers_of_several_loops_and_threads_are_waited_for(fast: FastTime) -> None:
    bus = MessageBus()
    gates = [Gate(), Gate()]
    ready, end = threading.Barrier(3), threading.Event()

    def run(gate: Gate) -> None:
        async def handler(message: Message) -> None:
            await asyncio.to_thread(gate, message)

        async def main() -> None:
            bus.subscribe("c", handler, group=f"g{gates.index(gate)}", concurrency=1)
            ready.wait(GUARD_S)
            await asyncio.to_thread(event_wait, end)

        asyncio.run(main())

    threads = {in_thread(lambda gate=gate: run(gate)) for gate in gates}  # type: ignore[misc]
    ready.wait(GUARD_S)
    sync = Gate()
    bus.subscribe("c", sync, concurrency=1)
    for number in range(5):
        bus.publish_from_sync("c", number)
    for gate in [*gates, sync]:
        gate.wait_entered()
    left = in_thread(lambda: asyncio.run(bus.__aexit__(None, None, None)))
    wait_for_callers(bus, 1)
    pass_an_hour(bus, fast)
    for gate in [*gates, sync]:
        gate.open()
    assert_all_end({left})
    for gate in [*gates, sync]:
        assert [message.body for message in gate.messages] == list(range(5))
    end.set()
    assert_all_end(threads)


# The log


@pytest.mark.usefixtures("noisy")
def test_the_log_says_again_and_again_what_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("orders", gate, group="billing", concurrency=1)
    bus.publish_many("orders", range(3))
    gate.wait_entered()
    left = leave(bus)
    line = wait_for_line(caplog, "close() waits for")
    assert "1 running handler and 2 waiting messages of channel 'orders' (billing)" in line
    caplog.clear()
    wait_for_line(caplog, "close() waits for")
    gate.open()
    assert_all_end({left})


def test_a_bus_that_has_nothing_to_handle_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unibus")
    got = Collector()
    with SyncMessageBus() as bus:
        bus.subscribe("c", got)
        bus.publish_many("c", range(100))
    assert got.bodies == list(range(100))
    assert caplog.text == ""


def test_many_channels_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with SyncMessageBus() as bus:
        for number in range(12):
            bus.create_channel(f"c{number}")
            bus.publish(f"c{number}")
    lines = [record.getMessage() for record in caplog.records if UNDELIVERED in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].endswith("and in 2 other places")
