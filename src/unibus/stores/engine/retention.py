"""Retention: how a store keeps its history within its limits, by snapshots and by trims after them.

each minute      a snapshot, if the oldest change without one is too old; then a trim
a snapshot ends  a trim: recovery does not need the history before it any more
at close         a snapshot and a trim: many processes run for less than a minute
"""

import threading
from collections.abc import Callable
from typing import Final

from unibus.clock import Timers
from unibus.errors import BusError
from unibus.safe_log import SafeLogger
from unibus.stores.engine.committer import Committer
from unibus.stores.engine.snapshot import Snapshot

log = SafeLogger("unibus")

TRIM_EVERY_NS: Final = 60_000_000_000
TRIM_ON_NS: Final = 10_000_000
"""The pause between two steps of a trim, in which commits can run: a step holds the lock `committing`."""

TRIM_STEPS_AT_CLOSE: Final = 10
"""At most so many steps of a trim at close; the next process continues."""


class Retention:
    """`lock` is the store's. Does nothing once the store is closed or has failed."""

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
        # Timers that are set already find this flag and do nothing: they need not be cancelled.
        self._closed = True

    def _each_minute(self) -> None:
        if not self._closed and self._committer.failure is None:
            with self._lock:
                is_wanted = self._snapshot.want_if_old()
            if is_wanted:
                self._committer.kick()  # An idle store has no commit that would take the snapshot along.
            self._trim()
            self._timers.after(TRIM_EVERY_NS, self._each_minute)

    def _trim_soon(self) -> None:
        if not self._closed:
            # Called from a commit, which holds `committing`, and a trim takes that lock: so it runs from a timer.
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
        """The snapshot and the trims at close, after everything is written. The next start then has nothing to replay,
        and JSON files show what exists. A crash here loses nothing: what was acknowledged is in the log.
        """
        with self._lock:
            # The writer thread has ended, and calls are rejected: nothing is decided any more, so one pass of slices
            # covers all.
            is_wanted = self._snapshot.want_at_close()
        if is_wanted:
            self._committer.flush()
        for _ in range(TRIM_STEPS_AT_CLOSE):
            # Bounded: a program that ends should not wait for the trim of a long history.
            if self._committer.failure is not None or not self._step():
                break
