# mypyc: compiled
"""The limits of one running query: time, memory, and cancellation.

SQLite calls `tick` every few steps of its machine, and its authorizer calls `may_grow` while a query is compiled.
Memory is what SQLite has allocated since the query began, in the whole process: a limit of the library itself would
also stop the journals that use it. So beside other queries one may be stopped a little early, but never late.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

STEPS_PER_TICK: Final = 100
"""A step can create one value; between two checks they must not become large together."""

GROWTH_BYTES_MAX: Final = 256_000_000
UNSEEN_BYTES: Final = 50_000
"""What SQLite can use without allocating: a connection has some memory from its start."""

CANCELLED: Final = "cancelled"
TIME: Final = "time"
MEMORY: Final = "memory"
SIZE: Final = "size"


@final
class Guard:
    """`reason` says why the query has to stop; "" while it may continue."""

    def __init__(self, seconds: float, memory_bytes: int, clock: Callable[[], float], used: Callable[[], int]) -> None:
        self._clock = clock
        self._used = used
        self._began = clock()
        self._seconds = seconds
        self._base: i64 = used()
        self._marked: i64 = 0
        self._kept: i64 = 0
        self.memory_bytes: i64 = memory_bytes
        self.ticks: i64 = 0
        self.reason = ""

    def cancel(self) -> None:
        """Called from any thread."""
        # One assignment, which is atomic. A later `is_over` keeps the first reason.
        self.reason = CANCELLED

    def seconds(self) -> float:
        return self._clock() - self._began

    def keep(self, size: i64) -> None:
        """Count bytes that are allocated outside of SQLite."""
        self._kept += size

    def tick(self) -> bool:
        """Called by SQLite. True stops the query."""
        self.ticks += 1
        return self.is_over()

    def is_over(self) -> bool:
        if not self.reason:
            # Once a reason is set it stays: SQLite may ask again while it unwinds.
            if self._clock() - self._began > self._seconds:
                self.reason = TIME
            elif self._taken() > self.memory_bytes:
                self.reason = MEMORY
        return self.reason != ""

    def mark(self) -> None:
        """SQLite starts to compile the query."""
        self._marked = self._used()

    def may_grow(self, factor: int) -> bool:
        """Whether the compiled size may grow by this factor."""
        if not self.is_over():
            # Negative if another thread has freed memory since: then only the constant counts.
            made: i64 = self._used() - self._marked
            if (max(0, made) + UNSEEN_BYTES) * factor > GROWTH_BYTES_MAX:
                self.reason = SIZE
        return self.reason == ""

    def forgive(self) -> None:
        """Continue: another query of the process may have used the memory. A cancellation meanwhile stays."""
        if self.reason == SIZE:
            self.reason = ""

    def _taken(self) -> i64:
        now: i64 = self._used()
        return now - self._base + self._kept
