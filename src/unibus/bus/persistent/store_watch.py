"""The one watch of a feed: whether a store will call it when a message comes.

A store calls a watch once. Between the call, the next watch and the end of the feed, each in a thread of its own, two
mistakes are possible, and both lose messages until the next one comes: to believe in a watch that is over, and to leave
one behind that takes the calls of others. So each watch is a thing of its own, and only the current one counts.
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
    """`woken` is called, in whatever thread stores a message, once after each `start`."""

    def __init__(self, store: Store, entity: str, woken: Callable[[], None]) -> None:
        self._store = store
        self._entity = entity
        self._woken = woken
        self._lock = threading.Lock()
        self._current: _Watch | None = None

    def start(self) -> None:
        """Watch, unless that is so already."""
        with self._lock:
            if self._current is not None:
                return
            watch = self._current = _Watch()  # First: it may be called, and be over, before `watch` returns.
        try:
            stop = self._store.watch(self._entity, partial(self._call, watch))
        except BaseException:
            self._drop(watch)
            raise
        with self._lock:
            watch.stop = stop
            was_ended = self._current is not watch and not watch.was_called
        if was_ended:
            stop()

    def end(self) -> Callable[[], None]:
        """Watch no longer: a `start` from now on is a new watch. The result, called without any lock, tells the store.

        A call that has come meanwhile is passed on to the next who watches.
        """
        with self._lock:
            watch, self._current = self._current, None
            stop = None if watch is None else watch.stop
        return _nothing if stop is None else stop  # None: `start` is at it, and sees that it was ended.

    def _call(self, watch: _Watch) -> None:
        if self._drop(watch):
            self._woken()

    def _drop(self, watch: _Watch) -> bool:
        """False if it is not the current one any more."""
        with self._lock:
            is_current = self._current is watch
            if is_current:
                watch.was_called = True
                self._current = None
        return is_current


def _nothing() -> None:
    """There is no watch that the store would have to be told of."""
