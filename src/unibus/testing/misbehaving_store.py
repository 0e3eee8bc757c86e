"""A store that misbehaves: to test what a program does with answers that come late, fail, or never come.

    MisbehavingStore(real)                      fails only where a test plans it: `fail_at`, `refuse_at`
    MisbehavingStore(real, late=7)              transparent: nothing fails, and every answer is late
    MisbehavingStore(real, hostile=7)           hostile: calls are refused, answers are lost

`real` is any store: memory, SQLite, a shared one. The numbers are seeds.

*Transparent*: the contract of `Store` and not more, as a store over a network gives it (late_calls.py). A Pending has
no value before it is done, a refusal arrives with the answer, and answers of different callers arrive in any order.
Some answers of `apply` are lost, and the batch is sent again under the same batch id, with the time of its first
attempt. An answer of `claim` or `accept` is only late. A correct program notices no difference, except for the events
`applied` in history.

*Hostile*: StoreUnavailable means that nothing was applied, and the next call may succeed. StoreFailed means "unknown
outcome": with `taking_effect` the call was applied and only its result is lost; without it nothing was applied. A
program must be correct in both cases. The store works on, as after a lost connection. With `stops` it has stopped until
`heal()`, as if it had been opened again; health says which.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Command, Declare
from unibus.errors import BusError, StoreFailed, StoreUnavailable, UsageError
from unibus.stores.seam.catalog import Catalog
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.history import History
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord
from unibus.stores.seam.moment import StoreCopy
from unibus.stores.seam.pending import Pending, repeated, undecided
from unibus.stores.seam.store import ClaimRequest, EntityInfo, SessionLock, Store, StoreHealth, StoreIdentity
from unibus.testing.late_calls import LateCalls, ask_again
from unibus.testing.late_catalog import LateCatalog

VERBS: Final = ("apply", "claim", "accept", "subscribe_from")
"""The operations that change something, and so can fail with an unknown outcome."""

HINT: Final = "the last calls may or may not have taken effect; open the bus again"
LOST_HINT: Final = "the call may or may not have taken effect"
CHANCE: Final = 0.1
"""How often a hostile store misbehaves: often enough for every test, and rarely enough that work is done in between."""

T = TypeVar("T")


class Loss(NamedTuple):
    """The result of a call is lost: whether the call takes effect, and whether the store stops."""

    taking_effect: bool
    stops: bool


class Misdeeds:
    """What a store is asked to do wrong, and whether it has stopped."""

    def __init__(self, url: str, hostile: int | None) -> None:
        self.calls: dict[str, int] = dict.fromkeys(VERBS, 0)
        self.failure = ""
        self._url = url
        self._hostility = None if hostile is None else random.Random(hostile)
        self._lock = threading.Lock()
        self._plans: dict[tuple[str, int], BusError | Loss] = {}  # An error to refuse with, or a lost result.

    def plan(self, call: int, verb: str, misdeed: BusError | Loss) -> None:
        if verb not in VERBS:
            raise UsageError(f"{verb!r} cannot fail with an unknown outcome", f"use one of {', '.join(VERBS)}")
        if call < 1:
            raise UsageError(f"call must be 1 or more, got {call!r}", "the next call is 1")
        with self._lock:
            self._plans[verb, self.calls[verb] + call] = misdeed

    def heal(self) -> None:
        with self._lock:
            self.failure = ""
            self._plans.clear()

    def next(self, verb: str) -> BusError | Loss | None:
        """Count a call. What it does wrong: an error, or a lost result; None for nothing."""
        with self._lock:
            self.check()
            self.calls[verb] += 1
            misdeed = self._plans.pop((verb, self.calls[verb]), None)
            if misdeed is None and self._hostility is not None:
                misdeed = self._draw(self._hostility)
        return misdeed

    def _draw(self, hostility: random.Random) -> BusError | Loss | None:
        if hostility.random() >= CHANCE:
            return None
        return hostility.choice((self.unreachable(), Loss(True, False), Loss(False, False)))

    def check(self) -> None:
        if self.failure:
            raise self.error()

    def error(self) -> StoreFailed:
        return StoreFailed(self.failure, HINT)

    def unreachable(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._url} is not reachable", "try again")

    def lose(self, verb: str, stops: bool, real: Pending[T] | None) -> Pending[T]:
        """A result that fails when the real one is known. A call that the store refuses stops nothing."""
        what = f"{verb} {self.calls[verb]} was planned to fail"
        if stops:
            self.failure = f"{self._url} could not be written: {what}"
            unknown = self.error()
        else:
            unknown = StoreFailed(f"the answer of {self._url} is lost: {what}", LOST_HINT)
        lost: Pending[T] = undecided()

        def known(answer: Pending[T]) -> None:
            refusal = answer.error
            if refusal is not None and stops:
                self.failure = ""
            lost.reject(repeated(refusal or unknown))

        if real is None:
            lost.reject(repeated(unknown))
        else:
            real.on_done(known)
        return lost


class MisbehavingStore:
    """Passes every call to another store: late, or not at all, as it was asked to."""

    def __init__(self, store: Store, *, late: int | None = None, hostile: int | None = None) -> None:
        self.url = store.url
        self.durability = store.durability
        self.commit_placement = store.commit_placement
        self._store = store
        self._late = None if late is None else LateCalls(late)
        self._catalog: Catalog = store.catalog if self._late is None else LateCatalog(store.catalog, self._late)
        self._misdeeds = Misdeeds(self.url, hostile)
        self.calls = self._misdeeds.calls
        """How often each operation was called."""
        self.identity: StoreIdentity = store.identity
        self.now_ns: Callable[[], int] = store.now_ns
        self.check: Callable[[], list[str]] = store.check

    # For tests

    def fail_at(self, call: int, verb: str = "apply", *, taking_effect: bool = False, stops: bool = True) -> None:
        """Make the `call`-th call of the operation from now fail (1 is the next), before or after it took effect.

        With `stops` every later call fails, too, until `heal()`; without it only the result of this call is lost.
        """
        self._misdeeds.plan(call, verb, Loss(taking_effect, stops))

    def refuse_at(self, call: int, verb: str = "apply", error: BusError | None = None) -> None:
        """Make that call fail without an effect; the store goes on. The error arrives as the real ones do."""
        self._misdeeds.plan(call, verb, error or self._misdeeds.unreachable())

    def heal(self) -> None:
        """Work again, with everything that took effect. Planned failures are removed."""
        self._misdeeds.heal()

    def is_idle(self) -> bool:
        """Whether every call is answered: a `VirtualClock` whose timers have this as `is_resting` waits for that."""
        return self._late is None or self._late.is_idle()

    # How calls misbehave

    def _call(self, verb: str, ask: Callable[[], Pending[T]]) -> Pending[T]:
        misdeed = self._misdeeds.next(verb)
        if misdeed is None:
            return self._read(ask)
        if isinstance(misdeed, BusError):
            return self._read(partial(_refuse, misdeed))
        # A call that the store rejects raises here, or arrives as rejected: its outcome is known.
        return self._misdeeds.lose(verb, misdeed.stops, self._read(ask) if misdeed.taking_effect else None)

    def _read(self, ask: Callable[[], Pending[T]]) -> Pending[T]:
        """The answer of the store, late if this store is."""
        return ask() if self._late is None else self._late.call(ask)

    # The operations of a store

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = "", first_ns: int = 0
    ) -> Pending[list[object]]:
        if self._late is None or not self._late.loses():
            return self._call("apply", lambda: self._store.apply(commands, durability, batch_id, first_ns))
        # As a client does that gives each batch an id: the time of the first attempt is that of the call.
        lossy = partial(
            self._store.apply, commands, durability, batch_id or uuid4().hex, first_ns or self._store.now_ns()
        )
        return self._call("apply", partial(ask_again, lossy))

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        return self._call("claim", lambda: self._store.claim(request))

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        return self._call("accept", lambda: self._store.accept(entity, session_id, consumer))

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        return self._call("subscribe_from", lambda: self._store.subscribe_from(declare, after_sequence, since_ns))

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        self._misdeeds.check()
        return self._store.watch(entity, call)

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None, bytes_max: int = 0
    ) -> Pending[list[Claimed]]:
        self._misdeeds.check()
        return self._read(lambda: self._store.peek(entity, from_sequence, count, session_id, bytes_max))

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]:
        self._misdeeds.check()
        return self._read(lambda: self._store.session_state(lock))

    def entities(self) -> Pending[list[EntityInfo]]:
        self._misdeeds.check()
        return self._read(self._store.entities)

    def position(self, name: str) -> Pending[int]:
        self._misdeeds.check()
        return self._read(lambda: self._store.position(name))

    def list_messages(
        self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE
    ) -> Pending[list[MessageRecord]]:
        self._misdeeds.check()
        return self._read(lambda: self._store.list_messages(entity, from_sequence, count))

    def read_bodies(self, keys: Sequence[MessageKey]) -> Pending[dict[MessageKey, bytes]]:
        self._misdeeds.check()
        return self._read(lambda: self._store.read_bodies(keys))

    def copied(self) -> Pending[StoreCopy]:
        self._misdeeds.check()
        return self._read(self._store.copied)

    @property
    def history(self) -> History:
        self._misdeeds.check()
        return self._store.history

    @property
    def catalog(self) -> Catalog:
        self._misdeeds.check()
        return self._catalog

    def health(self) -> StoreHealth:
        health = self._store.health()
        if self._misdeeds.failure:
            failed = self._misdeeds.failure
            return replace(health, ok=False, problem=failed, stopped=True)
        return health

    def close(self) -> None:
        """Answer every open call first: a store that is closed has written what it was given."""
        if self._late is not None:
            self._late.close()
        self._store.close()


def _refuse(error: BusError) -> Pending[T]:
    raise error
