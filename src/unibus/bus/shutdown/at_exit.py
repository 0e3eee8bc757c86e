"""The end of a program whose bus was not closed: waits a moment for handlers, then closes.

    wait for handlers that can run ──▶ after NOTICE_S: log what is waited for ──▶ at most FINISH_S ──▶ close

One log line reports the messages that are lost with the process, by count and channel; also those for async handlers,
whose event loop has ended by now. Acknowledged messages are safe: they were durable before their publisher got the
answer.

All buses share the time. Ctrl-C ends the wait for handlers, and the stores are still closed; a second Ctrl-C ends that,
too.

All of this runs in the main thread: at interpreter exit Python 3.12 and later cannot start threads.
"""

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Final

from unibus.bus.mistaken_keywords import publish_hint
from unibus.bus.shutdown.steps import Shutdown
from unibus.bus.shutdown.unhandled import EXITED
from unibus.counting import counted
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

FINISH_S: Final = 5.0
"""How long a program that did not close its buses waits for their handlers at its end."""
NOTICE_S: Final = 1.0
"""After this time the log says what the program waits for: a user at a terminal wonders why it does not end."""

open_buses: "weakref.WeakSet[Shutdown]" = weakref.WeakSet()


class Exit:
    """The end of one bus that was not closed."""

    def __init__(self, shutdown: Shutdown, finish_s: float = FINISH_S, notice_s: float = NOTICE_S) -> None:
        now_s = time.monotonic()
        self._shutdown = shutdown
        self._end_s = now_s + finish_s
        self._notice_at_s = now_s + notice_s
        self._is_noticed = False

    def run(self) -> None:
        shutdown, closing = self._shutdown, self._shutdown.closing
        if not closing.is_at_work():  # It is at work if Ctrl-C interrupted a caller of close().
            shutdown.end = EXITED
            if not shutdown.is_stopped():  # A stopped bus delivers nothing: do not wait for its messages.
                self._wait_for_handlers()
        # The steps must not wait for handlers a second time, and must not start a thread.
        shutdown.is_exit = True
        shutdown.join = self._join
        closing.shorten(self._left_s())
        closing.finish_here()
        if not closing.is_done:  # A thread runs the steps, for a close() that was interrupted.
            self._wait(closing.wait, self._left_s(), lambda: closing.waits_for)
            if closing.error is not None and not closing.is_done:  # Else it was logged, or raised, at the end.
                log.error("%s", closing.error)

    def hurry(self) -> None:
        """After Ctrl-C: close the store, and wait for no handler."""
        if not self._shutdown.closing.is_at_work():
            self._shutdown.end = EXITED
        self._shutdown.is_exit = True
        # No step waits from now on, also in a thread that already runs the steps; `wake` ends the wait it is in.
        self._shutdown.closing.is_released = True
        self._shutdown.closing.wake()
        self._shutdown.closing.finish_here()
        self._shutdown.closing.wait(NOTICE_S)

    def _wait_for_handlers(self) -> None:
        shutdown = self._shutdown
        if not self._wait(
            shutdown.wait_for_handlers, self._left_s(), lambda: shutdown.described(shutdown.busy_groups())
        ):
            stored = shutdown.stored_of(shutdown.busy_groups())
            if stored:  # Lost messages are reported later, by the step that counts them (unhandled.py).
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
        """Wait; if it takes longer than NOTICE_S, log in between what is waited for."""
        if self._is_noticed:
            return wait(timeout_s)
        silent_s = max(0.0, self._notice_at_s - time.monotonic())
        if timeout_s is not None and timeout_s <= silent_s:
            return wait(timeout_s)
        if wait(silent_s):
            return True
        self._is_noticed = True
        log.warning(
            "unibus: waiting for %s of the bus %s before exit; call bus.close() or use `with`; Ctrl-C stops waiting",
            what(),
            self._shutdown.url,
        )
        return wait(None if timeout_s is None else max(0.0, timeout_s - silent_s))

    def _left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())


def finish(shutdowns: Iterable[Shutdown], finish_s: float = FINISH_S) -> None:
    """Close every bus; together they wait at most `finish_s`, plus the time that their stores need."""
    end_s = time.monotonic() + finish_s
    is_hurried = False
    for shutdown in shutdowns:
        if shutdown.closing.is_done:
            continue
        ending = Exit(shutdown, max(0.0, end_s - time.monotonic()))
        try:
            # The first Ctrl-C applies to all buses that follow: their stores are closed, but their handlers are not
            # waited for.
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


def explain_publish(error: object) -> None:
    """Log what was meant by a mistaken keyword of `publish`, if that error has ended the program. One that left the
    block of a bus has the hint as a note."""
    hint = publish_hint(error) if isinstance(error, BaseException) else ""
    if hint and not hasattr(error, "__notes__"):
        log.warning("publish: %s", hint)


@atexit.register
def finish_open_buses() -> None:
    explain_publish(getattr(sys, "last_value", None))  # Set by the interpreter when it has shown the error.
    finish(list(open_buses))
