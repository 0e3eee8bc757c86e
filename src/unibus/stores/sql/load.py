"""Recovery from SQL tables (seam/recovery.py): load the snapshot tables, and read the log after it.

    meta.snapshot ──▶ S      the snapshot has every change up to S
    meta.overlap  ──▶ O      rows may also have changes up to O: a slice of an unfinished snapshot
    log              S+1 … O … end

A row whose checksum is wrong raises StoreDamaged.
"""

import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import cast

import msgspec

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.indexes import restore, restore_mark, restore_session
from unibus.core.lifecycle.state.state import MARK_PROCESSED, StoreState
from unibus.stores.seam.journal import Covered
from unibus.stores.seam.log_end import OLDEST, REACHED
from unibus.stores.sql.rows import (
    BATCHES_EVICTED,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    changes_of,
    unpack_batch,
    unpack_entry,
    unpack_session,
)
from unibus.stores.sql.tables import SqlTables, damaged


class SqlLoading:
    """One recovery. `log_bytes` is the size of the log up to the snapshot, for its limit."""

    def __init__(self, tables: SqlTables, state: StoreState) -> None:
        self.log_bytes = 0
        self.domain = ""
        self.identity = ""
        self._oldest: int | None = None  # None in a file of an earlier version.
        self._tables = tables
        self._state = state

    def log_end(self, covered: int) -> int:
        """The last change that the log has or had; `covered` if nothing says."""
        last = self._tables.value(self._tables.sql.last)
        if last is None and self._oldest is not None:
            return self._oldest - 1  # Everything up to it was pruned.
        return covered if last is None else cast(int, last)

    def load_snapshot(self) -> Covered:
        state = self._state
        rows = self._tables.execute(self._tables.sql.meta)
        meta = dict(cast("Iterator[tuple[str, object]]", rows))
        self.domain = str(meta.get("domain", "local"))
        self.identity = str(meta.get("identity", ""))
        self.log_bytes = cast(int, meta.get("log_bytes", 0))
        self._oldest = cast("int | None", meta.get(OLDEST))
        # Entities first: all other rows refer to them by number.
        self._load_entities()
        self._load_messages()
        self._load_sessions()
        self._load_marks()
        state.positions.update(self._tables.execute(self._tables.sql.positions))
        self._load_batches(cast(int, meta.get(BATCHES_EVICTED, 0)))
        snapshot, overlap, reached = [cast(int, meta.get(key, 0)) for key in ("snapshot", "overlap", REACHED)]
        return Covered(snapshot, overlap, reached)

    def _load_entities(self) -> None:
        state = self._state
        rows = self._tables.execute(self._tables.sql.entities)
        for number, name, kind, sequence, dropped, settings, created_ns, updated_ns in rows:
            state.known[number] = name  # History names deleted entities, too.
            state.numbered = max(state.numbered, number)
            if not dropped:
                entity = Entity(number, name, kind, msgspec.json.decode(settings))
                entity.created_ns, entity.updated_ns = created_ns, updated_ns
                state.add_entity(entity, sequence)
                entity.unsaved = False
        for name, sequence in self._tables.execute(self._tables.sql.retired):
            # A slice may have a newer entity of this name already: then the name is not retired any more.
            if state.find(name) is None:
                state.retired[name] = sequence

    def _load_messages(self) -> None:
        entity: Entity | None = None
        for key, crc, saved in self._tables.execute(self._tables.sql.messages):
            number = key >> SEQUENCE_BITS
            if entity is None or entity.number != number:
                entity = self._state.entities.get(number)
                if entity is None:
                    raise damaged(self._tables.name, f"it has messages of entity {number}, which does not exist")
            # The data has a checksum of its own, which is checked when it is read: recovery does not read the data.
            if zlib.crc32(saved) != crc:
                raise damaged(self._tables.name, f"the row of {entity.name!r} #{key & SEQUENCE_MASK}")
            restore(self._state, entity, key & SEQUENCE_MASK, unpack_entry(saved))

    def _load_sessions(self) -> None:
        for number, session_id, crc, saved in self._tables.execute(self._tables.sql.sessions):
            entity = self._state.entities.get(number)
            if zlib.crc32(saved) != crc:
                raise damaged(self._tables.name, f"the row of session {session_id!r}")
            if entity is not None:
                restore_session(self._state, entity, unpack_session(saved))

    def _load_marks(self) -> None:
        rows = self._tables.execute(self._tables.sql.marks)
        for number, kind, key, at_ns in rows:
            entity = self._state.entities.get(number)
            # A key of an entity that does not exist is left over from one that was deleted since: it has no meaning.
            if entity is not None:
                restore_mark(entity, kind == MARK_PROCESSED, key, at_ns)

    def _load_batches(self, evicted_ns: int) -> None:
        if not self._tables.value(self._tables.sql.has_batches):
            return  # A reader of a file with the schema before.
        batches = []
        for age_ns, crc, saved in self._tables.execute(self._tables.sql.batches):
            if zlib.crc32(saved) != crc:
                raise damaged(self._tables.name, f"the row of the batch of age {age_ns}")
            batches.append(unpack_batch(saved))
        self._state.batches.restore(batches, evicted_ns)


class ReadOnlyLog:
    """Tables that are recovered beside their owner: RecoverableLog of seam/recovery.py, inside one read transaction."""

    def __init__(self, tables: SqlTables) -> None:
        self.url = tables.name
        self.last = 0
        self._tables = tables

    def load_snapshot(self, state: StoreState) -> Covered:
        loading = SqlLoading(self._tables, state)
        covered = loading.load_snapshot()
        self.last = loading.log_end(covered.seq)
        return covered

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        return changes_after(self._tables, seq)


def changes_after(tables: SqlTables, seq: int) -> Generator[tuple[int, Change], None, None]:
    for first, changes in groups_after(tables, seq):
        skipped = max(0, seq + 1 - first)  # The first group may begin before.
        yield from enumerate(changes[skipped:], first + skipped)


def groups_after(tables: SqlTables, seq: int) -> Iterator[tuple[int, list[Change]]]:
    """The groups of the log that end after `seq`: first seq, changes. Raises StoreDamaged at a gap."""
    # The change after `seq` may be in the middle of a group, so the search starts at the group that contains it. The
    # primary key answers both queries without a scan.
    begins = tables.value(tables.sql.group_begin, (seq + 1,))
    expected = 0
    for row in tables.execute(tables.sql.groups_after, (begins or 0, seq)):
        # A gap between two rows cannot come from a crash: each group is appended in its own transaction, in order.
        if expected and row[0] != expected:
            raise damaged(tables.name, f"the log, changes {expected} to {row[0] - 1}: they are missing")
        expected = row[1] + 1
        yield row[0], changes_of(tables.name, *row)


def changes_at(tables: SqlTables, seqs: Iterable[int]) -> list[tuple[int, Change]]:
    """The changes with these ascending seqs that the log still has."""
    found: list[tuple[int, Change]] = []
    # Neighbours are mostly in one group, so the last decoded group is kept.
    first, changes = 0, list[Change]()
    for seq in seqs:
        if not first <= seq < first + len(changes):
            rows = list(tables.execute(tables.sql.group_at, (seq,)))
            if not rows or rows[0][1] < seq:
                continue
            first, changes = rows[0][0], changes_of(tables.name, *rows[0])
        found.append((seq, changes[seq - first]))
    return found
