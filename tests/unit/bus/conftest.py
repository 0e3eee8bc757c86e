"""Buses that are closed after the test, whatever it left behind."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.unit.bus.probes import HandClock, HandTimers, TimersClock
from tests.unit.bus.rigs import FACES, Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus


@pytest.fixture
def sync_bus() -> Iterator[SyncMessageBus]:
    bus = SyncMessageBus()
    yield bus
    bus.close(drain_timeout=0.2)


@pytest.fixture
async def async_bus() -> AsyncIterator[MessageBus]:
    bus = MessageBus()
    await bus.__aenter__()
    yield bus
    await bus.close(drain_timeout=0.2)


@pytest.fixture
def hand_clock() -> HandClock:
    return HandClock()


@pytest.fixture
def timed_bus(hand_clock: HandClock) -> Iterator[SyncMessageBus]:
    """A bus whose time the test moves."""
    bus = SyncMessageBus(clock=hand_clock.clock())
    yield bus
    bus.close(drain_timeout=0.2)


@pytest.fixture
def hand_timers() -> HandTimers:
    return HandTimers()


@pytest.fixture
def retry_bus(hand_timers: HandTimers) -> Iterator[SyncMessageBus]:
    """A bus whose retries the test fires."""
    bus = SyncMessageBus(clock=TimersClock(hand_timers))
    yield bus
    bus.close(drain_timeout=0.2)


@pytest.fixture(params=["memory", "sqlite"])
def store_path(request: pytest.FixtureRequest, folder: Path) -> Path | None:
    """Where the messages live: None for memory."""
    return folder / "bus.db" if request.param == "sqlite" else None


@pytest.fixture(params=FACES, ids=["async", "sync"])
def face(request: pytest.FixtureRequest) -> type:
    chosen: type = request.param
    return chosen


@pytest.fixture
def rig(face: type, store_path: Path | None) -> Iterator[Rig]:
    """Both faces, over both stores."""
    made = Rig(face, store_path)
    yield made
    made.end()


@pytest.fixture
def file_rig(face: type, folder: Path) -> Iterator[Rig]:
    """Both faces, over a file that can be opened again."""
    made = Rig(face, folder / "bus.db")
    yield made
    made.end()


@pytest.fixture
def timed_rig(face: type, store_path: Path | None, hand_clock: HandClock, hand_timers: HandTimers) -> Iterator[Rig]:
    """Both faces, over both stores, in a time that the test moves and with timers that it fires."""
    made = Rig(face, store_path, hand_clock.clock(hand_timers))
    yield made
    made.end()


@pytest.fixture
async def queue_bus(store_path: Path | None) -> AsyncIterator[MessageBus]:
    """The async face over both stores, for tests that cancel."""
    bus = MessageBus() if store_path is None else MessageBus(persistence_path=store_path)
    await bus.__aenter__()
    yield bus
    await bus.close(drain_timeout=0.2)
