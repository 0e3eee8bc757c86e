"""close() that is cut short, called by many, or goes wrong: the bus closes all the same, and releases its file."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, assert_all_end, bus_threads, event_wait, within
from tests.unit.interrupts import Cut, interrupted, lines_of
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.process_bus import configure_message_bus, shutdown_message_bus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.compat.backends import InMemoryQueueBackend
from unibus.bus.shutdown import closing
from unibus.bus.shutdown.closing import Caller, Closing, ClosingStep
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.errors import BusClosed, BusError

STEPS = range(10)
BODIES = [0, 1, 2]


class HeldStep:
    """Holds the thread that closes a bus at one of its steps, until it is let go."""

    def __init__(self, bus: MessageBus | SyncMessageBus, number: int) -> None:
        self.entered = threading.Event()
        self._go_on = threading.Event()
        steps = bus._runtime.shutdown.closing._steps
        assert len(steps) == len(STEPS)
        self._run = steps[number].run
        steps[number] = ClosingStep(steps[number].what, self._hold)

    def _hold(self) -> None:
        self.entered.set()
        event_wait(self._go_on)
        self._run()

    def release(self) -> None:
        self._go_on.set()


@pytest.fixture(autouse=True)
def mine() -> Iterator["Threads"]:
    """The threads of the buses of this test, none of which may be left at its end."""
    before = bus_threads()

    def threads() -> set[threading.Thread]:
        return {thread for thread in bus_threads() - before if thread.is_alive()}

    yield threads
    assert_all_end(threads())  # The last one wakes its callers a moment before it ends.


Threads = Callable[[], set[threading.Thread]]


def fill(bus: MessageBus | SyncMessageBus) -> None:
    """What was acknowledged, in a queue and for a durable subscription; and something of everything that has to end."""

    async def handler(message: Message) -> None: ...

    sync_bus = bus._runtime.queues()
    sync_bus.send_many("q", BODIES, {}).wait()
    bus.subscribe("jobs", Collector(), group="workers")
    bus.subscribe("jobs", handler, group="tasks")
    assert bus._durable is not None
    for body in BODIES:
        bus.publish_from_sync("jobs", body)
    bus._runtime.timers.after(10**15, lambda: None)


def assert_released(path: Path) -> None:
    """The file has no owner any more, and has what was acknowledged."""
    with SyncMessageBus(persistence_path=path) as again:
        assert [message.body for message in again.peek("q", 10)] == BODIES


def wait_for_callers(bus: MessageBus | SyncMessageBus, count: int) -> None:
    """Until so many wait in close()."""
    for _ in range(int(GUARD_S * 200)):
        if len(bus._runtime.shutdown.closing.callers) >= count:
            return
        threading.Event().wait(0.005)
    raise AssertionError("no thread waits in close()")


# Cut short


@pytest.mark.parametrize("step", STEPS)
async def test_a_close_that_is_cancelled_is_finished_by_the_next(step: int, folder: Path) -> None:
    bus = MessageBus(persistence_path=folder / "bus.db")
    fill(bus)
    held = HeldStep(bus, step)
    first = asyncio.create_task(bus.close(None))
    await asyncio.to_thread(event_wait, held.entered)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(bus.close(None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    held.release()
    await asyncio.wait_for(second, GUARD_S)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("unibus-")]
    await asyncio.to_thread(assert_released, folder / "bus.db")


@pytest.mark.parametrize("kind", ["store", "backend"])
async def test_close_may_be_cut_at_every_suspension(kind: str, folder: Path) -> None:
    at = 0
    cut = True
    while cut:
        at += 1
        path = folder / f"{at}.db"
        bus = MessageBus(InMemoryQueueBackend()) if kind == "backend" else MessageBus(persistence_path=path)
        if kind == "store":
            fill(bus)
        else:

            async def handler(message: Message) -> None:
                await asyncio.Event().wait()

            bus.subscribe("c", handler)
            await bus.publish("c", 1)
            await asyncio.sleep(0)
        first = Cut(bus.close(GUARD_S), at)
        await first
        cut = first.is_cut
        await asyncio.wait_for(bus.close(GUARD_S), GUARD_S)
        with pytest.raises(BusClosed):
            await bus.publish("c")
        if kind == "store":
            await asyncio.to_thread(assert_released, path)
    assert at > 1  # It was cut at least once.


@pytest.mark.skipif(sys.platform == "win32", reason="a thread cannot be sent a signal")
@pytest.mark.parametrize("step", STEPS)
def test_a_sync_close_that_is_interrupted_is_finished_by_the_next(step: int, folder: Path) -> None:
    bus = SyncMessageBus(persistence_path=folder / "bus.db")
    fill(bus)
    held = HeldStep(bus, step)
    main, is_interrupted = threading.get_ident(), threading.Event()

    def interrupt_once(number: int, frame: object) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        event_wait(held.entered)
        while not is_interrupted.wait(0.01):  # One that comes before the wait does not end it.
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt_once)
    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            bus.close(None)
        interrupter.join(GUARD_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    held.release()
    within(lambda: bus.close(None))
    assert_released(folder / "bus.db")


def test_a_sync_close_may_be_interrupted_at_every_line_of_it() -> None:
    at = 0
    cut = True
    while cut:
        at += 1
        bus = SyncMessageBus()
        bus.subscribe("c", Collector())
        bus.publish("c")
        cut = interrupted(lambda bus=bus: bus.close(GUARD_S), at)  # type: ignore[misc]
        within(lambda bus=bus: bus.close(GUARD_S))  # type: ignore[misc]
        assert bus._runtime.shutdown.closing.is_done
    assert at > 20


@contextmanager
def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As at the end of the interpreter."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_where_no_thread_can_be_started_the_caller_closes_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str) -> SyncMessageBus:
        bus = SyncMessageBus(persistence_path=folder / name)
        fill(bus)
        return bus

    bus = made("whole.db")
    with no_more_threads(monkeypatch):
        lines = lines_of(lambda: bus.close(GUARD_S))
    assert_released(folder / "whole.db")
    assert lines > 200
    # A sample: each of them takes a file.
    for at in range(1, lines, lines // 20):
        bus = made(f"{at}.db")
        with no_more_threads(monkeypatch):
            interrupted(lambda bus=bus: bus.close(GUARD_S), at)  # type: ignore[misc]
            bus.close(GUARD_S)
        assert_released(folder / f"{at}.db")


def test_a_caller_takes_over_from_one_that_was_interrupted_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where callers run the steps themselves, one of the others has to."""
    bus = SyncMessageBus()
    entered, go_on = threading.Event(), threading.Event()
    runs: list[str] = []

    def interrupted_once() -> None:
        runs.append(threading.current_thread().name)
        if len(runs) == 1:
            entered.set()
            event_wait(go_on)
            raise KeyboardInterrupt

    def close() -> None:
        try:
            bus.close(None)
            runs.append("closed")
        except KeyboardInterrupt:
            runs.append("interrupted")

    start = threading.Thread.start

    def start_none_of_ours(thread: threading.Thread) -> None:
        if thread.name == "unibus-close":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_none_of_ours)
    monkeypatch.setattr(closing, "LOOK_S", GUARD_S * 6)  # It is notified, and does not have to poll.
    bus._runtime.shutdown.closing._steps[2] = ClosingStep("this", interrupted_once)
    first, second = (threading.Thread(target=close, name=name, daemon=True) for name in ("first", "second"))
    first.start()
    event_wait(entered)
    second.start()
    wait_for_callers(bus, 2)
    go_on.set()
    assert_all_end({first, second})
    assert sorted(runs) == ["closed", "first", "interrupted", "second"]


# Called by many


async def test_of_two_closes_both_wait_for_the_end() -> None:
    bus = MessageBus()
    held = HeldStep(bus, 7)
    first, second = asyncio.create_task(bus.close()), asyncio.create_task(bus.close())
    await asyncio.to_thread(event_wait, held.entered)
    assert not first.done()
    assert not second.done()
    held.release()
    await asyncio.wait_for(asyncio.gather(first, second), GUARD_S)


def test_two_loops_and_a_thread_wait_for_the_same_end() -> None:
    bus = MessageBus()
    held = HeldStep(bus, 7)
    work = bus._runtime.shutdown.closing
    ended: list[str] = []

    def close(how: Callable[[], object]) -> None:
        how()
        ended.append(str(work.is_done))

    ways: list[Callable[[], object]] = [
        lambda: asyncio.run(bus.close()),
        lambda: asyncio.run(bus.close()),
        lambda: work.close(None),
    ]
    threads = [threading.Thread(target=close, args=(way,), daemon=True) for way in ways]
    for thread in threads:
        thread.start()
    event_wait(held.entered)
    wait_for_callers(bus, 3)
    assert ended == []
    held.release()
    assert_all_end(set(threads))
    assert ended == ["True"] * 3


def test_the_shortest_time_out_ends_the_drain_for_all(mine: Threads) -> None:
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate)
    bus.publish("c")
    gate.wait_entered()
    first = threading.Thread(target=bus.close, args=(None,), daemon=True)
    first.start()
    wait_for_callers(bus, 1)
    within(lambda: bus.close(0.01))
    gate.open()
    assert_all_end({first} | mine())


@pytest.mark.parametrize("place", ["pool", "loop"])
def test_a_handler_that_closes_while_another_close_waits_holds_nobody_up(place: str, mine: Threads) -> None:
    # No time-out: two that waited for each other would do so for ever.
    bus = SyncMessageBus()
    entered, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def handler(message: Message) -> None:
        entered.set()
        event_wait(go_on)
        bus.close(None)
        ended.set()

    async def async_handler(message: Message) -> None:
        handler(message)

    bus.subscribe("c", handler if place == "pool" else async_handler)
    bus.publish("c")
    event_wait(entered)
    other = threading.Thread(target=bus.close, args=(None,), daemon=True)
    other.start()
    wait_for_callers(bus, 1)
    go_on.set()
    event_wait(ended)
    assert_all_end({other} | mine())


async def test_an_async_handler_that_closes_while_another_close_waits_is_not_cancelled() -> None:
    bus = MessageBus()
    entered, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        await go_on.wait()
        await bus.close(None)
        await asyncio.sleep(0)
        ended.set()

    bus.subscribe("c", handler)
    await bus.publish("c")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    other = asyncio.create_task(bus.close(None))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(other, ended.wait()), GUARD_S)


def test_a_handler_on_the_own_loop_of_a_bus_closes_it_and_goes_on(mine: Threads) -> None:
    """The loop ends after the handler, not under it."""
    bus = MessageBus()
    ended = threading.Event()

    async def handler(message: Message) -> None:
        await bus.close(None)
        await asyncio.sleep(0)
        ended.set()

    bus.subscribe("c", handler)
    bus.publish_from_sync("c")
    event_wait(ended)
    assert_all_end(mine())


async def test_a_handler_whose_close_was_cut_is_waited_for_again() -> None:
    bus = MessageBus()
    cut, go_on = asyncio.Event(), asyncio.Event()
    steps: list[str] = []

    async def handler(message: Message) -> None:
        mine = asyncio.create_task(bus.close(None))
        await asyncio.sleep(0)
        mine.cancel()
        await asyncio.wait([mine])
        cut.set()
        await go_on.wait()
        steps.append("handled")

    held = HeldStep(bus, 0)
    bus.subscribe("c", handler)
    await bus.publish("c")
    await asyncio.wait_for(cut.wait(), GUARD_S)
    assert bus._runtime.shutdown.closing.callers.groups() == []
    other = asyncio.create_task(bus.close(None))
    await asyncio.sleep(0)
    held.release()
    go_on.set()
    await asyncio.wait_for(other, GUARD_S)
    assert steps == ["handled"]


async def test_who_drains_a_bus_that_closes_is_told_the_truth() -> None:
    bus = MessageBus()
    entered = asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    bus.subscribe("c", handler)
    for number in range(2):
        await bus.publish("c", number)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    draining = asyncio.create_task(asyncio.wait_for(bus.drain(), GUARD_S))
    in_thread = asyncio.create_task(asyncio.to_thread(bus._runtime.drain.wait, None))
    await asyncio.sleep(0)
    await bus.close(0.01)
    assert await draining is False
    assert await asyncio.wait_for(in_thread, GUARD_S) is False


# Errors


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", [OSError, BusError, SystemExit])
def test_a_step_that_raises_keeps_none_of_the_others_from_running(
    step: int, kind: type[BaseException], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind("broken")
    bus = SyncMessageBus(persistence_path=folder / "bus.db")
    fill(bus)
    steps = bus._runtime.shutdown.closing._steps

    def broken(run: Callable[[], None]) -> Callable[[], None]:
        def raised() -> None:
            run()
            raise error

        return raised

    steps[step] = ClosingStep(steps[step].what, broken(steps[step].run))
    if step + 1 < len(steps):
        steps[step + 1] = ClosingStep(steps[step + 1].what, broken(steps[step + 1].run))
    with caplog.at_level(logging.ERROR), pytest.raises(BusError) as caught:
        bus.close(GUARD_S)
    assert caught.value is error or caught.value.__cause__ is error
    assert step + 1 == len(steps) or "another error" in caplog.text
    bus.close()  # It is closed.
    assert_released(folder / "bus.db")


async def test_a_backend_that_cannot_be_closed_is_an_error_of_ours_and_the_bus_is_closed() -> None:
    class Broken(InMemoryQueueBackend):
        async def close(self) -> None:
            raise OSError(5, "broken")

    bus = MessageBus(Broken())
    with pytest.raises(BusError) as caught:
        await bus.close()
    assert isinstance(caught.value.__cause__, OSError)
    assert bus._runtime.shutdown.closing.is_done
    await bus.close()


async def test_a_worker_of_a_backend_puts_its_message_back_although_close_was_cut() -> None:
    class Slow(InMemoryQueueBackend):
        """Needs a turn of the loop to put a message back: a second cancellation would come in between."""

        async def requeue(self, message: BusMessage) -> None:
            entered.set()
            await go_on.wait()
            await super().requeue(message)
            requeued.append(message.message.body)

    entered, go_on, working = asyncio.Event(), asyncio.Event(), asyncio.Event()
    requeued: list[object] = []

    async def handler(message: Message) -> None:
        working.set()
        await asyncio.Event().wait()

    bus = MessageBus(Slow())
    bus.subscribe("c", handler)
    await bus.publish("c", 1)
    await asyncio.wait_for(working.wait(), GUARD_S)
    first = asyncio.create_task(bus.close())
    await asyncio.wait_for(entered.wait(), GUARD_S)
    first.cancel()
    await asyncio.wait([first])
    go_on.set()
    await asyncio.wait_for(bus.close(), GUARD_S)
    assert requeued == [1]


def test_an_error_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError(5, "broken")

    bus = SyncMessageBus()
    bus._runtime.shutdown.closing._steps[7] = ClosingStep("its store", fail)
    del bus
    gc.collect()
    assert "broken" in caplog.text


def test_an_error_is_logged_while_the_finalizer_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = SyncMessageBus()
    closing = bus._runtime.shutdown.closing
    waits, add = threading.Event(), closing.callers.add

    def note(caller: Caller) -> None:
        add(caller)
        waits.set()

    def fail() -> None:
        waits.wait(GUARD_S)
        raise OSError(5, "broken")

    monkeypatch.setattr(closing.callers, "add", note)
    closing._steps[7] = ClosingStep("its store", fail)
    del bus
    gc.collect()
    assert caplog.text.count("broken") == 1


# Left behind


def test_a_timer_that_is_running_is_waited_for() -> None:
    bus = SyncMessageBus()
    entered, go_on = threading.Event(), threading.Event()
    log: list[str] = []

    def act() -> None:
        entered.set()
        event_wait(go_on)
        threading.Event().wait(0.02)  # Time for a call that does not wait.
        log.append("acted")

    def stop(run: Callable[[], None]) -> Callable[[], None]:
        def stopped() -> None:
            go_on.set()
            run()
            log.append("stopped")

        return stopped

    steps = bus._runtime.shutdown.closing._steps
    steps[3] = ClosingStep(steps[3].what, stop(steps[3].run))
    bus._runtime.timers.after(0, act)
    event_wait(entered)
    bus.close(GUARD_S)
    assert log == ["acted", "stopped"]


def test_the_thread_that_watches_the_workers_ends_with_them() -> None:
    bus = SyncMessageBus(worker_count=1)
    gates = [Gate(), Gate()]
    for gate in gates:
        bus.subscribe("c", gate)
    bus.publish("c")
    for gate in gates:
        gate.wait_entered()  # The second by a worker that was added because the first is stuck.
    for gate in gates:
        gate.open()
    bus.close(GUARD_S)


async def test_a_bus_that_is_dropped_after_its_close_was_cut_releases_its_file(folder: Path, mine: Threads) -> None:
    bus = MessageBus(persistence_path=folder / "bus.db")
    fill(bus)
    gate = Gate()
    bus.subscribe("stuck", gate, group="g")
    bus.publish_from_sync("stuck")
    await asyncio.to_thread(gate.wait_entered)
    first = asyncio.create_task(bus.close(None))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    del bus, first
    gc.collect()
    await asyncio.to_thread(assert_released, folder / "bus.db")
    gate.open()
    await asyncio.to_thread(assert_all_end, mine())


async def test_a_block_that_is_left_by_an_error_closes_the_bus(folder: Path) -> None:
    async def use() -> None:
        async with MessageBus(persistence_path=folder / "bus.db") as bus:
            await bus.send_many("q", BODIES)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    await asyncio.to_thread(assert_released, folder / "bus.db")


async def test_a_shutdown_of_the_processes_own_bus_that_was_cut_is_finished_by_the_next(folder: Path) -> None:
    bus = configure_message_bus(MessageBus(persistence_path=folder / "bus.db"))
    fill(bus)
    held = HeldStep(bus, 7)
    first = asyncio.ensure_future(shutdown_message_bus())
    await asyncio.to_thread(event_wait, held.entered)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.ensure_future(shutdown_message_bus())
    await asyncio.sleep(0)
    assert not second.done()
    held.release()
    await asyncio.wait_for(second, GUARD_S)
    await asyncio.to_thread(assert_released, folder / "bus.db")


def test_the_steps_of_a_bus_that_closes_are_run_once(mine: Threads) -> None:
    ran: list[int] = []
    work = Closing([ClosingStep("this", lambda number=number: ran.append(number)) for number in range(5)], lambda: None)  # type: ignore[misc]
    threads = [threading.Thread(target=work.close, args=(None,), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert_all_end(set(threads) | mine())
    assert ran == [0, 1, 2, 3, 4]
