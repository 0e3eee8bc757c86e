"""How a store on a disk keeps to the limits of its history: snapshots that are old enough, and trims after them.

each minute      a snapshot, if the oldest change waits for one too long; then a trim
a snapshot ends  a trim: what came before it is needed no more
at close         a snapshot and a trim: many processes live for less than a minute
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from unibus.clock import Timers
from unibus.errors import BusError
from unibus.stores.engine.committer import Committer
from unibus.stores.engine.snapshot import Snapshot

log = logging.getLogger("unibus")

TRIM_EVERY_NS: Final = 60_000_000_000
TRIM_ON_NS: Final = 10_000_000
"""Where there is more to forget than one step takes, so much time for others comes before the next."""

TRIM_STEPS_AT_CLOSE: Final = 10
"""Closing does not wait for more than that; the next process goes on."""


class Retention:
    """`lock` is the store's. In a store that is closed, or has stopped, nothing happens any more."""

    def __init__(
        self,
        committer: Committer,
        snapshot: Snapshot,
        lock: threading.RLock,
        timers: Timers,
        now_ns: Callable[[], int],
    ) -> None:
        self._committer = committer
        self._snapshot = snapshot
        self._lock = lock
        self._timers = timers
        self._now_ns = now_ns
        self._closed = False

    def start(self) -> None:
        self._committer.on_snapshot = self._trim_soon
        self._timers.after(TRIM_EVERY_NS, self._each_minute)

    def close(self) -> None:
        self._closed = True

    def _each_minute(self) -> None:
        if not self._closed and self._committer.failure is None:
            with self._lock:
                is_wanted = self._snapshot.want_if_old()
            if is_wanted:
                self._committer.kick()  # A store that is idle writes nothing by itself.
            self._trim()
            self._timers.after(TRIM_EVERY_NS, self._each_minute)

    def _trim_soon(self) -> None:
        if not self._closed:
            self._timers.after(TRIM_ON_NS, self._trim)

    def _trim(self) -> None:
        if not self._closed and self._committer.failure is None and self._step():
            self._timers.after(TRIM_ON_NS, self._trim)

    def _step(self) -> bool:
        """True if there is more to trim."""
        try:
            return self._committer.trim(self._now_ns())
        except BusError as error:
            log.warning("history could not be trimmed: %s", error)
            return False

    def save(self) -> None:
        """At close, after everything was written: with a snapshot the next start has nothing to replay, and JSON files
        show what exists. What was answered is in the log already, so whatever ends this early loses nothing.
        """
        with self._lock:
            is_wanted = self._snapshot.want_at_close()
        if is_wanted:
            self._committer.flush()
        for _ in range(TRIM_STEPS_AT_CLOSE):
            if self._committer.failure is not None or not self._step():
                break
