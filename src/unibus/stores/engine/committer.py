# mypyc: compiled
"""Group commit: what was decided in memory is written in groups, and only then answered.

While one group is being written the next one collects. A thread that waits for its answer commits for all who wait
with it. A loop commits at the end of its turn, or leaves that to a thread of the store's own (pace.py). A store writes
its changes in the order of their decisions, so what is on disk is always some whole past of what was in memory.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import GONE
from unibus.errors import BusError, BusForked, StoreFailed, StoreFull
from unibus.stores.engine.snapshot import Snapshot
from unibus.stores.engine.wake_ups import HistoryWakeUps
from unibus.stores.seam.commit_placement import CommitPlacement
from unibus.stores.seam.journal import Journal, SnapshotSlice
from unibus.stores.seam.pending import CommitResult, Committing, Pending
from unibus.threads import DaemonThread

log = logging.getLogger("unibus")

ENOUGH: Final = 128
"""So many answers wait in one turn of a loop: where the writer does it, the next group is begun before that is over."""

SLOW_S: Final = 1.0
"""After so long a store that closes says what it waits for."""


@final
class CommitGroup(CommitResult):
    """What is written and answered together."""

    def __init__(self, commits: Committing) -> None:
        super().__init__(commits)
        self.waiting: i64 = 0  # How many answers depend on it.
        self.absent: list[Claimed] = []  # Handed out, with their data still on disk.
        self.sync = False
        self.has_changes = False  # A reader's own sync has none, and must not wake that reader again.


class Committer:
    """`lock` is the store's: it is held while memory changes, and never while anything is written."""

    def __init__(
        self, journal: Journal, state: StoreState, lock: threading.RLock, snapshot: Snapshot, watchers: HistoryWakeUps
    ) -> None:
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = _nobody
        self.on_full: Callable[[], None] = _nobody  # After each group that a full disk has taken.
        self.on_snapshot: Callable[[], None] = _nobody  # After each snapshot that is complete.
        self.written = state.seq
        self._journal = journal
        self._state = state
        self._lock = lock
        self._snapshot = snapshot
        self._watchers = watchers
        self.committing = threading.Lock()  # Taken before `lock` where both are needed.
        self._group = CommitGroup(self)
        self._unsynced = True  # Something that was written may not be on disk yet.
        self._kicks = threading.Lock()  # Closed while the writer has nothing to do; a kick opens it.
        self._kicks.acquire()
        self.pace = CommitPlacement()
        self._asked_ns: i64 = 0  # When a loop left its commit to the writer.
        self._soon: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._writer: threading.Thread | None = None

    def add(self, sync: bool, absent: list[Claimed] | None = None) -> CommitGroup:
        """Who gets its answer with the book's fresh changes. The caller holds the lock, and kicks or leads after it."""
        group = self._group
        group.waiting += 1
        if absent:
            group.absent.extend(absent)
        if sync:
            group.sync = True
        return group

    def kick_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit when the loop has had its turn: what comes until then goes along."""
        if self._soon is not loop:
            self._soon = loop
            loop.call_soon(self._after_turn, loop)
        elif self._group.waiting == ENOUGH and not self.pace.is_quick():
            self.kick()  # Worth a commit of their own, while the loop goes on with the rest.

    def _after_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._soon is loop:  # Not so when another loop has asked since.
            self._soon = None
        if not self.commit_here(loop):
            self._asked_ns = time.monotonic_ns()
            self.kick()

    def kick(self) -> None:
        """Let the store's own thread commit now. This one does, where none can be started, as when Python ends."""
        if self._writer is None:
            with self._lock:
                if self._writer is None and not self._closing:
                    self._writer = thread = DaemonThread(self._run, "unibus-commit")
                    try:
                        thread.start()
                    except BaseException as error:
                        if thread.withdraw():
                            self._writer = None
                        if not isinstance(error, RuntimeError):
                            raise
            if self._writer is None and not self._closing:
                self.commit()
        self._let_go()

    def _let_go(self) -> None:
        # An open lock is a kick that the writer has not seen yet: it will see everything that came before it.
        if self._kicks.locked():
            try:
                self._kicks.release()
            except RuntimeError:
                return  # Somebody else was quicker.

    def lead(self, outcome: CommitResult) -> None:
        """Commit in this thread, unless another one does so for us meanwhile."""
        while not outcome.done:
            if not self.commit() and self.failure is not None:
                # In a forked child: the thread that was writing this exists in the parent only.
                outcome.settle(self.as_failure)

    def commit(self) -> bool:
        """Write what has collected. False if there was nothing."""
        with self.committing:
            group = self._commit()
        if group is None:
            return False
        group.notify(None)
        if group.has_changes and self._watchers.calls:
            self._watchers.wake()
        return True

    def commit_here(self, loop: asyncio.AbstractEventLoop | None = None) -> bool:
        """Commit in the thread of a loop, if that takes less time than letting the writer do it. False if not.

        With `loop` the caller is that loop and no task of it. Whatever could take long is left to the writer.
        """
        coming = self._group
        if (
            not self.pace.on_loops
            or coming.absent
            or self._snapshot.is_due(self._state.seq)
            or not self._journal.is_quick()
        ):
            return False
        if (coming.sync and not self.pace.is_quick()) or not self.committing.acquire(blocking=False):
            return False
        try:
            began_ns = time.monotonic_ns()
            group = self._commit()
            if group is not None and group.sync:
                self.pace.took(began_ns, time.monotonic_ns())
        finally:
            self.committing.release()
        if group is not None:
            group.notify(loop)
            if group.has_changes and self._watchers.calls:
                self._watchers.wake()
        return True

    def is_alone(self, outcome: CommitResult | None) -> bool:
        """Whether somebody has just asked for a write, which needs no sync, and nobody else waits for one."""
        group = self._group
        return outcome is group and group.waiting == 1 and not group.sync

    def _commit(self) -> CommitGroup | None:
        """What has collected is written and its outcome settled. Whoever waits is told by the caller."""
        group = self._group
        try:
            if not self._write_group(group):
                return None
        except BaseException as error:
            self.fail(error)
            # No space is the one failure whose outcome is known: nothing of the group was written.
            group.settle(_full_of(error) if isinstance(error, StoreFull) else self.as_failure)
            if not isinstance(error, Exception):
                # Ctrl-C in the middle of a write. Nobody knows whether it took place, so the store has stopped. The
                # others are told by a thread that holds no lock.
                try:
                    threading.Thread(target=group.notify, args=(None,), name="unibus-notify", daemon=True).start()
                except RuntimeError as none:
                    log.error("no waiter can be notified that the store stopped: %s", none)  # At the end of Python.
                raise
        else:
            group.settle(None)
        return group

    def _write_group(self, group: CommitGroup) -> bool:
        """False if there is nothing to write. The next group begins with the first thing that is taken from memory."""
        with self._lock:
            changes = self._state.fresh
            part, unread = self._next_part(group, len(changes))
            if not changes and not group.waiting and part is None and unread is None:
                return False
            self._group = CommitGroup(self)
            self._state.take()
            shed, self._state.to_shed = self._state.to_shed, []
        if unread is not None:
            raise unread
        self._write(group, changes, part)
        if shed:
            with self._lock:
                self._state.shed(shed)
        return True

    def _next_part(self, group: CommitGroup, count: int) -> tuple[SnapshotSlice | None, Exception | None]:
        """A piece of a snapshot, or why there is none: what it takes from disk is lost to the snapshot if it fails."""
        if self.failure is not None:
            return None, None
        wanted = {
            (claimed.entry.home_entity, claimed.entry.home_sequence)
            for claimed in group.absent
            if claimed.entry.home_entity
        }
        try:
            return self._snapshot.next_part(self.written + count, wanted), None
        except Exception as error:
            return None, error

    def _write(self, group: CommitGroup, changes: list[Change], part: SnapshotSlice | None) -> None:
        if self.failure is not None:
            # Not the failure itself: a Ctrl-C that stopped the store in another thread is none of this thread's.
            raise self.as_failure()
        if part is None and group.sync and not changes and self._unsynced:
            part = SnapshotSlice()  # Nothing of its own to write, but it answers for what was written before.
        if changes or part is not None:
            self._journal.append(self.written + 1, changes, group.sync, part)
            group.has_changes = bool(changes)
            self.written += len(changes)
            self._unsynced = not group.sync and part is None
            if part is not None:
                with self._lock:
                    self._snapshot.wrote(part)
                if part.last is not None and not part.put_off:
                    self.on_snapshot()
            if self._journal.reserve.full:
                self.on_full()
        if group.absent:
            found = self._journal.bodies([claimed.entry for claimed in group.absent])
            for claimed in group.absent:
                claimed.data = found[claimed.entry]

    def fail(self, error: BaseException) -> None:
        """The outcome is unknown and memory may be ahead of the disk: nothing more is taken or answered."""
        if self.failure is None:
            self.failure = error
            log.error("the store %s has stopped: %s", self._journal.url, described(error))
            self.on_failure()

    def stop_if_deciding(self, error: BaseException) -> None:
        """An exception left a decision half done: that half is never written, and the store takes nothing more.

        A refusal comes before the first change; then there is nothing to do. The caller holds the lock.
        """
        if self._state.deciding:
            self._state.deciding = False
            self.fail(error)

    def as_failure(self) -> BaseException:
        """What to tell whoever asks for anything from now on."""
        return as_failure(self.failure) if self.failure is not None else StoreFailed("the store has not failed")

    def flush(self) -> None:
        """Commit until nothing is left to write."""
        while self.failure is None and self.commit():
            pass

    def sync(self) -> None:
        """Everything that was decided so far is on disk after this."""
        with self._lock:
            group = self.add(True)
        Pending(None, group).wait()

    def bodies(self, entries: list[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The data of messages that is on disk only. No row goes meanwhile; what is gone already is left out."""
        with self.committing:
            with self._lock:
                there = [entry for entry in entries if entry.state != GONE]
            return self._journal.bodies(there)

    def fetch(self, entry: StoredMessage) -> bytes:
        """The same in the middle of a decision, under the store's lock. If it fails, memory may hold half of what was
        decided: that must never be written, so the store stops."""
        try:
            return self._journal.bodies([entry])[entry]
        except BaseException as error:
            self.fail(error)
            raise

    def trim(self, now_ns: int) -> bool:
        """Let the journal forget some history, but nothing that recovery needs. True if there is more."""
        with self.committing:
            return self._journal.trim(now_ns, self._snapshot.seq)

    # The store's own thread

    def _run(self) -> None:
        free_ns: i64 = 0  # When the commit before this one was over.
        while not self._closing:
            asked_ns = self._asked_ns
            if not self.commit():
                self._kicks.acquire()
                continue
            ended_ns = time.monotonic_ns()
            if asked_ns:
                self._asked_ns = 0
                self.pace.took_there(max(asked_ns, free_ns), ended_ns)
            free_ns = ended_ns

    def close(self) -> None:
        """Write what is left, and end the thread. Once more after it was interrupted, it goes on."""
        self._closing = True
        self._let_go()
        thread = self._writer
        if thread is not None and thread is not threading.current_thread():
            thread.join(SLOW_S)
            if thread.is_alive():
                log.warning("the store %s is still writing, and closes after that", self._journal.url)
                thread.join()
        # Before Python 3.13 a join that Ctrl-C interrupted takes its thread for ended. `commit` waits for its write.
        self.flush()
        with self._lock:
            left = self._group
            self._group = CommitGroup(self)
        left.decide(self.as_failure)  # Only a store that has stopped leaves anybody waiting.


def _nobody() -> None:
    """To be told when the store stops."""


def described(error: BaseException) -> str:
    """Never empty: MemoryError and Ctrl-C have no text of their own."""
    return str(error) or type(error).__name__


def _full_of(error: StoreFull) -> Callable[[], BaseException]:
    return lambda: StoreFull(error.what, error.hint)


def as_failure(error: BaseException) -> BaseException:
    """Each waiter gets an error of its own: raising one object in many tasks would mix their tracebacks."""
    failure: BusError
    if isinstance(error, BusForked):
        failure = BusForked(error.what, error.hint)
    elif isinstance(error, BusError):
        failure = StoreFailed(error.what, error.hint)
    else:
        failure = StoreFailed(f"the store has stopped: {described(error)}", "close the bus and open it again")
    failure.__cause__ = error
    return failure
