"""The watch of a pump: a registration with the store to be called when a message arrives.

A store calls a watch once. Its call, the next `start` and the `end` of the pump may come from three threads at the same
time. Two races would leave messages waiting until the next one arrives: to rely on a watch that was called already, and
to leave one registered after the end, which consumes a wake-up that another receiver needs. So each registration is an
object of its own (`_Watch`), and only the current one counts.
"""

import threading
from collections.abc import Callable
from functools import partial

from unibus.stores.seam.store import Store


class _Watch:
    """One registration with the store."""

    def __init__(self) -> None:
        self.was_called = False
        self.stop: Callable[[], None] | None = None


class StoreWatch:
    """Calls `woken` once after each `start`, in the thread that stores a message."""

    def __init__(self, store: Store, entity: str, woken: Callable[[], None]) -> None:
        self._store = store
        self._entity = entity
        self._woken = woken
        self._lock = threading.Lock()
        self._current: _Watch | None = None

    def start(self) -> None:
        """Register with the store, unless a registration is open."""
        with self._lock:
            if self._current is not None:
                return
            watch = self._current = _Watch()  # Before the registration: the store may call before `watch` returns.
        try:
            stop = self._store.watch(self._entity, partial(self._call, watch))
        except BaseException:
            self._drop(watch)
            raise
        with self._lock:
            # `end` may have run before `stop` was known, and could not unregister: then it is done here. A watch that
            # was called is removed in the store already, and must not be stopped: that would pass its wake-up on.
            watch.stop = stop
            was_ended = self._current is not watch and not watch.was_called
        if was_ended:
            stop()

    def end(self) -> Callable[[], None]:
        """End the registration; a later `start` makes a new one. The caller has to call the result, without any lock.

        The result unregisters from the store, which passes a wake-up that came meanwhile to the next watch.
        """
        with self._lock:
            watch, self._current = self._current, None
            stop = None if watch is None else watch.stop
        return _do_nothing if stop is None else stop  # None: `start` is running, and will see that it was ended.

    def _call(self, watch: _Watch) -> None:
        # `woken` without the lock: it calls `start` again.
        if self._drop(watch):
            self._woken()

    def _drop(self, watch: _Watch) -> bool:
        """Close the registration. False if it is not the current one any more."""
        with self._lock:
            is_current = self._current is watch
            if is_current:
                watch.was_called = True
                self._current = None
        return is_current


def _do_nothing() -> None:
    """No registration has to be removed from the store."""
