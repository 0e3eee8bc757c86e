# mypyc: compiled
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

from mypy_extensions import i64

from unibus.core.lifecycle.state.entity import FOREVER_NS, Entity, StoredMessage
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState
from unibus.core.lifecycle.state.states import GONE
from unibus.stores.engine.snapshot_limits import SnapshotLimits
from unibus.stores.seam.journal import EntityRow, Journal, SnapshotSlice, Summary

PART_ENTRIES = 500  # Not final, so that tests can make pieces of one message.
PART_BYTES: Final = 4_000_000
"""Of one piece: what a sender may have to wait for in addition."""

PUT_OFF_NS: Final = 60_000_000_000
"""Where there was no space for a piece, so much time passes before the next try."""

EVERY_CHANGES: Final = 500_000
"""How many changes recovery may have to play again: a second or two of its time."""


class Snapshot:
    """Decides when a snapshot is due and what its next piece is. Called under the store's lock, while committing."""

    def __init__(
        self,
        journal: Journal,
        state: StoreState,
        now_ns: Callable[[], int],
        covered: int,
        every: int,
        limits: SnapshotLimits,
    ) -> None:
        """For a book that was just loaded, so that all it has replayed came after the snapshot."""
        self.seq: i64 = covered  # What the last complete one covers.
        self._now_ns = now_ns
        self.every: i64 = every
        self._limits = limits
        self._journal = journal
        self._state = state
        self._weight: i64 = 0  # Of all changes that the last one covers.
        self._due_weight: i64 = self._next_weight()  # Of all changes, when the next one is due.
        self._wanted: i64 = 0  # A snapshot that covers this change is wanted, however few there are.
        # When the oldest change took place that no snapshot covers, within a minute; 0 if there is none.
        self._since_ns: i64 = min(state.replayed_ns, now_ns())
        self._running = False
        self._copies_saved = False
        self._begun_at = 0
        self._entries: list[StoredMessage] = []
        self._gone: list[tuple[int, int]] = []
        self._marks: list[tuple[int, int, str, int]] = []
        self._dropped: list[int] = []
        self._entities: list[Entity] = []  # Those of the beginning: the log may speak of one that is deleted by now.
        self._numbered = 0  # Entities up to this one have rows.
        self._held: SnapshotSlice | None = None  # A piece that found no space,
        self._resume_ns = 0  # and when it is tried again.

    def is_due(self, seq: int) -> bool:
        if not self._journal.snapshots or not (
            self._running
            or seq - self.seq >= self.every
            or self._state.weight >= self._due_weight
            or self._wanted > self.seq
        ):
            return False
        return self._resume_ns == 0 or self._now_ns() >= self._resume_ns

    def _next_weight(self) -> i64:
        weight: i64 = self._limits.weight
        if self._limits.rewrites:
            weight = max(weight, self._live_bytes())
        return self._weight + weight

    def _live_bytes(self) -> i64:
        size: i64 = 0
        for entity in self._state.entities.values():
            size += entity.size_bytes
        return size

    def want_if_old(self) -> bool:
        """Called about once a minute, under the store's lock: whether the oldest change waits for too long by now."""
        if not self._journal.snapshots or self._state.seq <= self.seq:
            self._since_ns = 0
            return False
        now_ns: i64 = self._now_ns()
        if self._since_ns == 0:
            self._since_ns = now_ns
        if now_ns - self._since_ns >= self._limits.age_ns:
            self._wanted = self._state.seq
        return self._wanted > self.seq

    def want_at_close(self) -> bool:
        """The last one, of everything. Not where nothing has changed, and not where it would take long."""
        if not (self._journal.snapshots and self._limits.at_close) or self._state.seq <= self.seq:
            return False
        if self._limits.rewrites and self._live_bytes() > self._limits.at_close_bytes_max:
            return False
        self._wanted = self._state.seq
        return True

    def next_part(self, seq: int, wanted: set[tuple[int, int]]) -> SnapshotSlice | None:
        """The next piece, if there is one to write; `seq` is that of the last change in the group it goes with.

        Rows that are `wanted` are read once the group is written: they stay until the next piece.
        """
        if not self.is_due(seq):
            return None
        held, self._held = self._held, None
        if held is not None:
            self._gone += [key for key in held.gone if key in wanted]
            held.gone = [key for key in held.gone if key not in wanted]
            held.put_off = False
            return held
        if not self._running:
            self.begin(seq)
        if self._entries:
            return self._entries_part()
        if self._gone and not self._copies_saved:
            # A row that goes may hold the data of a copy that was made since. That needs a row of its own first.
            self._entries = self._late_copies()
            if self._entries:
                return self._entries_part()
            self._copies_saved = True
        if self._gone:
            gone = self._gone[-PART_ENTRIES:]
            del self._gone[-PART_ENTRIES:]
            self._gone += [key for key in gone if key in wanted]
            return SnapshotSlice(gone=[key for key in gone if key not in wanted])
        self._entries = self._late_copies()
        return self._entries_part() if self._entries else self._last_part(seq)

    def wrote(self, part: SnapshotSlice) -> None:
        """The piece was written, or put off: then it is kept as it is. A row that is older than the log is no matter,
        because the log is played from the snapshot's beginning over it.
        """
        if part.put_off:
            self._held = part
            self._resume_ns = self._now_ns() + PUT_OFF_NS
            return
        self._resume_ns = 0
        for index, entry in enumerate(part.sources):
            # Not before: until now its data could only be read where it was.
            row = part.entries[index]
            entry.home_entity = row[0]
            entry.home_sequence = row[1]
        if part.last is not None:
            self._running = False
            self._marks, self._dropped, self._entities = [], [], []
            self.seq = part.last.seq
            self._since_ns = 0
            self._due_weight = self._next_weight()

    def _late_copies(self) -> list[StoredMessage]:
        """Copies, made since, of messages from before: what they are copies of may be in no row, and not in the log."""
        return [
            entry
            for entry in self._state.unsaved
            if not entry.saved and entry.state != GONE and (entry.home_entity or entry.home_sequence <= self._begun_at)
        ]

    def begin(self, seq: int) -> None:
        state = self._state
        self._running = True
        self._copies_saved = False
        self._begun_at = seq
        self._weight = state.weight
        self._entries, state.unsaved = state.unsaved, []
        self._gone, state.gone = state.gone, []
        self._marks, state.unsaved_marks = state.unsaved_marks, []
        self._dropped, state.dropped = state.dropped, []
        self._entities = list(state.entities.values())
        self._entries.reverse()  # Taken from the end.

    def _entries_part(self) -> SnapshotSlice:
        """Some messages, and the entities that are new: recovery may find this piece without the last one."""
        part = SnapshotSlice(
            entities=[row_of(each) for each in self._state.entities.values() if each.number > self._numbered]
        )
        self._numbered = self._state.numbered
        size = 0
        while self._entries and len(part.entries) < PART_ENTRIES and size < PART_BYTES:
            entry = self._entries.pop()
            entry.unsaved = False
            if entry.state != GONE:
                data = entry.data if entry.data is not None else self._journal.bodies([entry])[entry]
                part.entries.append((entry.entity.number, entry.sequence, entry.as_saved(), data))
                part.sources.append(entry)
                size += len(data)
                entry.saved = True
        return part

    def _last_part(self, seq: int) -> SnapshotSlice:
        state = self._state
        now_ns = self._now_ns()
        sessions = {}
        over = []
        for entity in state.entities.values():
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
            seq=self._begun_at,
            overlap=seq,
            entities=[row_of(each) for each in {*self._entities, *state.entities.values()}],
            dropped=[(number, state.known[number]) for number in self._dropped],
            retired=dict(state.retired),
            sessions=sessions,
            marks=self._marks,
            marks_over=over,
            positions=dict(state.positions),
        )
        return SnapshotSlice(last=summary)


def row_of(entity: Entity) -> EntityRow:
    return EntityRow(
        entity.number,
        entity.name,
        entity.kind,
        entity.settings.given,
        entity.sequence,
        entity.created_ns,
        entity.updated_ns,
    )
