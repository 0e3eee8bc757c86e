"""The clock that the bus, the stores and the servers read, so that a test can replace it.

The rules in `core` take the time as an argument. Only the packages that do I/O hold a clock: this one, or the virtual
clock of `unibus.testing`. Wall time stamps messages. Monotonic time measures delays, so that a changed system clock
never runs a timer early. A clock whose time does not pass by itself runs the timers that its own moves make due, so a
clock may provide the timers too.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Timers(Protocol):
    """The scheduled calls of one bus."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Call the action once, not before the delay has passed. The action must be quick and must not raise."""

    def stop(self) -> None:
        """Cancel every call that is not due yet."""


class Clock:
    """Wall and monotonic time, as plain callables so that the hot path calls the C function itself."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns

    def timers(self, is_resting: Callable[[], bool]) -> Timers | None:
        """Timers for one bus. None where time passes by itself: then the bus sleeps in a thread until a timer is due.

        `is_resting` returns whether the bus is idle until its next timer.
        """
        return None


SYSTEM_CLOCK = Clock()
