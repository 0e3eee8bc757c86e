# mypyc: compiled
"""Group commit: changes that were decided in memory are written in groups, and acknowledged only after that.

    decide (lock)        group N+1 collects: state.fresh, CommitGroup.waiting
                              │
    commit (committing)       ▼  take the group (lock), write and sync it (no lock), settle its CommitResult
                              │
    notify (no lock)          ▼  threads, tasks and callbacks of group N

While one group is written, the next one collects. A thread that waits for its result leads: it commits for every caller
of the group. A loop commits at the end of its turn, or leaves that to the writer thread (commit_placement.py).

The invariant: changes are written in the order in which they were decided, and a group is written as a whole. So the
disk always has a complete earlier state of memory, whatever the moment of a crash. A caller gets its result only after
its group is written; a group that was not written has no acknowledged call in it.

Locks, in the order in which they are taken:
    committing    one commit at a time; held while the disk is written
    lock          the store's: held while memory changes, never while anything is written
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import GONE
from unibus.errors import BusError, BusForked, StoreFailed, StoreFull
from unibus.safe_log import SafeLogger
from unibus.stores.engine.snapshot import Snapshot
from unibus.stores.engine.wake_ups import HistoryWakeUps
from unibus.stores.seam.commit_placement import CommitPlacement
from unibus.stores.seam.journal import GroupFate, Journal, SnapshotSlice
from unibus.stores.seam.pending import CommitResult, Committing, Pending
from unibus.threads import DaemonThread

if TYPE_CHECKING:
    import asyncio

log = SafeLogger("unibus")

ENOUGH: Final = 128
"""With so many calls in one turn of a loop, the writer thread starts the commit before the turn ends."""

SLOW_S: Final = 1.0
"""A store that closes logs what it waits for after this time."""


@final
class CommitGroup(CommitResult):
    """The calls that are written and acknowledged together."""

    def __init__(self, commits: Committing) -> None:
        super().__init__(commits)
        self.waiting: i64 = 0  # How many calls wait for it.
        self.absent: list[Claimed] = []  # Delivered, with the data still on disk: read after the group is written.
        self.sync = False
        self.has_changes = False  # False for the sync of a history reader, which must not wake that reader again.


class Committer:
    """See the module. After the first failed write `failure` is set, and nothing more is written or acknowledged."""

    def __init__(
        self, journal: Journal, state: StoreState, lock: threading.RLock, snapshot: Snapshot, watchers: HistoryWakeUps
    ) -> None:
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = _ignore
        self.on_full: Callable[[], None] = _ignore  # After each group that was written while the disk is full.
        self.on_snapshot: Callable[[], None] = _ignore  # After each complete snapshot.
        self.written = state.seq
        self._journal = journal
        self._state = state
        self._lock = lock
        self._snapshot = snapshot
        self._watchers = watchers
        self.committing = threading.Lock()
        self._group = CommitGroup(self)
        self._unsynced = True  # Some written group may not be synced yet.
        self._kicks = threading.Lock()  # A binary semaphore: the writer acquires it to sleep, a kick releases it.
        self._kicks.acquire()
        self.commit_placement = CommitPlacement()
        self._asked_ns: i64 = 0  # When a loop left its commit to the writer thread.
        self._turn_of: asyncio.AbstractEventLoop | None = None  # The loop that commits at the end of its turn.
        self._closing = False
        self._writer: threading.Thread | None = None

    def add(self, sync: bool, absent: list[Claimed] | None = None) -> CommitGroup:
        """The group of the changes that are not written yet. The caller holds the lock, and kicks or leads
        afterwards."""
        group = self._group
        group.waiting += 1
        if absent:
            group.absent.extend(absent)
        if sync:
            group.sync = True
        return group

    def kick_soon(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Commit at the end of the loop's turn, with all changes that are decided until then."""
        # One callback for each turn, however many calls the turn makes: that is what makes a group of them. `call_soon`
        # runs it after the tasks that are ready now.
        if self._turn_of is not loop:
            self._turn_of = loop
            loop.call_soon(self._after_turn, loop)
        elif self._group.waiting == ENOUGH and not self.commit_placement.is_quick():
            self.kick()  # Enough for a group of their own: the writer commits while the loop runs the rest of its turn.

    def _after_turn(self, loop: "asyncio.AbstractEventLoop") -> None:
        if self._turn_of is loop:  # Another loop may have asked since.
            self._turn_of = None
        if not self.commit_here(loop):
            self._asked_ns = time.monotonic_ns()
            self.kick()

    def kick(self) -> None:
        """Let the writer thread commit now. This thread commits if none can be started, as when Python exits."""
        if self._writer is None:
            with self._lock:
                # Checked again under the lock: two threads may kick at once, and only one writer may exist.
                if self._writer is None and not self._closing:
                    self._writer = thread = DaemonThread(self._run, "unibus-commit")
                    try:
                        thread.start()
                    except BaseException as error:
                        # A start that was interrupted may have started the thread. If not, the next kick tries again.
                        if thread.withdraw():
                            self._writer = None
                        if not isinstance(error, RuntimeError):
                            raise
            if self._writer is None and not self._closing:
                self.commit()
        self._wake_writer()

    def _wake_writer(self) -> None:
        # An open semaphore is a kick that the writer has not seen yet. It commits everything from before it wakes up,
        # so a second kick is not needed.
        if self._kicks.locked():
            try:
                self._kicks.release()
            except RuntimeError:
                return  # Another thread released it first: that kick is as good.

    def lead(self, outcome: CommitResult) -> None:
        """Commit in this thread until the outcome is decided; another thread may decide it meanwhile."""
        while not outcome.done:
            # This does not spin. If another thread writes the group, `commit` waits for `committing`, and that thread
            # settles the outcome before it releases the lock.
            if not self.commit() and self.failure is not None:
                # In a forked child: the thread that was writing this exists in the parent only.
                outcome.settle(self.as_failure)

    def commit(self) -> bool:
        """Write the collected group. False if there was nothing to write."""
        with self.committing:
            group = self._commit()
        if group is None:
            return False
        group.notify(None)
        if group.has_changes and self._watchers.calls:
            self._watchers.wake()
        return True

    def commit_here(self, loop: "asyncio.AbstractEventLoop | None" = None) -> bool:
        """Commit in the thread of a loop if that is quick. False leaves it to the writer thread.

        With `loop` the caller is a callback of that loop and not a task. Slow work goes to the writer: reading data
        from disk, a slice of a snapshot, a checkpoint, or waiting for another commit.
        """
        # Read without the lock: these are reasons to leave the commit to the writer, and a call of another thread may
        # add one right after. Then this commit takes longer, and is still right.
        coming = self._group
        if (
            not self.commit_placement.on_loops
            or coming.absent
            or self._snapshot.is_due(self._state.seq)
            or not self._journal.is_quick
        ):
            return False
        if (coming.sync and not self.commit_placement.is_quick()) or not self.committing.acquire(blocking=False):
            return False
        try:
            # `notify` comes after the release below: a resumed task may commit, and would wait for this lock for ever.
            began_ns = time.monotonic_ns()
            group = self._commit()
            if group is not None and group.sync:
                self.commit_placement.took(began_ns, time.monotonic_ns())
        finally:
            self.committing.release()
        if group is not None:
            group.notify(loop)
            if group.has_changes and self._watchers.calls:
                self._watchers.wake()
        return True

    def is_alone(self, outcome: CommitResult | None) -> bool:
        """Whether this is the only call of its group, and needs no sync."""
        group = self._group
        return outcome is group and group.waiting == 1 and not group.sync

    def _commit(self) -> CommitGroup | None:
        """Write the collected group and settle its outcome, under `committing`. The caller notifies the waiters
        later."""
        group = self._group
        try:
            # Only a holder of `committing` replaces `_group`, so this is the group that is taken below. (`close`
            # replaces it, too, when no call can join it any more.)
            if not self._write_group(group):
                return None
        except BaseException as error:
            self.fail(error)
            # Of all failures only StoreFull has a known outcome: nothing of the group was written.
            group.settle(_full_of(error) if isinstance(error, StoreFull) else self.as_failure)
            if not isinstance(error, Exception):
                # Ctrl-C during a write: it is unknown whether the write took place, so the store has stopped. This
                # thread still holds `committing`, and a callback may need it: another thread notifies the waiters.
                try:
                    threading.Thread(target=group.notify, args=(None,), name="unibus-notify", daemon=True).start()
                except RuntimeError as none:
                    log.error("no waiter can be notified that the store stopped: %s", none)  # Python exits.
                raise
        else:
            group.settle(None)
        return group

    def _write_group(self, group: CommitGroup) -> bool:
        """False if there is nothing to write. After the first block new calls collect in the next group.

        A crash before `_write` returns leaves the state before this group, and none of its calls is acknowledged.
        """
        with self._lock:
            # One step under the lock: a call adds its changes to `fresh` and itself to the group under the same lock,
            # so the group has exactly the calls whose changes it writes.
            changes = self._state.fresh
            part, unread = self._next_part(group, len(changes))
            if not changes and not group.waiting and part is None and unread is None:
                return False
            self._group = CommitGroup(self)
            self._state.take()
            shed, self._state.to_shed = self._state.to_shed, []
        # Raised after the swap: the calls of this group get the failure, and none of them waits in the next group.
        if unread is not None:
            raise unread
        self._write(group, changes, part)
        # Only now: data that is dropped from memory is read from the disk, so it has to be there first.
        if shed:
            with self._lock:
                self._state.shed(shed)
        return True

    def _next_part(self, group: CommitGroup, count: int) -> tuple[SnapshotSlice | None, Exception | None]:
        """A slice of a snapshot, or the error of reading it: a slice that failed half-way would be missing from the
        snapshot, so the store stops on it."""
        if self.failure is not None:
            return None, None
        absent = [claimed.absent for claimed in group.absent]
        wanted = {
            (entry.home_entity, entry.home_sequence) for entry in absent if entry is not None and entry.home_entity
        }
        try:
            return self._snapshot.next_part(self.written + count, wanted), None
        except Exception as error:
            return None, error

    def _write(self, group: CommitGroup, changes: list[Change], part: SnapshotSlice | None) -> None:
        if self.failure is not None:
            # A new error: the failure may be a KeyboardInterrupt of another thread.
            raise self.as_failure()
        if part is None and group.sync and not changes and self._unsynced:
            part = SnapshotSlice()  # Nothing to write, but the sync has to cover the groups before it.
        if changes or part is not None:
            _append(self, self._journal, changes, group.sync, part)
            group.has_changes = bool(changes)
            self.written += len(changes)
            # A sync covers all groups before it, because the log has one order. The JSON log syncs a segment before it
            # begins the next.
            # A slice is synced, too, but one that was put off may have written nothing.
            self._unsynced = not group.sync and (part is None or part.put_off)
            if part is not None:
                with self._lock:
                    self._snapshot.wrote(part)
                if part.last is not None and not part.put_off:
                    self.on_snapshot()
            if self._journal.reserve.full:
                self.on_full()
        if group.absent:
            # After the write, under `committing`: no slice can delete these rows in between (`wanted` in `_next_part`).
            # The results are not returned before this is done.
            absent = [claimed.absent for claimed in group.absent if claimed.absent is not None]
            found = self._journal.read_bodies(absent)
            for claimed, entry in zip(group.absent, absent, strict=True):
                claimed.data = found[entry]
                claimed.absent = None  # The caller gets a copy only.

    def fail(self, error: BaseException) -> None:
        """Stop the store: memory may be ahead of the disk, so no further call is accepted or acknowledged."""
        if self.failure is None:
            # Set before the waiters are woken: each of them calls the store again and must find the failure.
            self.failure = error
            log.error("the store %s has stopped: %s", self._journal.url, described(error))
            self.on_failure()

    def stop_if_deciding(self, error: BaseException) -> None:
        """Stop the store if an exception interrupted a decision: memory has half of it, which must never be written.

        A rejected call raises before its first change; then there is nothing to do. The caller holds the lock.
        """
        if self._state.deciding:
            self._state.deciding = False
            self.fail(error)

    def as_failure(self) -> BaseException:
        """The error of every call from now on."""
        return as_failure(self.failure) if self.failure is not None else StoreFailed("the store has not failed")

    def flush(self) -> None:
        """Commit until nothing is left to write."""
        while self.failure is None and self.commit():
            pass

    def sync(self) -> None:
        """Wait until everything that was decided so far is synced."""
        with self._lock:
            group = self.add(True)
        Pending(None, group).wait()

    def bodies(self, entries: list[StoredMessage]) -> dict[StoredMessage, bytes]:
        """Read the data of messages that are on disk only, without those that are removed already.

        `committing` keeps rows from being deleted meanwhile: only a commit with a slice of a snapshot deletes them.
        """
        with self.committing:
            with self._lock:
                there = [entry for entry in entries if entry.state != GONE]
            return self._journal.read_bodies(there)

    def fetch(self, entry: StoredMessage) -> bytes:
        """The same during a decision, under the store's lock. If it fails, memory may have half of the decision, which
        must never be written: so the store stops."""
        try:
            return self._journal.read_bodies([entry])[entry]
        except BaseException as error:
            self.fail(error)
            raise

    def trim(self, now_ns: int) -> bool:
        """Prune some history, but nothing after the last snapshot: recovery needs it. True if there is more."""
        with self.committing:
            return self._journal.trim(now_ns, self._snapshot.seq)

    # The writer thread

    def _run(self) -> None:
        free_ns: i64 = 0  # When the commit before this one ended.
        while not self._closing:
            # Read before the commit: a loop that asks during it is served by the next one, and is measured there.
            asked_ns = self._asked_ns
            if not self.commit():
                self._kicks.acquire()
                continue
            ended_ns = time.monotonic_ns()
            if asked_ns:
                self._asked_ns = 0
                self.commit_placement.took_there(max(asked_ns, free_ns), ended_ns)
            free_ns = ended_ns

    def close(self) -> None:
        """Write what is left and end the writer thread. A second call continues one that was interrupted."""
        self._closing = True
        self._wake_writer()
        thread = self._writer
        if thread is not None and thread is not threading.current_thread():
            thread.join(SLOW_S)
            if thread.is_alive():
                log.warning("the store %s is still writing, and closes after that", self._journal.url)
                thread.join()
        # Before Python 3.13 a join that Ctrl-C interrupts reports the thread as ended. `flush` takes `committing`, so
        # it waits for a write in progress anyway.
        self.flush()
        with self._lock:
            left = self._group
            self._group = CommitGroup(self)
        left.decide(self.as_failure)  # Only a store that has failed has calls that still wait.


def _append(
    committer: Committer, journal: Journal, changes: list[Change], sync: bool, part: SnapshotSlice | None
) -> None:
    """The durable step. A crash inside leaves the whole group or nothing of it. An error means either, so every
    exception but StoreFull stops the store with an unknown outcome, unless the journal finds the outcome."""
    first = committer.written + 1
    while True:
        try:
            journal.append(first, changes, sync, part)
            return
        except StoreFailed as error:
            # Nothing is appended after this group before its fate is known: `committing` is held, so the order stays,
            # and a group is never in the log twice.
            fate = journal.look_up(first, changes)
            if fate is GroupFate.WRITTEN:
                return
            if fate is GroupFate.OTHER:
                raise StoreFailed(
                    f"another writer has written change {first} of {journal.url}", "open it again"
                ) from error
            if fate is GroupFate.UNKNOWN or committer.failure is not None:
                raise
            log.warning("%s: the last group is written again: %s", journal.url, described(error))


def _ignore() -> None:
    """No callback is set."""


def described(error: BaseException) -> str:
    """The text of an error, never empty: MemoryError and KeyboardInterrupt have none of their own."""
    return str(error) or type(error).__name__


def _full_of(error: StoreFull) -> Callable[[], BaseException]:
    return lambda: StoreFull(error.what, error.hint)


def as_failure(error: BaseException) -> BaseException:
    """A new error for each caller: raising one object in many tasks would mix their tracebacks."""
    failure: BusError
    if isinstance(error, BusForked):
        failure = BusForked(error.what, error.hint)
    elif isinstance(error, BusError):
        failure = StoreFailed(error.what, error.hint)
    else:
        failure = StoreFailed(f"the store has stopped: {described(error)}", "close the bus and open it again")
    failure.__cause__ = error
    return failure
