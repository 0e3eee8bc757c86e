"""Ctrl-C while a thread of the bus is being started: the publish is interrupted, the bus goes on and closes."""

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, assert_all_end, bus_threads
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.threads import DaemonThread

MOMENTS = ("before", "after")


@pytest.fixture(params=MOMENTS)
def interrupt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Interrupt the next start of a thread with such a name, before or after the system has started it."""

    def arrange(name: str) -> list[str]:
        start = threading.Thread.start
        interrupted: list[str] = []

        def start_interrupted(thread: threading.Thread) -> None:
            if not thread.name.startswith(name) or interrupted:
                start(thread)
                return
            interrupted.append(thread.name)
            if request.param == "after":
                start(thread)
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Thread, "start", start_interrupted)
        return interrupted

    return arrange


Arrange = Callable[[str], list[str]]


def test_a_thread_runs_or_was_withdrawn_never_both() -> None:
    runs: list[int] = []
    withdrawn = DaemonThread(lambda: runs.append(1), "t")
    assert withdrawn.withdraw()
    withdrawn.start()
    withdrawn.join(GUARD_S)
    assert runs == []
    runs_it = DaemonThread(lambda: runs.append(2), "t")
    runs_it.start()
    runs_it.join(GUARD_S)
    assert not runs_it.withdraw()
    assert runs == [2]


@pytest.mark.parametrize("worker_count", [1, 4])
def test_the_next_publish_delivers_after_an_interrupted_start_of_a_worker(
    interrupt: Arrange, worker_count: int
) -> None:
    interrupted = interrupt("unibus-worker")
    before = bus_threads()
    got = Collector()
    with SyncMessageBus(worker_count=worker_count) as bus:
        bus.subscribe("c", got)
        with pytest.raises(KeyboardInterrupt):
            bus.publish("c", 1)
        bus.publish("c", 2)
        assert got.wait(2) == [1, 2]
    assert interrupted == ["unibus-worker-1"]
    assert_all_end(bus_threads() - before)


def test_a_bus_closes_after_an_interrupted_start_of_a_worker(interrupt: Arrange) -> None:
    interrupt("unibus-worker")
    got = Collector()
    bus = SyncMessageBus()
    bus.subscribe("c", got)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("c", 1)
    bus.close(GUARD_S)
    assert got.bodies == [1]


def test_calls_come_after_an_interrupted_start_of_the_timers(interrupt: Arrange) -> None:
    interrupted = interrupt("unibus-timers")
    called: queue.Queue[int] = queue.Queue()
    timers = ThreadTimers(SYSTEM_CLOCK, lambda error: None)
    with pytest.raises(KeyboardInterrupt):
        timers.after(1, lambda: called.put(1))
    timers.after(2, lambda: called.put(2))
    assert [called.get(timeout=GUARD_S), called.get(timeout=GUARD_S)] == [1, 2]
    timers.stop()
    timers.join(GUARD_S, threading.Thread.join)
    assert interrupted == ["unibus-timers"]


@pytest.mark.immediate
def test_a_store_has_one_writer_after_an_interrupted_start_of_it(interrupt: Arrange, tmp_path: Path) -> None:
    interrupted = interrupt("unibus-commit")
    before = bus_threads()
    with SyncMessageBus(f"sqlite:///{tmp_path}/a.db") as bus:
        store = bus._runtime.shutdown.store
        assert isinstance(store, EmbeddedStore)
        with pytest.raises(KeyboardInterrupt):
            store._committer.kick()
        store._committer.kick()
        bus.send("q", 1)
        assert [thread.name for thread in bus_threads() - before].count("unibus-commit") == 1
    assert interrupted == ["unibus-commit"]


def test_an_async_handler_gets_its_loop_after_an_interrupted_start(
    interrupt: Arrange, sync_bus: SyncMessageBus
) -> None:
    interrupted = interrupt("unibus-loop")
    got = Collector()

    async def handler(message: Message) -> None:
        got(message)

    sync_bus.subscribe("c", handler)
    with pytest.raises(KeyboardInterrupt):
        sync_bus.publish("c", 1)
    sync_bus.publish("c", 2)
    assert got.wait(2) == [1, 2]
    assert interrupted == ["unibus-loop"]
