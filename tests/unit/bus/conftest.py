"""Buses that are closed after the test, whatever it left behind."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.unit.bus.probes import HandClock, HandTimers, TimersClock
from unibus.bus.message_bus import MessageBus
from unibus.bus.sync_bus import SyncMessageBus


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
