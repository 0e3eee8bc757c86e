"""Time as an argument.

Rules take `now`; only the shells hold a clock, and they hold this one or the virtual clock of
`unibus.testing`. Wall time stamps messages; monotonic time measures delays, so that a changed
system clock never fires a timer early. Whoever moves the time fires the timers: so a clock may bring its own.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Timers(Protocol):
    """Calls that are due later, for one bus."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Call the action once, not before the delay is over. The action must be quick and must not raise."""

    def stop(self) -> None:
        """Forget what is not due yet."""


class Clock:
    """Two readings, as plain callables so that the hot path calls the C function itself."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns

    def timers(self, is_resting: Callable[[], bool]) -> Timers | None:
        """Timers for one bus; None where time passes by itself, so that a thread can sleep until they are due.

        `is_resting` tells whether nothing happens on that bus until a timer fires.
        """
        return None


SYSTEM_CLOCK = Clock()
