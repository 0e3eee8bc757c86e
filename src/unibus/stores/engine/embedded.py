# mypyc: compiled
"""The embedded store: the rules of core/lifecycle in this process's memory, over a journal.

    apply, claim, accept ──▶ 1. decide   under `_lock`: _begin, change the StoreState, _write adds the call to a group
                             2. answer   without it:    wake receivers, start a commit, return the Pending
                             3. commit   committer.py:  write the group, then settle every Pending of it

Memory changes first, then the disk, and only then the caller gets its result. So a crash can only lose calls whose
result was not returned yet. A receiver may be woken by a message that is not written yet: its claim goes into the
same group or a later one, and its result waits for the disk, too.

`_lock` is held for the few microseconds of a decision, never while anything is written or called back, and rarely while
anything is read from disk (`StoreState.fetch`, a slice of a snapshot, the end of history in `subscribe_from`).
`_committer.committing` is taken before it where both are needed; the journal's own lock is the innermost.

Time is the monotonic clock, started at the wall time of the opening: a change of the system clock neither ends a lock
early nor extends it.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import uuid4

from mypy_extensions import i64

from unibus.clock import Clock, Timers
from unibus.core.lifecycle import batch
from unibus.core.lifecycle.admission import target_of
from unibus.core.lifecycle.batch_ids import find_batch, remember_batch
from unibus.core.lifecycle.claiming import Claimed, run_due
from unibus.core.lifecycle.commands import Command, Declare, SendResult
from unibus.core.lifecycle.declaring import drop_idle
from unibus.core.lifecycle.sending import page_of, queue_of, receiving_from
from unibus.core.lifecycle.sessions import accept, held_session
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import owner_name
from unibus.errors import BusClosed, StoreFailed
from unibus.limits import MEMORY_BUDGET_MB_DEFAULT
from unibus.safe_log import SafeLogger
from unibus.stores.engine.checking import checked
from unibus.stores.engine.claims import absent_of, claim_as_asked, lock_of, peeked
from unibus.stores.engine.closing_steps import ClosingSteps, under
from unibus.stores.engine.committer import Committer, as_failure, described
from unibus.stores.engine.history import EmbeddedHistory
from unibus.stores.engine.opened_state import empty_state, end_former_locks
from unibus.stores.engine.past_subscription import PastReader
from unibus.stores.engine.retention import Retention
from unibus.stores.engine.snapshot import EVERY_CHANGES, Snapshot
from unibus.stores.engine.snapshot_limits import SnapshotLimits
from unibus.stores.engine.space import Space
from unibus.stores.engine.switch_interval import switching
from unibus.stores.engine.tokens import Tokens
from unibus.stores.engine.wake_ups import WakeUps
from unibus.stores.files.held_files import HINT
from unibus.stores.seam.catalog import EmbeddedCatalog
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.forked import ForkedJournal, keep_for_ever, on_fork, opened_by, renew
from unibus.stores.seam.info_of import info_of
from unibus.stores.seam.journal import Journal, checked_level
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord, freeze
from unibus.stores.seam.moment import StoreCopy, copy_of
from unibus.stores.seam.pending import Pending, resolved, running_loop
from unibus.stores.seam.recovery import recover
from unibus.stores.seam.store import ClaimRequest, EntityInfo, SessionLock, StoreHealth, StoreIdentity

log = SafeLogger("unibus")
T = TypeVar("T")

# Not final: the test kit sets it to check every store before it closes.
before_close: "Callable[[EmbeddedStore], None] | None" = None


class EmbeddedStore:
    """`durability` is the level of every result, unless a call asks for less."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        timers: Timers,
        *,
        durability: Durability | None = None,
        memory_budget_mb: float = MEMORY_BUDGET_MB_DEFAULT,
        snapshot_every: int = EVERY_CHANGES,
        snapshot_limits: SnapshotLimits | None = None,
        most: dict[int, int] | None = None,
    ) -> None:
        """`most` limits how many entities of a kind can be created. Existing ones beyond it stay."""
        self.url = journal.url
        self.durability = checked_level(durability, journal)
        self._level_name = self.durability.name
        self._syncs = self.durability >= Durability.D2
        self._journal = journal
        self._timers, self._monotonic_ns = timers, clock.monotonic_ns
        self._epoch_ns = clock.wall_ns() - clock.monotonic_ns()
        self._lock, self._in_memory = threading.RLock(), journal.durability == Durability.D0
        self._state = empty_state(journal, NEVER if self._in_memory else round(memory_budget_mb * 1024 * 1024), most)
        # Until recovery returns no other thread has this object, so no lock is held. The state it makes is what the
        # log says, and the log has everything that was acknowledged.
        covered = recover(journal, self._state)
        self.identity = StoreIdentity(journal.identity, uuid4().hex)
        self._state.idle_since_ns = self.now_ns()  # Idle times from before the opening are not recorded.
        limits = snapshot_limits or SnapshotLimits()
        self._snapshot = Snapshot(journal, self._state, self.now_ns, covered, snapshot_every, limits)
        self._watchers = WakeUps(self._state, self._lock)
        self._committer = Committer(journal, self._state, self._lock, self._snapshot, self._watchers.history)
        self._retention = Retention(self._committer, self._snapshot, self._lock, timers, self.now_ns)
        # For the few decisions that read a message's data: mostly a scheduled message of a topic with rules.
        self._state.fetch = self._committer.fetch
        syncs, watchers = self._syncs and not self._in_memory, self._watchers.history
        self.history = EmbeddedHistory(journal, self._committer, self._state, self._lock, self._begin, syncs, watchers)
        self.catalog = EmbeddedCatalog(self._state, self._lock, self._begin)
        self.commit_placement = self._committer.commit_placement
        # Only with a reserve can a disk be full in a controlled way; without one, sends skip the check.
        self._space = Space(journal, self._state, timers) if journal.reserve.wanted else None
        if self._space is not None:
            self._committer.on_full = self._space.entered
            if journal.reserve.full:
                self._space.entered()
        self._armed_ns: i64 = NEVER
        # The last change before this call: another number means that the call has to be written.
        self._seq_before: i64 = 0
        self._closed, self._closing, self._opened_by = False, ClosingSteps(), 0  # `_opened_by`: see `_leave_to_parent`.
        # Waiting receivers call the store again, and get the failure.
        self._committer.on_failure = self._watchers.wake_all
        if not self._in_memory:
            switching.quicken(self)
            self._retention.start()
        self._tokens, self._fork_mark = Tokens(), on_fork(lambda pid: _leave_to_parent(self, pid))
        with self._lock:
            # Written with the next group. If the process ends before that, the next opening does the same again.
            end_former_locks(self.url, self._state, self.now_ns())
            self._arm(self.now_ns())

    def now_ns(self) -> int:
        return self._monotonic_ns() + self._epoch_ns

    # Changing

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = "", first_ns: int = 0
    ) -> Pending[list[object]]:
        name, sync = self._level_name, self._syncs
        if durability is not None:
            name = checked_level(durability, self._journal).name
            sync = durability >= Durability.D2
        with self._lock:
            try:
                now_ns = self._begin()
                known = find_batch(self._state, batch_id, first_ns, now_ns) if batch_id else None
                if known is not None:
                    # The group of the first copy is the one that collects now, or an earlier one. So it is written when
                    # this call is answered, and synced if this call asks for that.
                    pending = self._write(known, sync, joins=True)
                else:
                    # Before the first change: a rejected batch must leave nothing behind. After it the store can only
                    # go on, or stop.
                    if self._space is not None:
                        self._space.admit(commands)
                    # From the first change on `state.deciding` is set: an exception stops the store, because half a
                    # batch must not be written. Before that it is an ordinary rejection.
                    results = batch.run(self._state, commands, now_ns)
                    for result in results:
                        if isinstance(result, SendResult):
                            result.durability = name
                    if batch_id:
                        remember_batch(self._state, batch_id, first_ns, results, now_ns)
                    pending = self._write(results, sync)
            except BaseException as error:
                self._committer.stop_if_deciding(error)
                raise
        return self._answer(pending)

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        with self._lock:
            try:
                claimed = claim_as_asked(self._state, self._tokens, request, self._begin())
                # A lock needs no sync: if a power cut undoes it, the message is redelivered, as after any crash. A
                # message that is removed on delivery must not be redelivered, so that is synced.
                pending = self._write(claimed, not request.lock and self._syncs, absent_of(claimed))
            except BaseException as error:
                self._committer.stop_if_deciding(error)
                raise
        # A single receive on a loop: committing here is quicker than waiting for the end of the turn.
        if self._committer.is_alone(pending.outcome) and running_loop() is not None:
            self._committer.commit_here()
        return self._answer(pending)

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        with self._lock:
            try:
                now_ns = self._begin()
                queue = receiving_from(self._state, entity, now_ns)
                session = accept(self._state, queue, session_id, self._tokens.draw(), consumer, now_ns)
                # As for a message, the lock itself is not synced: a power cut that undoes it makes the session free
                # again.
                pending = self._write(lock_of(session), False)
            except BaseException as error:
                self._committer.stop_if_deciding(error)
                raise
        return self._answer(pending)

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        past: PastReader | None = None
        pending: Pending[int] | None = None
        while pending is None:
            with self._lock:
                self._begin()
                # Refused before a long history is read.
                topic = target_of(self._state, owner_name(declare.name, declare.kind)).number
                is_new = self._state.find(declare.name) is None
            if past is None or past.backfill.topic != topic:  # Another number: deleted and created again meanwhile.
                past = PastReader(topic, after_sequence, since_ns)
            if is_new:
                past.read_pages(self.history)
            with self._committer.committing, self._lock:
                try:
                    pending = self._subscribe(declare, past)
                except BaseException as error:
                    self._committer.stop_if_deciding(error)
                    raise
        return self._answer(pending)

    def _subscribe(self, declare: Declare, past: PastReader) -> Pending[int] | None:
        """Under both locks: create the subscription with its copies. None if more of history has to be read first."""
        state, now_ns = self._state, self._begin()
        if state.find(declare.name) is not None:
            return self._write(0, False)
        topic = target_of(state, owner_name(declare.name, declare.kind))
        if topic.number != past.backfill.topic or not past.is_near(state):
            return None
        if self._space is not None:
            self._space.admit([declare])
        batch.check(state, [declare], now_ns)
        past.read_rest(self._journal, state)
        past.backfill.hold(topic)
        batch.run(state, [declare], now_ns)
        copies = past.backfill.copy_to(state, target_of(state, declare.name), now_ns)
        return self._write(copies, self._syncs)

    # From a decision to its result

    def _begin(self) -> int:
        """Under the lock: raise if the store is closed or has failed; apply the deadlines that have passed. The time.

        Deadlines come first, so that a call never sees a lock that has expired or a message past its time to live, also
        if the timer is late.
        """
        if self._closed:
            raise opened_by(self._opened_by) if self._opened_by else BusClosed("the store is closed", "open it again")
        if self._committer.failure is not None:
            raise as_failure(self._committer.failure)
        now_ns = self.now_ns()
        self._seq_before = self._state.seq
        # Changes of deadlines belong to no call. They are written with the next group, or by `_tick`; a crash before
        # that is harmless, because the next opening applies the same deadlines.
        if self._state.due.next_ns() <= now_ns:
            try:
                run_due(self._state, now_ns)
            except BaseException as error:
                self._committer.stop_if_deciding(error)
                raise
        return now_ns

    def _write(self, value: T, sync: bool, absent: list[Claimed] | None = None, joins: bool = False) -> Pending[T]:
        """Under the lock: add this call to the group that is written next, if it has changed or needs anything, or
        `joins`."""
        state = self._state
        if state.due.next_ns() < self._armed_ns or state.idle_check_ns < self._armed_ns:
            self._arm(self.now_ns())
        pending = Pending(value)
        if self._in_memory:
            if state.fresh:
                state.deciding = True  # Also if a call that only reads has applied a deadline.
                # No group, no Pending, no thread: the result is decided when the call returns.
                changes = state.take()
                self._journal.append(state.seq - len(changes) + 1, changes, False)
        # A call without changes still joins the group if it must be synced: what it has read may be in a group that is
        # not written yet.
        elif state.seq != self._seq_before or sync or absent or joins:
            pending.outcome = self._committer.add(sync, absent)
        state.deciding = False
        return pending

    def _answer(self, pending: Pending[T]) -> Pending[T]:
        """Without the lock: wake receivers, and start a commit if a loop is running. A thread commits when it waits."""
        try:
            # Read without the lock: a wake-up that is added later is delivered by the call that adds it, or by the
            # timer of the deadline that adds it.
            if self._state.woken:
                self._watchers.wake()
            if self._in_memory and self._watchers.history.calls:
                self._watchers.history.wake()
            if not pending.done:
                loop = running_loop()
                if loop is not None:
                    pending.loop = loop
                    self._committer.kick_soon(loop)
        except BaseException as error:
            # A receiver that was not woken would wait for ever although there is a message for it.
            self._committer.fail(error)
            raise
        return pending

    # Time

    def _arm(self, now_ns: int) -> None:
        """Under the lock: set the timer for the next deadline."""
        next_ns = min(self._state.due.next_ns(), self._state.idle_check_ns)
        if next_ns < NEVER:
            self._armed_ns = next_ns
            # Timers are never cancelled: one that comes too early applies nothing and sets the next one.
            self._timers.after(max(0, next_ns - now_ns), self._tick)

    def _tick(self) -> None:
        with self._lock:
            self._armed_ns = NEVER
            if self._closed or self._committer.failure is not None:
                return
            try:
                self._seq_before = self._state.seq
                now_ns = self.now_ns()
                run_due(self._state, now_ns)
                if self._state.idle_check_ns <= now_ns:
                    self._state.deciding = True
                    drop_idle(self._state, now_ns)
                pending = self._write(None, False)
            except BaseException as error:
                # Without this call no deadline is applied any more, so the store stops even if nothing was changed.
                self._committer.fail(error)
                raise
        if self._state.woken:
            self._watchers.wake()
        if self._in_memory and self._watchers.history.calls:
            self._watchers.history.wake()
        if not pending.done:
            self._committer.kick()
        with self._lock:
            if self._armed_ns == NEVER:
                self._arm(self.now_ns())

    # Reading

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            try:
                now_ns = self._begin()
                queue = queue_of(self._state, entity, now_ns)
                queue.used(now_ns)
                leave = self._watchers.add(queue, call)
            except BaseException as error:
                self._committer.stop_if_deciding(error)
                raise

        def stop() -> None:
            with self._lock:
                queue.used(self.now_ns())
            leave()

        return stop

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None, bytes_max: int = 0
    ) -> Pending[list[Claimed]]:
        with self._lock:
            try:
                now_ns = self._begin()
                # A peek changes nothing, but it counts as a use for `auto_delete_on_idle`.
                looked_at = self._state.find(entity)
                if looked_at is not None:
                    looked_at.used(now_ns)
                found = page_of(self._state, entity, session_id, from_sequence, count, bytes_max)
                seen = [peeked(entry) for entry in found]
                pending = self._write(seen, False, absent_of(seen))
            except BaseException as error:
                self._committer.stop_if_deciding(error)
                raise
        return self._answer(pending)

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]:
        with self._lock:
            now_ns = self._begin()
            return resolved(held_session(self._state, lock.entity, lock.session_id, lock.token, now_ns).state)

    def entities(self) -> Pending[list[EntityInfo]]:
        with self._lock:
            self._begin()
            found = [info_of(entity) for entity in self._state.visible()]
        return resolved(sorted(found, key=lambda info: info.name))

    def position(self, name: str) -> Pending[int]:
        with self._lock:
            self._begin()
            return resolved(self._state.positions.get(name, 0))

    def list_messages(
        self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE
    ) -> Pending[list[MessageRecord]]:
        with self._lock:
            self._begin()
            found = page_of(self._state, entity, None, from_sequence, count)
            return resolved([freeze(entry) for entry in found])

    def read_bodies(self, keys: Sequence[MessageKey]) -> Pending[dict[MessageKey, bytes]]:
        found: dict[MessageKey, bytes] = {}
        absent: dict[MessageKey, StoredMessage] = {}
        with self._lock:
            self._begin()
            for key in keys:
                entity = self._state.find(key[0])
                entry = None if entity is None else entity.entries.get(key[1])
                if entry is None:
                    continue
                if entry.data is None:
                    absent[key] = entry
                else:
                    found[key] = entry.data
        if absent:
            # Not with the next group, as a claim does: a message that cannot be read is an error of this call only, and
            # the store goes on.
            read = self._committer.bodies(list(absent.values()))
            for key, entry in absent.items():
                if entry in read:
                    found[key] = read[entry]
        return resolved(found)

    def copied(self) -> Pending[StoreCopy]:
        with self._committer.committing, self._lock:
            self._begin()
            # Everything stops for this: `committing` so that no row is deleted, `_lock` so that all messages are of one
            # moment.
            return resolved(copy_of(self._state, self._journal.read_bodies))

    # Health and closing

    def health(self) -> StoreHealth:
        if self._opened_by:
            raise opened_by(self._opened_by)
        failure = self._committer.failure
        problem = "closed" if self._closed else "" if failure is None else described(failure)
        if not problem:
            problem = self._journal.held.problem()
            if problem:
                # Stop at once: every further write would go to a file that no name leads to, and would be lost without
                # an error.
                self._committer.fail(StoreFailed(problem, HINT))
        return StoreHealth(
            ok=not problem,
            url=self.url,
            durability=self.durability.name,
            problem=problem,
            last_seq=self._committer.written if not self._in_memory else self._state.seq,
            snapshot_seq=self._snapshot.seq,
            # Without the lock, so that health works also while the store hangs on a disk. The list is a copy: another
            # thread may create an entity meanwhile.
            messages=sum(len(entity.entries) for entity in list(self._state.entities.values())),
            history_bytes=self._journal.size_bytes,
            oldest_seq=0 if problem else self._journal.oldest,
            warning="" if self._space is None else self._space.warning(),
            stopped=bool(problem),
            identity=self.identity,
        )

    def check(self) -> list[str]:
        """A text for each broken invariant: counts, states, indexes, and memory against the log. Empty if all hold.

        Reads the snapshot and the log after it.
        """
        while True:
            self._committer.flush()
            with self._committer.committing, self._lock:
                self._begin()
                if not self._state.fresh:  # Else there are changes that the log does not have yet: flush again.
                    return checked(self._state, self._journal, self.now_ns())

    def close(self) -> None:
        """Write what was decided, and release the file. A second call continues one that was interrupted."""
        if self._opened_by:
            return  # In a forked child: the parent closes it.
        if before_close is not None and not self._closed:
            before_close(self)
        with self._lock:
            self._closed = True
        self._retention.close()
        if self._space is not None:
            self._space.close()
        # The order matters. Receivers are woken first, so that they do not wait for a store that writes nothing more.
        # The log is complete before the snapshot covers it. The journal is last: it releases the owner's lock, and from
        # then on another process may open the file.
        steps: list[Callable[[], None]] = [
            self._watchers.wake_all,
            self._committer.close,
            self._retention.save,
            partial(switching.restore, self),
            partial(under, self._lock, self._state.release),
            self._journal.close,
        ]
        self._closing.run(self.url, steps)


def _leave_to_parent(store: EmbeddedStore, pid: int) -> None:
    """In a forked child: every call raises BusForked from now on, and nothing reaches the parent's journal.

    Takes no lock: a thread of the parent may have held it. Frees nothing: that could close the parent's files.
    """
    keep_for_ever(store._journal)
    committer = store._committer
    for lock in (store._lock, committer.committing, committer._kicks, store._watchers.history._lock):
        renew(lock)
    store._closed = True
    store._opened_by = pid
    committer.failure = opened_by(pid)
    committer._closing = True
    journal = ForkedJournal(store.url, store.durability, pid)
    store._journal = journal
    store.history._journal = journal
    store._snapshot._journal = journal
    committer._journal = journal
    store._state.woken = []
    store._watchers.history.calls = []
    for entity in list(store._state.entities.values()):
        entity.wakers = []  # The waiters are threads and loops of the parent.
