"""Timers: one heap of deadlines, and one daemon thread that sleeps until the earliest.

A virtual clock (unibus.testing) has timers of its own, which run when the test advances it.
"""

import heapq
import threading
import weakref
from collections.abc import Callable

from unibus.clock import Clock, Timers
from unibus.safe_log import SafeLogger
from unibus.stores.seam.forked import on_fork, renew
from unibus.threads import DaemonThread

log = SafeLogger("unibus")

__all__ = ["ThreadTimers", "Timers"]


def _leave_to_parent(timers: "ThreadTimers | None") -> None:
    if timers is not None:
        timers.leave_to_parent()


class ThreadTimers(Timers):
    """Timers on the system's monotonic clock. The thread starts with the first timer that is set.

    Actions run one at a time, in the order of their deadlines; of equal deadlines the one that was set first. What an
    action raises goes to `report`, and the thread continues.
    """

    def __init__(self, clock: Clock, report: Callable[[BaseException], None]) -> None:
        self._clock = clock
        self._report = report
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0  # Orders equal deadlines, so that two actions are never compared.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._is_reported = False  # Whether the log already says that no thread could be started.
        # Weak: the callbacks of a fork are kept for the whole process.
        me = weakref.ref(self)
        self._fork_mark = on_fork(lambda _: _leave_to_parent(me()))

    def leave_to_parent(self) -> None:
        """In a forked child: the thread exists only in the parent, which runs the pending actions."""
        renew(self._changed)
        self._stopped = True
        self._heap = []

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        with self._changed:
            self._count += 1
            # Also after `stop`, where it never runs: a caller need not know whether the bus is closing.
            heapq.heappush(self._heap, (self._clock.monotonic_ns() + delay_ns, self._count, action))
            if self._thread is None and not self._stopped:
                self._start()
            # Also if another timer is earlier: the thread looks and sleeps again.
            self._changed.notify()

    def _start(self) -> None:
        """Start the thread; the caller holds the lock. If the system refuses a thread, the next timer tries again, and
        the pending actions stay in the heap."""
        thread = DaemonThread(self._run, "unibus-timers")
        self._thread = thread  # Before start(): Ctrl-C may interrupt that call after the thread has begun to run.
        try:
            thread.start()
        except BaseException as error:
            if thread.withdraw():
                self._thread = None
            # RuntimeError is the system's refusal. Everything else, such as Ctrl-C, belongs to the caller.
            if not isinstance(error, RuntimeError):
                raise
            if not self._is_reported:
                self._is_reported = True
                log.error("cannot start the thread for timers; the next timer that is set tries again: %s", error)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._heap.clear()
            self._changed.notify()

    def join(self, timeout_s: float | None, join: Callable[[threading.Thread, float | None], None]) -> None:
        """After `stop`: wait until the running action has returned and the thread has ended."""
        if self._thread is not None:
            # By the caller's function: a bus must not join the thread that runs its own close().
            join(self._thread, timeout_s)

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except BaseException as error:
                # Also SystemExit, as in the worker pool: `after` would never start an ended thread again.
                self._report(error)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopped:
                wait_s = None
                if self._heap:
                    wait_s = (self._heap[0][0] - self._clock.monotonic_ns()) / 1e9
                    if wait_s <= 0:
                        return heapq.heappop(self._heap)[2]
                # Measured again after each wake-up: a new timer may be earlier, and a wait may end early.
                self._changed.wait(wait_s)
        return None
