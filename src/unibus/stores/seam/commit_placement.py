# mypyc: compiled
"""Where to wait for the disk: on the loop itself, or in the store's own thread.

Waking a thread and being woken by it takes longer than a sync of a good disk, and two threads that both want the
interpreter slow each other down. So a loop waits by itself, as long as that is quick. When it no longer is, the thread
does it, for a while that doubles each time.

What takes long need not be the disk. Beside a thread that computes everybody waits for the interpreter, and the way
through another thread has more of these waits. Where that turns out to be much slower, the loop goes on waiting itself.
"""

import time
from typing import Final, final

from mypy_extensions import i64

QUICK_NS: Final = 1_500_000
"""What a sync may take on average: about as long as other tasks keep a loop busy anyway."""

PATIENCE_NS: Final = 12_000_000
"""Longer than this no loop is ever held up again and again, however slow the other way is."""

PAUSE_NS: Final = 1_000_000_000
PAUSE_NS_MAX: Final = 60_000_000_000
_WEIGHT: Final = 8


@final
class CommitPlacement:
    """`on_loops` False: no loop ever waits for the disk itself, also where that would be quicker. For servers."""

    def __init__(self) -> None:
        self.on_loops = True
        self._here_ns: i64 = 0  # What a commit takes on a loop, on average,
        self._last_ns: i64 = 0  # and the last few of them;
        self._there_ns: i64 = 0  # and through the thread, from the request to the answer.
        self._there_count: i64 = 0
        self._quick_ns: i64 = QUICK_NS
        self._pause_ns: i64 = PAUSE_NS
        self._paused_until_ns: i64 = 0
        self._was_slow = False  # Since the pause nothing is known of the loop.

    def is_quick(self) -> bool:
        return self.on_loops and (self._paused_until_ns == 0 or time.monotonic_ns() >= self._paused_until_ns)

    def took(self, began_ns: i64, ended_ns: i64) -> None:
        """A sync that a loop has waited for."""
        lasted_ns = ended_ns - began_ns
        if self._was_slow:
            self._was_slow = False
            self._here_ns = 0
        # One that took very long is no more than a hint: disks hesitate now and then.
        self._here_ns += (min(lasted_ns, QUICK_NS * 4) - self._here_ns) // _WEIGHT
        self._last_ns += (lasted_ns - self._last_ns) // 2
        if self._here_ns > self._quick_ns:
            self._was_slow = True
            self._there_count = 0
            self._paused_until_ns = ended_ns + self._pause_ns
            self._pause_ns = min(self._pause_ns * 2, PAUSE_NS_MAX)
        elif self._paused_until_ns and ended_ns > self._paused_until_ns + self._pause_ns:
            self._paused_until_ns = 0  # It went well for as long as it was paused.
            self._pause_ns = PAUSE_NS
            self._quick_ns = QUICK_NS

    def took_there(self, began_ns: i64, answered_ns: i64) -> None:
        """A sync that a loop has left to the thread, from the request, or from when the thread was free for it."""
        lasted_ns = answered_ns - began_ns
        self._there_count += 1
        self._there_ns = lasted_ns if self._there_count == 1 else self._there_ns + (lasted_ns - self._there_ns) // 4
        if self._there_count < _WEIGHT or self._paused_until_ns == 0:
            return
        if self._last_ns <= PATIENCE_NS and 2 * self._there_ns > 3 * self._last_ns:
            self._quick_ns = max(self._quick_ns, 2 * self._last_ns)
            self._paused_until_ns = answered_ns
