# mypyc: compiled
"""Group commit: what was decided in memory is written in groups, and only then answered.

While one group is being written the next one collects. A thread that waits for its answer commits for all who wait
with it; callers on an event loop leave that to a thread of the store's own. A store writes its changes in the order of
their decisions, so what is on disk is always some whole past of what was in memory.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final

from unibus.core.life.book import Book
from unibus.core.life.changes import Change
from unibus.core.life.claiming import Claimed
from unibus.core.life.entity import Entry
from unibus.errors import BusError, StoreFailed
from unibus.stores.journal import Journal, Slice
from unibus.stores.pending import Pending, finish_all
from unibus.stores.snapshot import Snapshot

log = logging.getLogger("unibus")

ENOUGH: Final = 128
"""So many answers wait in one turn of a loop: the next group is begun before the turn is over."""


class Group:
    """What is written and answered together."""

    __slots__ = ("changes", "claims", "pendings", "shed", "sync")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.pendings: list[Pending[object]] = []
        self.claims: list[Claimed] = []  # Handed out, with their data still on disk.
        self.shed: list[Entry] = []
        self.sync = False


class Committer:
    """`lock` is the store's: it is held while memory changes, and never while anything is written."""

    def __init__(self, journal: Journal, book: Book, lock: threading.RLock, snapshot: Snapshot) -> None:
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = _nobody
        self.written = book.seq
        self._journal = journal
        self._book = book
        self._lock = lock
        self._snapshot = snapshot
        self._committing = threading.Lock()
        self._group = Group()
        self._unsynced = True  # Something that was written may not be on disk yet.
        self._wake = threading.Event()
        self._soon: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._writer: threading.Thread | None = None

    def add(self, pending: "Pending[object] | None", sync: bool, claims: list[Claimed] | None = None) -> None:
        """Take the book's fresh changes. The caller holds the lock, and kicks or leads after it."""
        book = self._book
        group = self._group
        if group.changes:
            group.changes.extend(book.take())
        else:
            group.changes = book.take()
        if pending is not None:
            group.pendings.append(pending)
        if claims:
            group.claims.extend(claims)
        if book.to_shed:
            group.shed.extend(book.to_shed)
            book.to_shed = []
        if sync:
            group.sync = True

    def kick_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the store's own thread commit when the loop has had its turn: what comes until then goes along."""
        if self._soon is not loop:
            self._soon = loop
            loop.call_soon(self._kicked)
        elif len(self._group.pendings) == ENOUGH:
            self.kick()  # Worth a commit of their own, while the loop goes on with the rest.

    def _kicked(self) -> None:
        self._soon = None
        self.kick()

    def kick(self) -> None:
        """Let the store's own thread commit now."""
        if self._writer is None:
            self._start()
        self._wake.set()

    def lead(self, pending: "Pending[object]") -> None:
        """Commit in this thread, unless another one does so for us meanwhile."""
        while not pending.done:
            self.commit()

    def commit(self) -> bool:
        """Write what has collected. False if there was nothing."""
        with self._committing:
            with self._lock:
                if self._book.fresh:
                    self.add(None, False)  # From a call that wrote nothing itself. No snapshot may be ahead of it.
                group = self._group
                part, unread = self._next_part(group)
                if not group.changes and not group.pendings and part is None and unread is None:
                    return False
                self._group = Group()
            try:
                if unread is not None:
                    raise unread
                self._write(group, part)
            except Exception as error:
                self._fail(group, error)
            else:
                finish_all(group.pendings)
            return True

    def _next_part(self, group: Group) -> tuple[Slice | None, Exception | None]:
        """A piece of a snapshot, or why there is none: what it takes from disk is lost to the snapshot if it fails."""
        if self.failure is not None:
            return None, None
        wanted = {
            (claimed.entry.home_entity, claimed.entry.home_sequence)
            for claimed in group.claims
            if claimed.data is None and claimed.entry.home_entity
        }
        try:
            return self._snapshot.next_part(self.written + len(group.changes), wanted), None
        except Exception as error:
            return None, error

    def _write(self, group: Group, part: Slice | None) -> None:
        if self.failure is not None:
            raise self.failure
        if part is None and group.sync and not group.changes and self._unsynced:
            part = Slice()  # Nothing of its own to write, but it answers for what was written before.
        if group.changes or part is not None:
            self._journal.append(self.written + 1, group.changes, group.sync, part)
            self.written += len(group.changes)
            self._unsynced = not group.sync and part is None
        missing = [claimed for claimed in group.claims if claimed.data is None]
        if missing:
            found = self._journal.bodies([claimed.entry for claimed in missing])
            for claimed in missing:
                claimed.data = found[claimed.entry]
        if group.shed:
            with self._lock:
                self._book.shed(group.shed)

    def _fail(self, group: Group, error: BaseException) -> None:
        """The outcome is unknown and memory may be ahead of the disk: nothing more is taken or answered."""
        if self.failure is None:
            self.failure = error
            log.error("the store %s has stopped: %s", self._journal.url, error)
            self.on_failure()
        finish_all(group.pendings, self.as_failure)

    def as_failure(self) -> BaseException:
        """What to tell whoever asks for anything from now on."""
        return as_failure(self.failure) if self.failure is not None else StoreFailed("the store has not failed")

    def flush(self) -> None:
        """Commit until nothing is left to write."""
        while self.failure is None and self.commit():
            pass

    def sync(self) -> None:
        """Everything that was decided so far is on disk after this."""
        pending: Pending[object] = Pending(None)
        with self._lock:
            self.add(pending, True)
        self.lead(pending)
        pending.wait()

    def trim(self, now_ns: int) -> None:
        """Let the journal forget history, but nothing that recovery needs."""
        with self._committing:
            self._journal.trim(now_ns, self._snapshot.seq)

    # The store's own thread

    def _start(self) -> None:
        with self._lock:
            if self._writer is None and not self._closing:
                self._writer = threading.Thread(target=self._run, name="unibus-commit", daemon=True)
                self._writer.start()

    def _run(self) -> None:
        while not self._closing:
            if self.commit():
                continue
            self._wake.wait()
            self._wake.clear()

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self._closing = True
        self._wake.set()
        thread = self._writer
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self.flush()
        with self._lock:
            left = self._group.pendings
            self._group = Group()
        finish_all(left, self.as_failure)  # Only a store that has stopped leaves any.


def _nobody() -> None:
    """To be told when the store stops."""


def as_failure(error: BaseException) -> BaseException:
    """Each waiter gets an error of its own: raising one object in many tasks would mix their tracebacks."""
    if isinstance(error, BusError):
        failure = StoreFailed(error.what, error.hint)
    else:
        failure = StoreFailed(f"the store has stopped: {error}", "close the bus and open it again")
    failure.__cause__ = error
    return failure
