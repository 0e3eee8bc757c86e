# mypyc: compiled
"""Where to wait for the disk: on the loop itself, or in the store's own thread.

Waking a thread and being woken by it takes longer than a sync of a good disk, and two threads that both want the
interpreter slow each other down. So a loop waits by itself, as long as the disk is that good. When it no longer is,
the thread does it, for a while that doubles each time.
"""

import time
from typing import Final, final

from mypy_extensions import i64

QUICK_NS: Final = 1_500_000
"""What a sync may take on average: about as long as other tasks keep a loop busy anyway."""

PAUSE_NS: Final = 1_000_000_000
PAUSE_NS_MAX: Final = 60_000_000_000
_WEIGHT: Final = 8


@final
class Pace:
    def __init__(self) -> None:
        self._mean_ns: i64 = 0
        self._pause_ns: i64 = PAUSE_NS
        self._paused_until_ns: i64 = 0

    def is_quick(self) -> bool:
        return self._paused_until_ns == 0 or time.monotonic_ns() >= self._paused_until_ns

    def took(self, began_ns: i64, ended_ns: i64) -> None:
        """A sync that a loop has waited for."""
        # One that took very long is no more than a hint: disks hesitate now and then.
        lasted_ns = min(ended_ns - began_ns, QUICK_NS * 4)
        self._mean_ns += (lasted_ns - self._mean_ns) // _WEIGHT
        if self._mean_ns > QUICK_NS:
            self._mean_ns = 0
            self._paused_until_ns = ended_ns + self._pause_ns
            self._pause_ns = min(self._pause_ns * 2, PAUSE_NS_MAX)
        elif self._paused_until_ns and ended_ns > self._paused_until_ns + self._pause_ns:
            self._paused_until_ns = 0  # It went well for as long as it was paused.
            self._pause_ns = PAUSE_NS
