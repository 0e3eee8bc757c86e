"""History: every event of the messages of a store, for its readers.

One history, many readers: tracing, SQL, capture, replay. Events are numbered by `seq` without gaps. A named reader
keeps its position in a cursor. History is kept within limits; what recovery does not need is pruned.
"""

import itertools
import threading
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Final

from unibus.core.lifecycle.admission import target_of
from unibus.core.lifecycle.events import Event, event_of, is_about, kind_of
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.engine.committer import Committer
from unibus.stores.engine.wake_ups import HistoryWakeUps
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.replay_index import ReplayIndex

PAGE: Final = 5_000


class EmbeddedHistory:
    """`check` raises if the store is closed or has failed."""

    def __init__(
        self,
        journal: Journal,
        committer: Committer,
        state: StoreState,
        lock: threading.RLock,
        check: Callable[[], int],
        syncs: bool,
        watchers: HistoryWakeUps,
    ) -> None:
        self._journal = journal
        self._committer = committer
        self._state = state
        self._lock = lock
        self._check = check
        self._syncs = syncs
        self._watchers = watchers

    def events_after(self, seq: int, limit: int = 1_000, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
        self._settle()
        # Read first: changes that are appended meanwhile belong to the next call.
        last = self._journal.last
        domain, names = self._journal.domain, self._names()
        rows: list[Event] = []
        with closing(self._journal.changes_after(seq)) as changes:
            for number, change in changes:
                if len(rows) >= limit or number > last:
                    break
                if not kinds or kind_of(change) in kinds:
                    rows.append(event_of(number, change, domain, names))
        return rows, last

    def events_of(self, message_id: str) -> list[Event]:
        self._settle()
        found = self._journal.changes_at(self._journal.find(message_id))
        domain, names = self._journal.domain, self._names()
        return [event_of(seq, change, domain, names) for seq, change in found if is_about(change, message_id)]

    def _settle(self) -> None:
        """Sync first, so that a power cut cannot undo what a reader has seen."""
        with self._lock:
            self._check()
        # Without this, a reader could store a position whose events a power cut removes; the store would then use the
        # same seqs for other events, and the reader would never see those.
        if self._syncs:
            self._committer.sync()

    def _names(self) -> dict[int, str]:
        """The names of all entities that the changes read so far can mention: a copy, because other threads declare
        entities meanwhile."""
        with self._lock:
            return dict(self._state.known)

    def replay_index(self, entity: str, after_sequence: int, since_ns: int) -> ReplayIndex:
        with self._lock:
            self._check()
            number = target_of(self._state, entity).number
        return ReplayIndex(self, number, after_sequence, since_ns)

    # The log for a ReplayIndex

    def some_after(self, seq: int) -> list[tuple[int, Change]]:
        """One page: a commit waits while a reader reads."""
        self._settle()
        # The generator holds the journal's lock from its first step until it ends, so it is read quickly and closed
        # here. Left to the garbage collector it could block every commit.
        with closing(self._journal.changes_after(seq)) as changes:
            return list(itertools.islice(changes, PAGE))

    def changes_at(self, seqs: list[int]) -> list[tuple[int, Change]]:
        return self._journal.changes_at(seqs)

    def oldest_seq(self) -> int:
        return self._journal.oldest

    # Named readers

    def cursor(self, name: str) -> int:
        return self._journal.cursors().get(name, 0)

    def move_cursor(self, name: str, seq: int) -> None:
        self._journal.cursors({name: seq})

    def missed(self, name: str) -> int:
        read = self._journal.cursors().get(name)
        return 0 if read is None else max(0, self._journal.oldest - 1 - read)

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        # The watch may be added after the last commit: the caller reads once more afterwards, as the protocol says.
        return self._watchers.add(call)
