# mypyc: compiled
"""Wake-ups of receivers and of history readers.

Receivers wait for messages of one entity: each message wakes one of them, the one that waits longest. History readers
wait for new events: the next commit wakes all of them.
"""

import threading
from collections.abc import Callable

from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.state import StoreState
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")


class HistoryWakeUps:
    """Callbacks that are called once when history has grown. A commit reads `calls` and does nothing if it is empty.

    `add` and `wake` replace the list under their own lock: a commit must not wait for the store's lock.
    """

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def add(self, call: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that stops watching."""
        with self._lock:
            self.calls = [*self.calls, call]

        def stop() -> None:
            with self._lock:
                self.calls = [each for each in self.calls if each is not call]

        return stop

    def wake(self) -> None:
        """Called without the store's lock. The other callbacks run also if one raises."""
        with self._lock:
            calls, self.calls = self.calls, []
        # Cleared before the calls: a callback may watch again, and must be called for the next commit.
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("a reader of history could not be notified")


class WakeUps:
    """The watchers of one store. Callbacks run without its lock, because they may call the store."""

    def __init__(self, state: StoreState, lock: threading.RLock) -> None:
        self.history = HistoryWakeUps()
        self._state = state
        self._lock = lock

    def add(self, entity: Entity, call: Callable[[], None]) -> Callable[[], None]:
        """Called under the lock. Returns a function that stops watching."""
        entity.wakers.append(call)

        def stop() -> None:
            with self._lock:
                others = [waker for waker in entity.wakers if waker is not call]
                if len(others) < len(entity.wakers):
                    # Compared by identity: a bound method that watches again is equal to the one that was called.
                    entity.wakers = others
                elif entity.active and entity.wakers and not entity.settings.requires_session:
                    # It was woken already and leaves without claiming: wake the next one for that message. For sessions
                    # all waiters were woken together, so none is missed.
                    self._state.woken.append(entity)
            self.wake()

        return stop

    def wake(self) -> None:
        calls: list[Callable[[], None]] = []
        with self._lock:
            # Taken under the lock, called without it: a callback may call the store, or belong to a loop in another
            # thread.
            woken = self._state.woken
            self._state.woken = []
            for entity in woken:
                if entity.settings.requires_session or entity.deleted or entity.status_changed:
                    # Each waiter accepts other sessions, or has to see the deletion: wake all, and each looks itself.
                    entity.status_changed = False
                    calls += entity.wakers
                    entity.wakers = []
                elif entity.wakers and entity.receives():
                    # `woken` has the entity once for each message that became active, so each message wakes one
                    # receiver. A receiver that finds the message taken already waits again.
                    calls.append(entity.wakers.pop(0))
        for call in calls:
            call()

    def wake_all(self) -> None:
        """The store closes or has failed: every waiter calls the store again, and gets the error."""
        with self._lock:
            calls = [call for entity in self._state.entities.values() for call in entity.wakers]
            for entity in self._state.entities.values():
                entity.wakers = []
        for call in calls:
            call()
        self.history.wake()
