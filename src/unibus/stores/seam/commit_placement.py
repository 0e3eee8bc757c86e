# mypyc: compiled
"""Where a commit of an event loop waits for the disk: on the loop itself, or in the store's writer thread.

    commits on the loop ──── average above _quick_ns ────▶ commits in the writer thread, for _pause_ns
            ▲                                                        │
            └── pause is over, or the thread is much slower ─────────┘     (each pause is twice as long)

Two thread switches take longer than a sync of a good disk, and two threads that both need the interpreter slow each
other down. So a loop waits for the disk itself while that is quick. When it no longer is, the writer thread commits.

The slow part need not be the disk. Beside a thread that computes, every thread waits for the interpreter lock, and a
commit through the writer waits for it more often. Where that measures as much slower, the loop commits itself again.
"""

import time
from typing import Final, final

from mypy_extensions import i64

QUICK_NS: Final = 1_500_000
"""The average time that a sync may block a loop: about as long as one turn of a loop takes anyway."""

PATIENCE_NS: Final = 12_000_000
"""A commit that blocks a loop for longer goes to the writer thread, even if that is slower still."""

PAUSE_NS: Final = 1_000_000_000
PAUSE_NS_MAX: Final = 60_000_000_000
_WEIGHT: Final = 8  # Of the running average; also how many commits of the thread are measured before it is judged.


@final
class CommitPlacement:
    """Measures both ways and chooses. A server sets `on_loops` to False: then the writer thread makes every commit."""

    def __init__(self) -> None:
        self.on_loops = True
        self._here_ns: i64 = 0  # A commit on a loop: the running average,
        self._last_ns: i64 = 0  # and the average of the last few.
        self._there_ns: i64 = 0  # A commit through the thread, from the request to the result.
        self._there_count: i64 = 0
        self._quick_ns: i64 = QUICK_NS
        self._pause_ns: i64 = PAUSE_NS
        self._paused_until_ns: i64 = 0
        self._was_slow = False  # The averages are from before the pause: the next commit on a loop starts them again.

    def is_quick(self) -> bool:
        return self.on_loops and (self._paused_until_ns == 0 or time.monotonic_ns() >= self._paused_until_ns)

    def took(self, began_ns: i64, ended_ns: i64) -> None:
        """Record a sync that blocked a loop."""
        lasted_ns = ended_ns - began_ns
        if self._was_slow:
            self._was_slow = False
            self._here_ns = 0
        # Cap one slow sync: disks stall now and then, and a single stall must not move the average past the limit.
        self._here_ns += (min(lasted_ns, QUICK_NS * 4) - self._here_ns) // _WEIGHT
        # Not capped: `took_there` compares it with the writer thread, and needs what a commit on the loop really costs
        # now.
        self._last_ns += (lasted_ns - self._last_ns) // 2
        if self._here_ns > self._quick_ns:
            self._was_slow = True
            # The thread is measured again from its first commit: what it took before an earlier pause says nothing.
            self._there_count = 0
            self._paused_until_ns = ended_ns + self._pause_ns
            self._pause_ns = min(self._pause_ns * 2, PAUSE_NS_MAX)
        elif self._paused_until_ns and ended_ns > self._paused_until_ns + self._pause_ns:
            self._paused_until_ns = 0  # Quick for as long as the last pause: start again with the shortest pause.
            self._pause_ns = PAUSE_NS
            self._quick_ns = QUICK_NS

    def took_there(self, began_ns: i64, answered_ns: i64) -> None:
        """Record a sync through the thread: from the request, or from when the thread was free, to the result."""
        lasted_ns = answered_ns - began_ns
        self._there_count += 1
        self._there_ns = lasted_ns if self._there_count == 1 else self._there_ns + (lasted_ns - self._there_ns) // 4
        # Judged only after some commits: the first one includes the start of the thread.
        if self._there_count < _WEIGHT or self._paused_until_ns == 0:
            return
        # More than half slower than the loop itself was: end the pause, and accept what the loop takes.
        if self._last_ns <= PATIENCE_NS and 2 * self._there_ns > 3 * self._last_ns:
            self._quick_ns = max(self._quick_ns, 2 * self._last_ns)
            self._paused_until_ns = answered_ns
