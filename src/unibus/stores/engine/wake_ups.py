# mypyc: compiled
"""Who waits for messages of which entity, and waking them: one for each message, first come first served.

Beside them, who waits for history to grow: all of these are woken by the next commit.
"""

import logging
import threading
from collections.abc import Callable

from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.state import StoreState

log = logging.getLogger("unibus")


class HistoryWakeUps:
    """Those that are called once when history has grown. A commit looks at `calls`, and does nothing while it is empty.

    `add` and `wake` replace the list under a lock of their own: a commit must not wait for the store's.
    """

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def add(self, call: Callable[[], None]) -> Callable[[], None]:
        """Gives a way to stop watching."""
        with self._lock:
            self.calls = [*self.calls, call]

        def stop() -> None:
            with self._lock:
                self.calls = [each for each in self.calls if each is not call]

        return stop

    def wake(self) -> None:
        """Without the store's lock. A call that raises keeps no other one from being made."""
        with self._lock:
            calls, self.calls = self.calls, []
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("a reader of history could not be notified")


class WakeUps:
    """The watchers of one store. Calls are made without its lock."""

    def __init__(self, state: StoreState, lock: threading.RLock) -> None:
        self.history = HistoryWakeUps()
        self._state = state
        self._lock = lock

    def add(self, entity: Entity, call: Callable[[], None]) -> Callable[[], None]:
        """Under the lock. Gives a way to stop watching."""
        entity.wakers.append(call)

        def stop() -> None:
            with self._lock:
                others = [waker for waker in entity.wakers if waker is not call]
                if len(others) < len(entity.wakers):
                    # By identity: the same method may watch again, and then it is equal to the one that was called.
                    entity.wakers = others
                elif entity.active and entity.wakers and not entity.settings.requires_session:
                    # It was woken and goes away: the message it was woken for is another one's. Those who wait for
                    # sessions were all woken together.
                    self._state.woken.append(entity)
            self.wake()

        return stop

    def wake(self) -> None:
        calls: list[Callable[[], None]] = []
        with self._lock:
            woken = self._state.woken
            self._state.woken = []
            for entity in woken:
                if entity.settings.requires_session or entity.deleted or entity.stirred:
                    # Which of them it is for only they know.
                    entity.stirred = False
                    calls += entity.wakers
                    entity.wakers = []
                elif entity.wakers and entity.receives():
                    calls.append(entity.wakers.pop(0))
        for call in calls:
            call()

    def wake_all(self) -> None:
        """The store is closing: everybody looks again, and is told so."""
        with self._lock:
            calls = [call for entity in self._state.entities.values() for call in entity.wakers]
            for entity in self._state.entities.values():
                entity.wakers = []
        for call in calls:
            call()
        self.history.wake()
