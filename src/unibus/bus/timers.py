"""Calls that are due later: one heap, and one thread that sleeps until the first is due.

A virtual clock (unibus.testing) brings timers of its own, which fire when the test advances it.
"""

import heapq
import threading
from collections.abc import Callable

from unibus.clock import Clock, Timers

__all__ = ["ThreadTimers", "Timers"]


class ThreadTimers(Timers):
    """Timers on the system's monotonic clock. The thread starts with the first call."""

    def __init__(self, clock: Clock, report: Callable[[BaseException], None]) -> None:
        self._clock = clock
        self._report = report
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (self._clock.monotonic_ns() + delay_ns, self._count, action))
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="unibus-timers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception as error:
                self._report(error)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopped:
                wait_s = None
                if self._due:
                    wait_s = (self._due[0][0] - self._clock.monotonic_ns()) / 1e9
                    if wait_s <= 0:
                        return heapq.heappop(self._due)[2]
                self._changed.wait(wait_s)
        return None
