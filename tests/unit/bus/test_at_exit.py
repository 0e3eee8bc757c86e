"""The end of a program that did not close its bus: it waits a moment for handlers, and says so."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, assert_all_end, bus_threads, event_wait
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.execution.retries import PendingRetries
from unibus.bus.pubsub.group import Group
from unibus.bus.shutdown.at_exit import Exit, finish
from unibus.bus.shutdown.closing import ClosingStep
from unibus.bus.shutdown.steps import Shutdown
from unibus.bus.shutdown.unhandled import described
from unibus.core.envelope.message import Message
from unibus.core.flow.metrics import ChannelMetrics

NOTICE = "before exit; call bus.close()"


def wait_for_line(caplog: pytest.LogCaptureFixture, text: str) -> str:
    """The line of the log that has it, which must come."""
    for _ in range(int(GUARD_S * 200)):
        for record in list(caplog.records):
            if text in record.getMessage():
                return record.getMessage()
        threading.Event().wait(0.005)
    raise AssertionError(f"no such line: {caplog.text}")


def ending(bus: SyncMessageBus | MessageBus) -> threading.Thread:
    """The end of the program, for this bus; it says at once what it waits for."""
    ends = Exit(bus._runtime.shutdown, GUARD_S, 0.0)
    thread = threading.Thread(target=ends.run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("channel", ["memory", "store"])
def test_it_says_which_bus_waits_for_which_handlers(
    kind: str, channel: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bus = SyncMessageBus(f"sqlite:///{tmp_path}/bus.db" if channel == "store" else None)
    entered, go_on = threading.Event(), threading.Event()

    def bill(message: Message) -> None:
        entered.set()
        event_wait(go_on)

    async def bill_async(message: Message) -> None:
        entered.set()
        await asyncio.to_thread(event_wait, go_on)

    bus.subscribe("orders", bill if kind == "sync" else bill_async, group="billing")
    bus.publish("orders", 1)
    event_wait(entered)
    end = ending(bus)
    line = wait_for_line(caplog, NOTICE)
    assert "1 running handler of channel 'orders' (billing)" in line
    assert f"of the bus {bus._runtime.shutdown.url} " in line
    assert end.is_alive()
    go_on.set()
    assert_all_end({end})
    assert bus._runtime.shutdown.closing.is_done
    assert "unhandled" not in caplog.text


def test_an_open_store_call_is_no_retry() -> None:
    group = Group(1, "billing", 0)
    group.metrics = ChannelMetrics("orders")
    group.delayed = 1  # As a pump counts it.
    retries = PendingRetries(lambda: 0)
    assert described([group], retries) == "an open store call of channel 'orders' (billing)"
    group.running = 1
    assert described([group], retries) == "1 running handler of channel 'orders' (billing)"
    retries.add(group, 1)
    assert described([group], retries) == "1 running handler and 1 retry of channel 'orders' (billing)"


def test_handlers_that_are_done_are_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    got = Collector()
    bus.subscribe("c", got)
    for number in range(10):
        bus.publish("c", number)
    assert bus.drain(GUARD_S)
    assert_all_end({ending(bus)})
    assert caplog.text == ""


def test_what_is_left_at_the_time_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    before = bus_threads()
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate, concurrency=1)
    for number in range(3):
        bus.publish("c", number)
    gate.wait_entered()
    finish([bus._runtime.shutdown], 0.0)
    assert "with 3 messages undelivered: 3 of channel 'c' (" in caplog.text
    gate.open()
    assert_all_end(bus_threads() - before)


def test_a_handler_whose_loop_is_gone_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    bus = MessageBus()

    async def use() -> None:
        async def handler(message: Message) -> None: ...

        bus.subscribe("c", handler)

    asyncio.run(use())
    bus.publish_from_sync("c")
    assert_all_end({ending(bus)})
    assert NOTICE not in caplog.text


def test_a_close_that_goes_on_in_its_thread_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        event_wait(go_on)

    bus._runtime.shutdown.closing._steps[7] = ClosingStep("its store", hold)
    closing = threading.Thread(target=bus.close, daemon=True)
    closing.start()
    event_wait(entered)
    end = ending(bus)
    assert "waiting for its store of the bus memory://" in wait_for_line(caplog, NOTICE)
    go_on.set()
    assert_all_end({end, closing})


def test_it_says_which_thread_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    go_on = threading.Event()
    other = threading.Thread(target=event_wait, args=(go_on,), daemon=True)
    other.start()
    shutdown = bus._runtime.shutdown
    steps = shutdown.closing._steps
    steps[8] = ClosingStep("its capture", lambda: shutdown._join(other, None))
    end = ending(bus)
    assert "waiting for its capture" in wait_for_line(caplog, NOTICE)
    go_on.set()
    assert_all_end({end, other})


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_the_wait(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = SyncMessageBus(persistence_path=tmp_path / "1.db"), SyncMessageBus()
    first.send("q", 1)
    asked: list[Shutdown] = []

    def interrupt(shutdown: Shutdown, timeout_s: float | None) -> bool:
        asked.append(shutdown)
        raise KeyboardInterrupt

    def again() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Shutdown, "wait_for_handlers", interrupt)
    steps: list[Callable[[], None]] = [first._runtime.shutdown.closing._steps[7].run]
    if times == 2:
        first._runtime.shutdown.closing._steps[7] = ClosingStep("its store", again)
    finish([first._runtime.shutdown, second._runtime.shutdown])
    assert asked == [first._runtime.shutdown]  # The exit does not wait for the others after that.
    assert "stopped waiting" in caplog.text
    assert second._runtime.shutdown.closing.is_done is (times == 1)
    first._runtime.shutdown.closing._steps[7] = ClosingStep("its store", steps[0])
    first.close()
    second.close()
    with SyncMessageBus(persistence_path=tmp_path / "1.db") as reopened:
        assert len(reopened.peek("q")) == 1


def test_a_bus_that_cannot_be_closed_keeps_none_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    broken, other = SyncMessageBus(), SyncMessageBus()

    def fail() -> None:
        raise OSError(5, "broken")

    broken._runtime.shutdown.closing._steps[7] = ClosingStep("its store", fail)
    finish([broken._runtime.shutdown, other._runtime.shutdown])
    assert "broken" in caplog.text
    assert other._runtime.shutdown.closing.is_done


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent SIGINT")
def test_a_program_that_waits_says_so_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    program = f"""
import threading
from unibus.sync import MessageBus
bus = MessageBus("sqlite:///{tmp_path}/bus.db")
entered = threading.Event()
def bill(message):
    entered.set()
    threading.Event().wait()
bus.subscribe("orders", bill, group="billing")
bus.send("q", "acknowledged")
bus.publish("orders", 1)
entered.wait()
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 0
    assert line.startswith("unibus: waiting for 1 running handler of channel 'orders' (billing) of the bus sqlite:")
    assert rest == "unibus: stopped waiting\n"
    with SyncMessageBus(f"sqlite:///{tmp_path}/bus.db") as again:
        assert [message.body for message in again.peek("q")] == ["acknowledged"]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent SIGINT")
def test_ctrl_c_while_a_block_is_left_reports_what_is_lost() -> None:
    program = textwrap.dedent(
        """
        import sys
        import threading

        from unibus.bus.shutdown import unhandled
        from unibus.sync import MessageBus

        unhandled.PROGRESS_S = 0.01

        def handler(body):
            threading.Event().wait()

        try:
            with MessageBus() as bus:
                bus.subscribe("orders", handler, group="billing")
                for number in range(3):
                    bus.publish("orders", number)
        except KeyboardInterrupt:
            sys.exit(3)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "close() waits" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 3
    assert "the bus closed with 3 messages undelivered: 3 of channel 'orders' (billing)" in rest


# A bus of async handlers: its loop has ended before the program does


def run_to_its_end(program: str) -> str:
    """What the program wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


UNCLOSED = """
    import asyncio
    import logging
    import sys

    from unibus import MessageBus

    asyncio_log = logging.getLogger("asyncio")
    asyncio_log.addFilter(lambda record: not record.getMessage().startswith("Executing "))  # Of -X dev: a slow step.
    buses = []

    async def handler(body):
        entered.set()
        await asyncio.Event().wait()

    async def main():
        global entered
        entered = asyncio.Event()
        bus = MessageBus({url!r})
        if {kept}:
            buses.append(bus)
        bus.create_channel("orders", drop_policy="block", max_queue_size=2)
        bus.subscribe("orders", handler, group="billing", concurrency=1)
        await bus.publish("orders", 0)
        await entered.wait()
        for number in range(1, {count}):
            await bus.publish("orders", number)
        try:
            async with asyncio.timeout(0.01):
                await bus.publish("orders", "cancelled")
        except TimeoutError:
            pass

    asyncio.run(main())
    """


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kept", "what"), [(True, "the program ended without close() of its bus"), (False, "the bus was dropped")]
)
def test_what_waits_for_async_handlers_is_reported(kept: bool, what: str) -> None:
    lines = run_to_its_end(UNCLOSED.format(url="memory://", count=3, kept=kept)).splitlines()
    assert len(lines) == 1  # In particular no task that "was destroyed but it is pending".
    assert lines[0].startswith(what)
    # One was in-flight, two waited. The one whose publish was cancelled is none of them.
    assert "with 3 messages undelivered: 3 of channel 'orders' (billing); call close()" in lines[0]


@pytest.mark.processes
def test_what_a_durable_store_has_is_not_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    errors = run_to_its_end(UNCLOSED.format(url=url, count=2, kept=True))
    assert "undelivered" not in errors
    assert "pending" not in errors
    got = Collector()
    with SyncMessageBus(url) as bus:
        bus.subscribe("orders", got, group="billing")
        assert bus.drain(GUARD_S)
    # The bound of a persistent channel includes what is in-flight.
    assert [message.body for message in got.messages] == [0, 1]


def test_queues_in_memory_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    bus.send("q", 1)
    finish([bus._runtime.shutdown])
    line = wait_for_line(caplog, "undelivered")
    assert "1 message undelivered: 1 in queue 'q'; call close()" in line


def test_what_a_stopped_bus_has_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    bus = SyncMessageBus()
    bus.subscribe("c", Collector(), group="g")
    assert bus.stop(GUARD_S)
    bus.publish("c", 1)
    finish([bus._runtime.shutdown])
    assert "1 message undelivered: 1 of channel 'c' (g)" in caplog.text


def test_handlers_of_a_durable_store_that_did_not_end_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = bus_threads()
    bus = SyncMessageBus(f"sqlite:///{tmp_path}/bus.db")
    gate = Gate()
    bus.subscribe("c", gate, concurrency=1)
    bus.publish("c", 1)
    gate.wait_entered()
    finish([bus._runtime.shutdown], 0.0)
    assert "with 1 message unhandled, to be delivered after the next start of sqlite:" in caplog.text
    assert "undelivered" not in caplog.text
    gate.open()
    assert_all_end(bus_threads() - before)


def test_a_handler_that_goes_on_after_its_bus_was_dropped_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    before = bus_threads()
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate, group="g", concurrency=1)
    for number in range(3):
        bus.publish("c", number)
    gate.wait_entered()
    del bus
    line = wait_for_line(caplog, "undelivered")
    assert "the bus was dropped without close(), with 2 messages undelivered: 2 of channel 'c' (g)" in line
    gate.open()
    assert_all_end(bus_threads() - before)
