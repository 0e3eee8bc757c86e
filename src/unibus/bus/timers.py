"""Calls that are due later: one heap, and one thread that sleeps until the first is due.

A virtual clock (unibus.testing) brings timers of its own, which fire when the test advances it.
"""

import heapq
import logging
import threading
import weakref
from collections.abc import Callable

from unibus.clock import Clock, Timers
from unibus.stores.seam.forked import on_fork, renew
from unibus.threads import DaemonThread

log = logging.getLogger("unibus")

__all__ = ["ThreadTimers", "Timers"]


def _leave_to_parent(timers: "ThreadTimers | None") -> None:
    if timers is not None:
        timers.leave_to_parent()


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
        self._is_reported = False  # The log has said that no thread could be started.
        me = weakref.ref(self)
        self._fork_mark = on_fork(lambda _: _leave_to_parent(me()))

    def leave_to_parent(self) -> None:
        """In a forked child: the thread is the parent's, and so is what is due."""
        renew(self._changed)
        self._stopped = True
        self._due = []

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (self._clock.monotonic_ns() + delay_ns, self._count, action))
            if self._thread is None and not self._stopped:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        """Under the lock. Where the system refuses to start a thread, the next call tries again: nothing is lost."""
        thread = DaemonThread(self._run, "unibus-timers")
        self._thread = thread  # Before its start: Ctrl-C may interrupt that, and the thread runs.
        try:
            thread.start()
        except BaseException as error:
            if thread.withdraw():
                self._thread = None
            if not isinstance(error, RuntimeError):
                raise
            if not self._is_reported:
                self._is_reported = True
                log.error("no thread could be started for timers, what is due later waits for one: %s", error)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify()

    def join(self, timeout_s: float | None, join: Callable[[threading.Thread, float | None], None]) -> None:
        """After `stop`: wait until the call that is running has returned, and the thread has ended."""
        if self._thread is not None:
            join(self._thread, timeout_s)

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
