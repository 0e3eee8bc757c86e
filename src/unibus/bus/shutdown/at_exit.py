"""A program that ends with a bus that was not closed: its handlers get a moment, and a log line says what it waits for.

    handlers that can still run ▶ (after a second: one line says what is waited for) ▶ at most FINISH_S ▶ closing

What is lost with the process is reported in one line, by number and channel: also what waits for async handlers, whose
event loop has ended by now. What was acknowledged is durable in any case: it was before its publisher got the answer.

All buses share the time. Ctrl-C ends the wait for handlers; the stores are closed all the same, and a second Ctrl-C
ends that too.

Everything happens in the main thread. At this point Python 3.12 and later start no threads.
"""

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Final

from unibus.bus.shutdown.steps import Shutdown
from unibus.bus.shutdown.unhandled import EXITED, described
from unibus.counting import counted

log = logging.getLogger("unibus")

FINISH_S: Final = 5.0
"""How long a program that forgot to close its buses waits for their handlers at its end."""
NOTICE_S: Final = 1.0
"""After so long it says what it waits for: a person in front of a terminal begins to wonder."""

open_buses: "weakref.WeakSet[Shutdown]" = weakref.WeakSet()


class Exit:
    """The end of one bus that was not closed."""

    def __init__(self, shutdown: Shutdown, finish_s: float = FINISH_S, notice_s: float = NOTICE_S) -> None:
        now_s = time.monotonic()
        self._shutdown = shutdown
        self._end_s = now_s + finish_s
        self._notice_at_s = now_s + notice_s
        self._is_told = False

    def run(self) -> None:
        shutdown, closing = self._shutdown, self._shutdown.closing
        if not closing.is_at_work():  # Else Ctrl-C has ended a wait in close().
            shutdown.end = EXITED
            if not shutdown.is_stopped():  # Messages of a stopped bus wait for a start.
                self._wait_for_handlers()
        shutdown.is_exit = True
        shutdown.join = self._join
        closing.shorten(self._left_s())
        closing.finish_here()
        if not closing.is_done:  # A thread is at it, for a close() that was cut short.
            self._wait(closing.wait, self._left_s(), lambda: closing.waits_for)
            if closing.error is not None:
                log.error("%s", closing.error)

    def hurry(self) -> None:
        """After Ctrl-C: release the store, and wait for nothing."""
        if not self._shutdown.closing.is_at_work():
            self._shutdown.end = EXITED
        self._shutdown.is_exit = True
        self._shutdown.closing.is_released = True
        self._shutdown.closing.wake()
        self._shutdown.closing.finish_here()
        self._shutdown.closing.wait(NOTICE_S)

    def _wait_for_handlers(self) -> None:
        shutdown = self._shutdown
        if not self._wait(shutdown.wait_for_handlers, self._left_s(), lambda: described(shutdown.busy_groups())):
            stored = shutdown.stored_of(shutdown.busy_groups())
            if stored:  # What is lost is reported by the step that finds it; see unhandled.py.
                log.warning(
                    "%s with %s unhandled, to be delivered after the next start of %s%s",
                    EXITED.what,
                    counted(stored, "message"),
                    shutdown.url,
                    EXITED.advice,
                )

    def _join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        def wait(wait_s: float | None) -> bool:
            thread.join(wait_s)
            return not thread.is_alive()

        self._wait(wait, timeout_s, lambda: self._shutdown.closing.waits_for)

    def _wait(self, wait: Callable[[float | None], bool], timeout_s: float | None, what: Callable[[], str]) -> bool:
        """Wait in two parts, if it takes so long: between them comes the line that says what for."""
        if self._is_told:
            return wait(timeout_s)
        quiet_s = max(0.0, self._notice_at_s - time.monotonic())
        if timeout_s is not None and timeout_s <= quiet_s:
            return wait(timeout_s)
        if wait(quiet_s):
            return True
        self._is_told = True
        log.warning(
            "unibus: waiting for %s of the bus %s before exit; call bus.close() or use `with`; Ctrl-C stops waiting",
            what(),
            self._shutdown.url,
        )
        return wait(None if timeout_s is None else max(0.0, timeout_s - quiet_s))

    def _left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())


def finish(shutdowns: Iterable[Shutdown], finish_s: float = FINISH_S) -> None:
    """Let every bus end; together they take no more than that, and what their stores need."""
    end_s = time.monotonic() + finish_s
    is_hurried = False
    for shutdown in shutdowns:
        if shutdown.closing.is_done:
            continue
        ending = Exit(shutdown, max(0.0, end_s - time.monotonic()))
        try:
            if not is_hurried:
                ending.run()
                continue
        except KeyboardInterrupt:
            is_hurried = True
            log.warning("unibus: stopped waiting")
        except Exception:
            log.exception("unibus: a bus could not be closed at the end of the program")
            continue
        try:
            ending.hurry()
        except KeyboardInterrupt:
            return


@atexit.register
def finish_open_buses() -> None:
    finish(list(open_buses))
