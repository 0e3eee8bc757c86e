"""Fixtures for pytest: `bus`, `sync_bus` and `virtual_clock`. They are available when unibus is installed.

All three are synchronous fixtures, so they need no plugin for async tests and configure none: the bus belongs to the
event loop on which the test first uses it. Imports happen when a fixture is requested.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unibus.testing.clock.virtual_clock import VirtualClock
    from unibus.testing.recording import RecordingBus, RecordingSyncBus


@pytest.fixture
def virtual_clock() -> "Iterator[VirtualClock]":
    """A clock that only the test moves. The `bus` and `sync_bus` of the same test use it."""
    from unibus.testing.clock.virtual_clock import VirtualClock

    with VirtualClock() as clock:
        yield clock


@pytest.fixture
def bus(request: pytest.FixtureRequest) -> "Iterator[RecordingBus]":
    """A MessageBus for the test, which also records what was published: `bus.sent()`."""
    from unibus.testing.recording import RecordingBus

    bus = RecordingBus(clock=_clock_of(request))
    yield bus
    bus.end()


@pytest.fixture
def sync_bus(request: pytest.FixtureRequest) -> "Iterator[RecordingSyncBus]":
    """The same for tests without an event loop: `unibus.sync.MessageBus`, with `sent()`."""
    from unibus.testing.recording import RecordingSyncBus

    bus = RecordingSyncBus(clock=_clock_of(request))
    yield bus
    bus.end()


def _clock_of(request: pytest.FixtureRequest) -> "VirtualClock | None":
    """The virtual clock, if the test or a fixture that it uses requests it."""
    if "virtual_clock" not in request.fixturenames:
        return None
    clock: VirtualClock = request.getfixturevalue("virtual_clock")
    return clock
