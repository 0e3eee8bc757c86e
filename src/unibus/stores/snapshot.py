"""The snapshot of an embedded store, taken piece by piece while work goes on.

    1. pieces   messages that changed since the last snapshot, as they are when their piece is written
    2. pieces   rows of messages that are gone since
    3. the end  entities, sessions and marks; from now on recovery begins here

A message that came and went between two snapshots is never written. Each piece goes to the journal in the same step
as the changes before it, so no row is ever newer than the log. Playing the log from the snapshot's beginning over rows
that are partly newer ends in the same state, because every change is absolute.
"""

from collections.abc import Callable
from typing import Final

from unibus.core.life.book import MARK_PROCESSED, MARK_SENT, Book
from unibus.core.life.entity import FOREVER_NS, Entry
from unibus.core.life.states import GONE
from unibus.stores.journal import Journal, Slice, Summary

PART_ENTRIES: Final = 500
PART_BYTES: Final = 4_000_000
"""Of one piece: what a sender may have to wait for in addition."""

EVERY_CHANGES: Final = 200_000
"""How many changes recovery may have to play again: about a second's worth."""


class Snapshot:
    """Decides when a snapshot is due and what its next piece is. Called under the store's lock, while committing."""

    def __init__(self, journal: Journal, book: Book, now_ns: Callable[[], int], covered: int, every: int) -> None:
        self.seq = covered  # What the last complete one covers.
        self._now_ns = now_ns
        self.every = every
        self._journal = journal
        self._book = book
        self._running = False
        self._begun_at = 0
        self._entries: list[Entry] = []
        self._gone: list[tuple[int, int]] = []
        self._marks: list[tuple[int, int, str, int]] = []

    def next_part(self, seq: int) -> Slice | None:
        """The next piece, if there is one to write; `seq` is that of the last change in the group it goes with."""
        if not self._journal.snapshots:
            return None
        if not self._running:
            if seq - self.seq < self.every:
                return None
            self.begin(seq)
        if self._entries:
            return self._entries_part()
        if self._gone:
            gone = self._gone[-PART_ENTRIES:]
            del self._gone[-PART_ENTRIES:]
            return Slice(gone=gone)
        return self._last_part(seq)

    def begin(self, seq: int) -> None:
        book = self._book
        self._running = True
        self._begun_at = seq
        self._entries, book.unsaved = book.unsaved, []
        self._gone, book.gone = book.gone, []
        self._marks, book.unsaved_marks = book.unsaved_marks, []
        self._entries.reverse()  # Taken from the end.

    def _entries_part(self) -> Slice:
        part = Slice()
        size = 0
        while self._entries and len(part.entries) < PART_ENTRIES and size < PART_BYTES:
            entry = self._entries.pop()
            entry.unsaved = False
            if entry.state != GONE:
                data = entry.data if entry.data is not None else self._journal.bodies([entry])[entry]
                part.entries.append((entry.entity.number, entry.sequence, entry.as_saved(), data))
                size += len(data)
                entry.saved = True
                entry.home_entity = entry.entity.number
                entry.home_sequence = entry.sequence
        return part

    def _last_part(self, seq: int) -> Slice:
        book = self._book
        now_ns = self._now_ns()
        sessions = {}
        over = []
        for entity in book.entities.values():
            if entity.unsaved:
                entity.unsaved = False
                sessions[entity.number] = [
                    session.as_saved()
                    for session in entity.sessions.values()
                    if session.state is not None or session.token is not None
                ]
            over.append((entity.number, MARK_SENT, now_ns - entity.settings.mark_window_ns()))
            over.append((entity.number, MARK_PROCESSED, now_ns - (entity.settings.ttl_ns or FOREVER_NS)))
        summary = Summary(
            self._begun_at,
            seq,
            [
                (each.number, each.name, each.kind, each.settings.given, each.sequence)
                for each in book.entities.values()
            ],
            book.dropped,
            dict(book.retired),
            sessions,
            self._marks,
            over,
        )
        book.dropped = []
        self._running = False
        self._marks = []
        self.seq = self._begun_at
        return Slice(last=summary)
