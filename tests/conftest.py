"""Every store that a test opens is checked when it closes: counts, states, indexes, and memory against the log.

A test that damages a store on purpose, or takes its disk away, says so with `@pytest.mark.unchecked`.
"""

import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.bus import probes
from unibus.bus.api import runtime
from unibus.clock import Clock, Timers
from unibus.errors import BusError, StoreFailed
from unibus.stores import opening
from unibus.stores.engine import embedded, snapshot_limits
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.misbehaving_store import MisbehavingStore

# A shell starts a command in the background (two of the three runs of `make test`) with SIGINT ignored, and every
# program that a test starts and interrupts would inherit that: it would not end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


PROCESS_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
"""Audit events of Python itself: nothing that starts a process passes without one of them."""


def pytest_configure(config: pytest.Config) -> None:
    if "not processes" in config.getoption("markexpr"):
        sys.addaudithook(_refuse_processes)


def _refuse_processes(event: str, _: tuple[object, ...]) -> None:
    if event in PROCESS_STARTS:
        raise RuntimeError("this run has no tests that start processes: mark this one with @pytest.mark.processes")


def pytest_collection_finish() -> None:
    """Take what exists out of the garbage collector's sight.

    The collected tests and the imported modules are half a million objects, which live until the end. Otherwise each
    full collection visits them: a third of a second, in tests that ask for several and in all others by chance.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _stores_keep_their_invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    found: list[str] = []

    def look(store: embedded.EmbeddedStore) -> None:
        if not store.health().ok:
            return
        try:
            found.extend(store.check())
        except StoreFailed:
            return  # Its disk was taken away: there is nothing to compare with.
        except BusError as error:
            found.append(f"{type(error).__name__}: {error}")

    embedded.before_close = look
    try:
        yield
    finally:
        embedded.before_close = None
    if request.node.get_closest_marker("unchecked") is None:
        assert found == []


@pytest.fixture(autouse=True)
def _stores_answer_late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TEST_STORE=late, or a seed after a colon, every store that a bus opens answers late."""
    wanted, _, seed = os.environ.get("TEST_STORE", "").partition(":")
    if wanted != "late":
        return
    if request.node.get_closest_marker("immediate") is not None:
        pytest.skip("needs a store that answers at once")

    opened: list[MisbehavingStore] = []

    def open_late(url: str, clock: Clock, timers: Timers) -> MisbehavingStore:
        store = MisbehavingStore(opening.open_store(url, clock, timers), late=int(seed or 0))
        opened.append(store)
        if isinstance(clock, VirtualClock):
            clock.timers(store.is_idle)  # The clock waits for the answers before it moves.
        return store

    monkeypatch.setattr(runtime, "open_store", open_late)
    # The same for clocks and timers that a test moves by hand.
    for moves in (probes.HandClock, probes.HandTimers):
        name = "advance" if moves is probes.HandClock else "fire"
        monkeypatch.setattr(moves, name, _after_answers(getattr(moves, name), opened))


def _after_answers(move: Callable[..., None], opened: list[MisbehavingStore]) -> Callable[..., None]:
    def settle() -> None:
        deadline_s = time.monotonic() + 5
        while not all(store.is_idle() for store in opened) and time.monotonic() < deadline_s:
            time.sleep(0.0002)

    def moved(*given: object) -> None:
        settle()
        move(*given)
        settle()

    return moved


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a sync costs nothing, if there is such a place: for tests in which what a sync is worth is no subject."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is closed takes no snapshot, so that all of it is in the log: as after a crash."""
    monkeypatch.setattr(snapshot_limits, "AT_CLOSE", False)
