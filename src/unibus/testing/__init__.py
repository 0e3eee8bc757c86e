"""The test kit that is shipped to users: a clock moved by hand, buses that remember, and fixtures for pytest.

The names are fetched when they are first used, because pytest imports this package at every start, for every project
that has unibus installed, whether its tests use a bus or not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unibus.testing.recording import RecordingBus, RecordingSyncBus
    from unibus.testing.virtual_clock import VirtualClock

__all__ = ["RecordingBus", "RecordingSyncBus", "VirtualClock"]

_HOMES = {"RecordingBus": "recording", "RecordingSyncBus": "recording", "VirtualClock": "virtual_clock"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
