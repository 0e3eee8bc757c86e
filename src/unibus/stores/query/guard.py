# mypyc: compiled
"""The limits of one query while it runs: time, memory, and somebody who no longer wants the answer.

SQLite asks `tick` every few steps of its machine, and its authorizer asks `may_grow` while a query is translated.
Memory is what SQLite has more than before, in the whole process: a limit on the library itself would hit the journals
that live in it too. So a query may be stopped a little early beside others, never late.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

STEPS_PER_TICK: Final = 100
"""A step can make one value; between two looks they must not become much."""

GROWTH_BYTES_MAX: Final = 256_000_000
UNSEEN_BYTES: Final = 50_000
"""What SQLite can use without taking memory: a connection has some from the beginning."""

CANCELLED: Final = "cancelled"
TIME: Final = "time"
MEMORY: Final = "memory"
SIZE: Final = "size"


@final
class Guard:
    """`reason` says why the query has to end; it is empty while it may go on."""

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
        """From any thread."""
        self.reason = CANCELLED

    def seconds(self) -> float:
        return self._clock() - self._began

    def keep(self, size: i64) -> None:
        """So many bytes are held outside of SQLite."""
        self._kept += size

    def tick(self) -> bool:
        """Whether to stop."""
        self.ticks += 1
        return self.is_over()

    def is_over(self) -> bool:
        if not self.reason:
            if self._clock() - self._began > self._seconds:
                self.reason = TIME
            elif self._taken() > self.memory_bytes:
                self.reason = MEMORY
        return self.reason != ""

    def mark(self) -> None:
        """From here on a query is translated."""
        self._marked = self._used()

    def may_grow(self, factor: int) -> bool:
        """Whether what the translation has made may become so many times as much."""
        if not self.is_over():
            made: i64 = self._used() - self._marked
            if (max(0, made) + UNSEEN_BYTES) * factor > GROWTH_BYTES_MAX:
                self.reason = SIZE
        return self.reason == ""

    def forgive(self) -> None:
        """It may have been somebody else's."""
        self.reason = ""

    def _taken(self) -> i64:
        now: i64 = self._used()
        return now - self._base + self._kept
