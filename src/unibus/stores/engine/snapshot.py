# mypyc: compiled
"""The snapshot of an embedded store, written in slices while the store works.

    log       … 870 ┊ 871 … 902 ┊ 903 … 955 ┊ 956 …
    slices          1           2           3 = last       each in the same transaction as the group before it
                    ▲ begun_at = seq                ▲ overlap

    1. slices   messages that changed since the last snapshot, as they are when their slice is written
    2. slices   deleted rows: of messages that were removed since
    3. last     entities, sessions and dedup keys; from now on recovery starts at `begun_at`

A message that arrived and was removed between two snapshots is never written.

Why recovery is right at any crash. A slice is written atomically with the changes before it, so no row is newer than
the log. Before the last slice, recovery starts at the older snapshot and replays the log over rows that are partly
newer; after it, from `begun_at`. Both end in the same state, because every change is absolute: it says what a message
is afterwards, not what is added to it. Up to `overlap` recovery therefore accepts changes that rows have already.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from unibus.core.lifecycle.state.changes import Applied
from unibus.core.lifecycle.state.entity import FOREVER_NS, Entity, StoredMessage
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState
from unibus.core.lifecycle.state.states import GONE
from unibus.stores.engine.snapshot_limits import SnapshotLimits
from unibus.stores.seam.journal import EntityRow, Journal, SnapshotSlice, Summary

PART_ENTRIES = 500  # Not final: tests make slices of one message.
PART_BYTES: Final = 4_000_000
"""The size of one slice: a sender may have to wait for it in addition to its own group."""

PUT_OFF_NS: Final = 60_000_000_000
"""The time to the next try after a slice that did not fit on the disk."""

EVERY_CHANGES: Final = 500_000
"""How many changes recovery may have to replay: it takes a second or two."""


class Snapshot:
    """Decides when a snapshot is due and what its next slice is. Called under the locks `committing` and `lock`."""

    def __init__(
        self,
        journal: Journal,
        state: StoreState,
        now_ns: Callable[[], int],
        covered: int,
        every: int,
        limits: SnapshotLimits,
    ) -> None:
        """For a state that was just recovered: everything that it has replayed came after the snapshot."""
        self.seq: i64 = covered  # What the last complete one covers.
        self._now_ns = now_ns
        self.every: i64 = every
        self._limits = limits
        self._journal = journal
        self._state = state
        self._weight: i64 = 0  # StoreState.weight when the last one began.
        self._due_weight: i64 = self._next_weight()  # StoreState.weight at which the next one is due.
        self._wanted: i64 = 0  # A snapshot that covers this change is due, however few changes there are.
        # The time of the oldest change that no snapshot covers, within a minute; 0 if there is none.
        self._since_ns: i64 = min(state.replayed_ns, now_ns())
        self._running = False
        self._copies_saved = False
        self._begun_at = 0
        self._entries: list[StoredMessage] = []
        self._gone: list[tuple[int, int]] = []
        self._marks: list[tuple[int, int, str, int]] = []
        self._batches: list[Applied] = []
        self._dropped: list[int] = []
        self._entities: list[Entity] = []  # When it began: the log after that may name one that is deleted by now.
        self._numbered = 0  # Entities up to this number have rows.
        self._held: SnapshotSlice | None = None  # A slice that did not fit on the disk,
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
        """Called about once a minute, under the store's lock: whether the oldest change without a snapshot is too
        old."""
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
        """A last one, of everything. False if nothing has changed, or if it would take long."""
        if not (self._journal.snapshots and self._limits.at_close) or self._state.seq <= self.seq:
            return False
        if self._limits.rewrites and self._live_bytes() > self._limits.at_close_bytes_max:
            return False
        self._wanted = self._state.seq
        return True

    def next_part(self, seq: int, wanted: set[tuple[int, int]]) -> SnapshotSlice | None:
        """The next slice, if one is due. `seq` is the last change of the group that it is written with.

        `wanted` are rows that a delivery of this group reads after the write: a later slice deletes them.
        """
        if not self.is_due(seq):
            return None
        # First the slice that found no space: slices are written in their order, because `gone` may only follow the
        # late copies, and the last one must follow all others.
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
            # A row to delete may be the only place of the data of a copy that was made since. The copy gets its own
            # row first: after a crash between the two slices its data exists twice, and never not at all.
            self._entries = self._late_copies()
            if self._entries:
                return self._entries_part()
            self._copies_saved = True
        if self._gone:
            # From the end, which costs nothing. Keys in `wanted` go back to the list: the deliveries of this group read
            # these rows after the write.
            gone = self._gone[-PART_ENTRIES:]
            del self._gone[-PART_ENTRIES:]
            self._gone += [key for key in gone if key in wanted]
            return SnapshotSlice(gone=[key for key in gone if key not in wanted])
        self._entries = self._late_copies()
        # Checked once more before the end: a copy that was made since the last check may have its data only in the log
        # before `begun_at`, which is pruned after the last slice.
        return self._entries_part() if self._entries else self._last_part(seq)

    def wrote(self, part: SnapshotSlice) -> None:
        """The slice was written, or put off: then it is kept as it is for the next try. Its rows may be older than the
        log by then, which does no harm: recovery replays the log over them from the snapshot's beginning.
        """
        if part.put_off:
            self._held = part
            self._resume_ns = self._now_ns() + PUT_OFF_NS
            return
        self._resume_ns = 0
        for index, entry in enumerate(part.sources):
            # Only now: until the slice was written, the data could only be read from its old place.
            row = part.entries[index]
            # From now on a reader of the data uses the row; the log before this snapshot may be pruned.
            entry.home_entity = row[0]
            entry.home_sequence = row[1]
        if part.last is not None:
            self._running = False
            self._marks, self._batches, self._dropped, self._entities = [], [], [], []
            self.seq = part.last.seq
            self._since_ns = 0
            self._due_weight = self._next_weight()

    def _late_copies(self) -> list[StoredMessage]:
        """Copies made since the beginning of messages from before it: their data may be in a row that is to be deleted,
        or in a part of the log that is pruned when the snapshot is complete."""
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
        # Swapped, not copied: what changes from here on belongs to the next snapshot, too. Its row may be written
        # twice, which is right, because rows are absolute.
        self._entries, state.unsaved = state.unsaved, []
        self._gone, state.gone = state.gone, []
        self._marks, state.unsaved_marks = state.unsaved_marks, []
        self._batches, state.batches.unsaved = state.batches.unsaved, []
        self._dropped, state.dropped = state.dropped, []
        self._entities = list(state.entities.values())
        self._entries.reverse()  # `_entries_part` pops from the end.

    def _entries_part(self) -> SnapshotSlice:
        """Some messages, and the new entities: after a crash recovery finds these rows without the last slice."""
        part = SnapshotSlice(
            entities=[row_of(each) for each in self._state.entities.values() if each.number > self._numbered]
        )
        self._numbered = self._state.numbered
        size = 0
        while self._entries and len(part.entries) < PART_ENTRIES and size < PART_BYTES:
            entry = self._entries.pop()
            # Before the row is made: a change after this slice marks the message again, for the next snapshot.
            entry.unsaved = False
            if entry.state != GONE:
                # Under the store's lock, also if it reads from disk: the row must be of the same moment as `seq`. An
                # error is not caught here: without this message the snapshot would be incomplete
                # (`Committer._next_part`).
                data = entry.data if entry.data is not None else self._journal.read_bodies([entry])[entry]
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
            # All sessions of the entity: one that was deleted leaves no record of that, so its rows are replaced as a
            # whole.
            if entity.unsaved:
                entity.unsaved = False
                sessions[entity.number] = [
                    session.as_saved()
                    for session in entity.sessions.values()
                    if session.state is not None or session.token is not None
                ]
            # Dedup keys that have left their window are deleted here, not when they expire: a table that is written
            # with each expiry would cost more than the keys.
            over.append((entity.number, MARK_SENT, now_ns - entity.settings.mark_window_ns()))
            over.append((entity.number, MARK_PROCESSED, now_ns - (entity.settings.ttl_ns or FOREVER_NS)))
        summary = Summary(
            seq=self._begun_at,
            overlap=seq,
            # Also entities that were deleted since the beginning: recovery replays from `begun_at`, and the log there
            # still names them.
            entities=[row_of(each) for each in {*self._entities, *state.entities.values()}],
            dropped=[(number, state.known[number]) for number in self._dropped],
            retired=dict(state.retired),
            sessions=sessions,
            marks=self._marks,
            marks_over=over,
            positions=dict(state.positions),
            batches=self._batches,
            batches_evicted_ns=state.batches.evicted_ns,
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
