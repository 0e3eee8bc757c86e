"""Recovery from a SQLite file: load the snapshot tables, then replay the log after it.

    meta.snapshot ──▶ S      the snapshot has every change up to S
    meta.overlap  ──▶ O      rows may also have changes up to O: a slice of an unfinished snapshot
    log              S+1 … O … end

From S+1 to O a change is replayed over rows that may have it already, or that are newer. That is safe because changes
are absolute (engine/snapshot.py), but a change may meet a message that is gone: so checks are strict only after O.

A row whose checksum is wrong, a gap in the log, or a log that is too short raises StoreDamaged. Nothing of such a store
is served, because acknowledged messages could be missing.
"""

import zlib
from collections.abc import Iterator
from typing import cast

import apsw
import msgspec

from unibus.core.lifecycle.invariants import sequence_problem
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.indexes import restore, restore_session
from unibus.core.lifecycle.state.state import MARK_PROCESSED, StoreState
from unibus.errors import StoreDamaged
from unibus.stores.seam.log_end import OLDEST, REACHED, check_end
from unibus.stores.sqlite.file import damaged
from unibus.stores.sqlite.rows import (
    BATCHES_EVICTED,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    changes_of,
    unpack_batch,
    unpack_entry,
    unpack_session,
)


class SqliteLoading:
    """One recovery. `log_bytes` is the size of the log, for its limit."""

    def __init__(self, connection: apsw.Connection, path: str, state: StoreState) -> None:
        self.log_bytes = 0
        self.domain = ""
        self.identity = ""
        self.reached = 0  # A change that the log had at least (log_end.py).
        self._oldest: int | None = None  # None in a file of an earlier version.
        self._connection = connection
        self._path = path
        self._state = state

    def run(self) -> int:
        """Fill the state. Returns the seq that the snapshot covers."""
        state = self._state
        snapshot, overlap = self.load_snapshot()
        state.seq = snapshot
        # Everything is checked before the state is used: a checksum for each row, the sequence of groups, the end of
        # the log, and the sequences.
        self._replay(snapshot, overlap)
        check_end(self._path, self._log_end(), self.reached, overlap)
        problem = sequence_problem(state)
        if problem:
            raise damaged(self._path, problem)
        # Rows that were newer than the snapshot came before messages of the log: put them in the order of sequences.
        if overlap > snapshot:
            for entity in state.entities.values():
                entity.entries = dict(sorted(entity.entries.items()))
        # From here on every change must fit exactly, and new messages keep their data in memory.
        state.strict = True
        state.replaying = False
        return snapshot

    def _log_end(self) -> int:
        """The last change that the log has or had. The state does not show it: a snapshot may cover the whole log, and
        then only history would be missing."""
        last = self._connection.execute("SELECT last FROM log ORDER BY seq DESC LIMIT 1").get
        if last is None and self._oldest is not None:
            return self._oldest - 1  # Everything up to it was pruned.
        return self._state.seq if last is None else cast(int, last)

    def load_snapshot(self) -> tuple[int, int]:
        """The first half. Returns the change up to which the snapshot has everything, and the one up to which it has
        some."""
        state = self._state
        rows = self._connection.execute("SELECT key, value FROM meta")
        meta = dict(cast("Iterator[tuple[str, object]]", rows))
        snapshot = cast(int, meta.get("snapshot", 0))
        self.domain = str(meta.get("domain", "local"))
        self.identity = str(meta.get("identity", ""))
        self.log_bytes = cast(int, meta.get("log_bytes", 0))
        self._oldest = cast("int | None", meta.get(OLDEST))
        # Data of replayed messages is dropped beyond the memory budget: the log or a row has it (`indexes.put`).
        state.replaying = True
        # Entities first: all other rows refer to them by number.
        self._load_entities()
        self._load_messages()
        self._load_sessions()
        self._load_marks()
        state.positions.update(self._connection.execute("SELECT name, position FROM positions"))
        self._load_batches(cast(int, meta.get(BATCHES_EVICTED, 0)))
        self.reached = cast(int, meta.get(REACHED, 0))
        return snapshot, cast(int, meta.get("overlap", 0))

    def _load_entities(self) -> None:
        state = self._state
        rows = self._connection.execute(
            "SELECT number, name, kind, sequence, dropped, settings, created_ns, updated_ns"
            " FROM entities ORDER BY number"
        )
        for number, name, kind, sequence, dropped, settings, created_ns, updated_ns in rows:
            state.known[number] = name  # History names deleted entities, too.
            state.numbered = max(state.numbered, number)
            if not dropped:
                entity = Entity(number, name, kind, msgspec.json.decode(settings))
                entity.created_ns, entity.updated_ns = created_ns, updated_ns
                state.add_entity(entity, sequence)
                entity.unsaved = False
        for name, sequence in self._connection.execute("SELECT name, sequence FROM retired"):
            # A slice may have a newer entity of this name already: then the name is not retired any more.
            if state.find(name) is None:
                state.retired[name] = sequence

    def _load_messages(self) -> None:
        entity: Entity | None = None
        for key, crc, saved in self._connection.execute("SELECT key, crc, saved FROM messages ORDER BY key"):
            number = key >> SEQUENCE_BITS
            if entity is None or entity.number != number:
                entity = self._state.entities.get(number)
                if entity is None:
                    raise damaged(self._path, f"it has messages of entity {number}, which does not exist")
            # The data has a checksum of its own, which is checked when it is read: recovery does not read the data.
            if zlib.crc32(saved) != crc:
                raise damaged(self._path, f"the row of {entity.name!r} #{key & SEQUENCE_MASK}")
            restore(self._state, entity, key & SEQUENCE_MASK, unpack_entry(saved))

    def _load_sessions(self) -> None:
        for number, session_id, crc, saved in self._connection.execute("SELECT entity, id, crc, saved FROM sessions"):
            entity = self._state.entities.get(number)
            if zlib.crc32(saved) != crc:
                raise damaged(self._path, f"the row of session {session_id!r}")
            if entity is not None:
                restore_session(self._state, entity, unpack_session(saved))

    def _load_marks(self) -> None:
        rows = self._connection.execute("SELECT entity, kind, key, at_ns FROM marks ORDER BY at_ns")
        for number, kind, key, at_ns in rows:
            entity = self._state.entities.get(number)
            if entity is not None and kind == MARK_PROCESSED:
                entity.mark_processed(key, at_ns)
            # A key of an entity that does not exist is left over from one that was deleted since: it has no meaning.
            elif entity is not None:
                entity.mark(key, at_ns)

    def _load_batches(self, evicted_ns: int) -> None:
        batches = []
        if not self._connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'batches'").get:
            return  # A reader of a file with the schema before.
        for age_ns, crc, saved in self._connection.execute("SELECT age_ns, crc, saved FROM batches ORDER BY age_ns"):
            if zlib.crc32(saved) != crc:
                raise damaged(self._path, f"the row of the batch of age {age_ns}")
            batches.append(unpack_batch(saved))
        self._state.batches.restore(batches, evicted_ns)

    def _replay(self, snapshot: int, overlap: int) -> None:
        """Replay the log after the snapshot. Up to `overlap` its changes may be older than the rows of the snapshot."""
        state = self._state
        expected = snapshot + 1
        for seq, changes, size in rows_after(self._connection, self._path, snapshot):
            if seq != expected:
                raise damaged(self._path, f"the log, from change {expected} to {seq - 1}: it is missing")
            self.log_bytes += size
            try:
                for change in changes:
                    state.strict = state.seq >= overlap
                    replay(state, change)
            except StoreDamaged as error:
                raise damaged(self._path, f"change {state.seq}: {error.what}") from error
            state.end_group()
            expected = seq + len(changes)


def rows_after(connection: apsw.Connection, path: str, seq: int) -> Iterator[tuple[int, list[Change], int]]:
    """The groups of the log that end after `seq`: first seq, changes, size. Raises StoreDamaged at a gap."""
    sql = "SELECT seq, last, crc, records FROM log WHERE seq >= ? AND last > ? ORDER BY seq"
    # The change after `seq` may be in the middle of a group, so the search starts at the group that contains it. The
    # primary key answers both queries without a scan.
    begins = connection.execute("SELECT max(seq) FROM log WHERE seq <= ?", (seq + 1,)).get
    expected = 0
    for row in connection.execute(sql, (begins or 0, seq)):
        # A gap between two rows cannot come from a crash: each group is appended in its own transaction, in order.
        if expected and row[0] != expected:
            raise damaged(path, f"the log, changes {expected} to {row[0] - 1}: they are missing")
        expected = row[1] + 1
        yield row[0], changes_of(path, *row), len(row[3])
