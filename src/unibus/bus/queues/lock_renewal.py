# mypyc: compiled
"""Lock renewal: keeps message and session locks while their receivers work, with one timer for all of them.

A handler may take as long as it needs. Each lock is renewed when a third of its duration is over, all due locks in one
batch. So two renewals may fail before the lock expires.

    start ──▶ _held ──timer at a third of the shortest lock──▶ Renew batch ──▶ new expiry, next timer
                ▲                                                  │ rejected: one by one
    stop ───────┘ removes it                                       ▼
                                                               on_lost, once

A renewal with an unknown outcome is repeated while the lock lasts, unless the store has stopped.

A lock that cannot be renewed is lost: another receiver may get the message. `on_lost` is called once for it, so that
the work under it can be cancelled; the settlement would be rejected anyway (fencing by the lock token).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from unibus.clock import Timers
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import RENEW_SESSION, Command, Renew, SessionCommand
from unibus.errors import BusError, LockLost, SessionLockLost, StoreFailed, StoreUnavailable
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.forked import renew
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import SessionLock, Store

LOCKS_PER_BATCH: Final = 1_000

LAST_TRY_NS: Final = 100_000_000
"""A lock that expires within this time is not renewed once more after an error of the store: it counts as lost."""

OnLost = Callable[[LockLost], None]


@dataclass
class KeptSession:
    """The lock of an accepted session, which is being renewed."""

    lock: SessionLock
    until_ns: int


Lock = Claimed | KeptSession


def renewal_of(lock: Lock) -> Command:
    if isinstance(lock, KeptSession):
        return SessionCommand(RENEW_SESSION, lock.lock.entity, lock.lock.session_id, lock.lock.token)
    return Renew(lock.entity, lock.sequence, lock.token)


class Renewals:
    """The locks of one bus that are being renewed, and the notification of settlements."""

    def __init__(self, store: Store, timers: Timers, now_ns: Callable[[], int]) -> None:
        self._store = store
        self._timers = timers
        self._now_ns = now_ns
        # Protects `_held` and `_tick_at_ns`. Not held while the store is called or `on_lost` runs: both may settle a
        # message, which calls `stop`.
        self._lock = threading.Lock()
        self._held: dict[int, tuple[Lock, OnLost | None, int]] = {}  # By id(lock), with the duration of the lock.
        self._asked: set[int] = set()  # The ids of those whose renewal the store has not decided yet.
        self._tick_at_ns: int | None = None  # When the timer is due; None: no timer is set.
        # Called with the entity of every settled message: blocked publishers of its channel may continue.
        self.on_settled: Callable[[str], None] | None = None

    def start(self, claimed: Lock, on_lost: OnLost | None) -> None:
        """Renew this lock until `stop`. Does nothing for a message of a session: the session's own lock counts."""
        now_ns = self._now_ns()
        length_ns = claimed.until_ns - now_ns
        if isinstance(claimed, Claimed) and (claimed.until_ns == 0 or claimed.in_session):
            return
        # By the identity of the lock object: a message that was lost and claimed again has a new object and a new
        # token. `_held` refers to the object, so its id is not reused meanwhile.
        with self._lock:
            self._held[id(claimed)] = (claimed, on_lost, length_ns)
            self._arm(now_ns, max(length_ns // 3, 1))

    def stop(self, claimed: Lock) -> None:
        """Renew this lock no longer: its message is settled, or about to be."""
        if self._held:  # Most locks are never renewed: avoid the lock for them.
            with self._lock:
                self._held.pop(id(claimed), None)
        # Blocked publishers look for a free place. Some callers settle only after this call, and call `settled` then.
        if self.on_settled is not None and isinstance(claimed, Claimed):
            self.on_settled(claimed.entity)

    def settled(self, entity: str) -> None:
        """Notify of a settlement without a lock: the message was removed when received, or its lock was lost."""
        if self.on_settled is not None:
            self.on_settled(entity)

    def leave_to_parent(self, refuse: Callable[[], int]) -> None:
        """In a forked child: only the parent renews its locks; the child has no timer thread."""
        renew(self._lock)
        self._held = {}
        self._now_ns = refuse
        self.on_settled = None

    def _arm(self, now_ns: int, delay_ns: int) -> None:
        # Timers are not cancelled: a later timer that is still set finds `_tick_at_ns` in the future, or the work done,
        # and returns. There is at most one useful timer, whatever the number of locks.
        if self._tick_at_ns is None or now_ns + delay_ns < self._tick_at_ns:
            self._tick_at_ns = now_ns + delay_ns
            self._timers.after(delay_ns, self._tick)

    def _tick(self) -> None:
        # One `now` for all: a lock that becomes due while this runs is found by the next timer.
        now_ns = self._now_ns()
        with self._lock:
            if self._tick_at_ns is None or now_ns < self._tick_at_ns:
                return  # An earlier timer has done the work of this one.
            self._tick_at_ns = None
            held = [each for key, each in self._held.items() if key not in self._asked]
        # Works on a copy. A lock that is settled meanwhile is renewed in vain: the store rejects that (LockLost), and
        # `_renew` ignores it because the lock is not in `_held` any more.
        due = [each for each in held if each[0].until_ns - now_ns <= each[2] * 2 // 3]
        for at in range(0, len(due), LOCKS_PER_BATCH):
            self._renew(due[at : at + LOCKS_PER_BATCH])
        # Measured from the time before the renewals. If those were slow, the next timer is early rather than late.
        self._arm_next(now_ns)

    def _arm_next(self, now_ns: int) -> None:
        """Set the timer for the next renewal. A lock whose renewal is open gets its next one with the answer."""
        with self._lock:
            waits = [
                max((lock.until_ns - now_ns) - length_ns * 2 // 3, 1)
                for key, (lock, _, length_ns) in self._held.items()
                if key not in self._asked
            ]
            if waits:
                self._arm(now_ns, min(waits))

    def _renew(self, due: list[tuple[Lock, OnLost | None, int]]) -> None:
        """Renew the locks in one batch. The store rejects a batch with a lost lock as a whole: then one by one."""
        commands = [renewal_of(claimed) for claimed, _, _ in due]
        try:
            # As durable as the lock itself. on_done makes the store commit, although no caller waits.
            pending = self._store.apply(commands, min(self._store.durability, Durability.D1))
        except BusError as error:
            self._refused(due, error)
            return
        if pending.is_accepted:
            pending.on_done(_ignore)
            self._renewed(due, pending.value)
            return
        keys = {id(lock) for lock, _, _ in due}
        with self._lock:
            self._asked |= keys
        pending.on_done(partial(self._answered, due, keys))

    def _answered(
        self, due: list[tuple[Lock, OnLost | None, int]], keys: set[int], pending: Pending[list[object]]
    ) -> None:
        """A store that decides elsewhere has answered."""
        error = pending.error
        with self._lock:
            self._asked -= keys
        if error is None:
            self._renewed(due, pending.value)
        elif isinstance(error, BusError):
            self._refused(due, error)
        self._arm_next(self._now_ns())

    def _refused(self, due: list[tuple[Lock, OnLost | None, int]], error: BusError) -> None:
        if isinstance(error, (StoreFailed, StoreUnavailable)):
            is_over = isinstance(error, StoreFailed) and self._store.health().stopped
            # In a store that has stopped no lock can be renewed, and none of these messages can be settled: cancel the
            # work now. Else the locks may be renewed or not: try again while they last.
            over = due if is_over else self._try_later(due)
            self._lost(over, LockLost(f"the lock could not be renewed: {error.what}", error.hint))
        # Ends: each call of `_renew` has one lock, and its refusal is decided below.
        elif len(due) > 1:
            for each in due:
                self._renew([each])
        elif id(due[0][0]) in self._held:
            self._lost(due, error if isinstance(error, LockLost) else LockLost(error.what, error.hint))

    def _try_later(self, due: list[tuple[Lock, OnLost | None, int]]) -> list[tuple[Lock, OnLost | None, int]]:
        """Renew them again after a third of the time that is left. Returns those whose locks do not last so long."""
        now_ns = self._now_ns()
        over = []
        with self._lock:
            for lock in due:
                left_ns = lock[0].until_ns - now_ns
                if left_ns <= LAST_TRY_NS:
                    over.append(lock)
                elif id(lock[0]) in self._held:
                    self._held[id(lock[0])] = (lock[0], lock[1], left_ns)
        return over

    def _renewed(self, due: list[tuple[Lock, OnLost | None, int]], ends: list[object]) -> None:
        now_ns = self._now_ns()
        with self._lock:
            for (claimed, on_lost, _), until_ns in zip(due, ends, strict=True):
                assert isinstance(until_ns, int)
                claimed.until_ns = until_ns
                if id(claimed) in self._held:
                    # From now on the full duration counts, not the rest that was left when the renewal started.
                    self._held[id(claimed)] = (claimed, on_lost, until_ns - now_ns)

    def _lost(self, due: list[tuple[Lock, OnLost | None, int]], error: LockLost) -> None:
        # The pop decides against a concurrent `stop`: a settled message is not reported as lost, and each loss is
        # reported once.
        for claimed, on_lost, _ in due:
            # Under the lock: another thread may iterate over `_held`. `on_lost` is called without it.
            with self._lock:
                held = self._held.pop(id(claimed), None)
            if held is not None and on_lost is not None:
                kind = SessionLockLost if isinstance(claimed, KeptSession) else LockLost
                on_lost(kind(error.what, error.hint))


def _ignore(pending: Pending[list[object]]) -> None:
    """Nothing to do: a store that fails logs it itself."""
