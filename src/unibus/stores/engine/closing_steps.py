"""The steps of closing a store: in order, each to its end, however often `close()` is called or interrupted.

    close() ──▶ step 1 ▶ step 2 ✗ Ctrl-C          the position is kept
    close() ──▶          step 2 ▶ step 3 ▶ …      so a step may run twice, and has to be idempotent

The later steps run also after one that raises: the owner's lock has to be released in any case.
"""

import threading
from collections.abc import Callable, Sequence

from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")


class ClosingSteps:
    def __init__(self) -> None:
        self._lock = threading.RLock()  # Reentrant: a step wakes receivers, and one of them may call close().
        self._position = 0
        self._error: Exception | None = None

    def run(self, what: str, steps: Sequence[Callable[[], None]]) -> None:
        """Run the remaining steps; a second thread waits for the first. Raises the first error at the end."""
        with self._lock:
            for number in range(self._position, len(steps)):
                try:
                    steps[number]()
                except Exception as error:
                    if self._error is not None:
                        log.error("closing %s: another error after the first: %r", what, error)
                    self._error = self._error or error
                # After the step, also after one that raised an Exception. KeyboardInterrupt passes through: the step is
                # repeated.
                self._position = number + 1
            first, self._error = self._error, None
        if first is not None:
            raise first


def under(lock: threading.RLock, call: Callable[[], None]) -> None:
    with lock:
        call()
