"""A store that fails on demand: to test what a program does when it cannot know whether a call took effect.

    store = FaultStore(real)                                # any store: memory, SQLite, a shared one
    store.fail_at(2, "apply", taking_effect=True)           # the second batch from now: stored, and its result lost
    ...                                                     # StoreFailed for that call, and for every call after it
    store.heal()                                            # as if it had been opened again

The rule is that of every store: StoreFailed means "unknown outcome", and the store has stopped. With `taking_effect`
the call was applied and only its result is lost; without it nothing was applied. A program must be correct in both
cases.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Command, Declare
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.errors import StoreFailed, UsageError
from unibus.stores.seam.catalog import Catalog
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.history import History
from unibus.stores.seam.pending import CommitResult, Pending
from unibus.stores.seam.store import ClaimRequest, EntityInfo, SessionLock, Store, StoreHealth

VERBS: Final = ("apply", "claim", "accept", "subscribe_from")
"""The operations that change something, and so can fail with an unknown outcome."""

T = TypeVar("T")


class FaultStore:
    """Passes every call to another store, except the calls that are planned to fail."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.durability = store.durability
        self.commit_placement = store.commit_placement
        self.calls: dict[str, int] = dict.fromkeys(VERBS, 0)
        """How often each operation was called."""
        self._store = store
        self._lock = threading.Lock()
        self._plans: dict[tuple[str, int], bool] = {}
        self._failure = ""

    # For tests

    def fail_at(self, call: int, verb: str = "apply", *, taking_effect: bool = False) -> None:
        """Make the `call`-th call of the operation from now fail (1 is the next), before or after it took effect."""
        if verb not in VERBS:
            raise UsageError(f"{verb!r} cannot fail with an unknown outcome", f"use one of {', '.join(VERBS)}")
        if call < 1:
            raise UsageError(f"call must be 1 or more, got {call!r}", "the next call is 1")
        with self._lock:
            self._plans[verb, self.calls[verb] + call] = taking_effect

    def heal(self) -> None:
        """Work again, with everything that took effect. Planned failures are removed."""
        with self._lock:
            self._failure = ""
            self._plans.clear()

    # How calls fail

    def _call(self, verb: str, ask: Callable[[], Pending[T]]) -> Pending[T]:
        with self._lock:
            self._check()
            self.calls[verb] += 1
            number = self.calls[verb]
            taking_effect = self._plans.pop((verb, number), None)
        real = (
            None if taking_effect is False else ask()
        )  # A call that the store rejects raises here: its outcome is known.
        if taking_effect is None and real is not None:
            return real
        self._failure = f"{self.url} could not be written: {verb} {number} was planned to fail"
        return self._lost(real)

    def _check(self) -> None:
        if self._failure:
            raise self._error()

    def _error(self) -> StoreFailed:
        return StoreFailed(self._failure, "the last calls may or may not have taken effect; open the bus again")

    def _lost(self, real: Pending[T] | None) -> Pending[T]:
        """A result that fails, when the real one is known."""
        outcome = CommitResult(None)
        if real is None:
            outcome.decide(self._error)
        else:
            real.on_done(lambda _: outcome.decide(self._error))
        return cast("Pending[T]", Pending(None, outcome))

    # The operations of a store

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = ""
    ) -> Pending[list[object]]:
        return self._call("apply", lambda: self._store.apply(commands, durability, batch_id))

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        return self._call("claim", lambda: self._store.claim(request))

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        return self._call("accept", lambda: self._store.accept(entity, session_id, consumer))

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        return self._call("subscribe_from", lambda: self._store.subscribe_from(declare, after_sequence, since_ns))

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        self._check()
        return self._store.watch(entity, call)

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None, bytes_max: int = 0
    ) -> Pending[list[Claimed]]:
        self._check()
        return self._store.peek(entity, from_sequence, count, session_id, bytes_max)

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]:
        self._check()
        return self._store.session_state(lock)

    def entities(self) -> Pending[list[EntityInfo]]:
        self._check()
        return self._store.entities()

    def was_processed(self, entity: str, key: str) -> bool:
        self._check()
        return self._store.was_processed(entity, key)

    def position(self, name: str) -> int:
        self._check()
        return self._store.position(name)

    def list_messages(self, entity: str | None = None) -> list[StoredMessage]:
        self._check()
        return self._store.list_messages(entity)

    def get_message(self, entity: str, sequence: int) -> StoredMessage | None:
        self._check()
        return self._store.get_message(entity, sequence)

    def read_bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        self._check()
        return self._store.read_bodies(entries)

    @property
    def history(self) -> History:
        self._check()
        return self._store.history

    @property
    def catalog(self) -> Catalog:
        self._check()
        return self._store.catalog

    def health(self) -> StoreHealth:
        health = self._store.health()
        if self._failure:
            return StoreHealth(False, self.url, health.durability, self._failure, health.last_seq)
        return health

    def close(self) -> None:
        self._store.close()
