"""Recovery from JSON files: load the files that state.json lists, then replay the log after them.

    state.json ──▶ entities/*.json, messages/*.json ──▶ the state at `covers` ──▶ wal/*.jsonl after it ──▶ StoreState

Up to `overlap` a change of the log may be older than the messages of the snapshot, so checks are strict only after it
(engine/snapshot.py). A wrong checksum, a gap or a log that is too short raises StoreDamaged, with file and line.
Nothing of such a store is served, because acknowledged messages could be missing.
"""

import msgspec

from unibus.core.lifecycle.invariants import sequence_problem
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import Applied
from unibus.core.lifecycle.state.entity import KIND_NAMES, Entity
from unibus.core.lifecycle.state.indexes import restore, restore_session
from unibus.core.lifecycle.state.state import MARK_PROCESSED, StoreState
from unibus.errors import StoreDamaged
from unibus.stores.files.disk import Files
from unibus.stores.jsonfile.forms import session_of
from unibus.stores.jsonfile.items import ITEM, ItemRows, Listed, blame, is_as_listed, line_at, read_items
from unibus.stores.jsonfile.log import JsonLog, damaged
from unibus.stores.jsonfile.snapshot import ENTITY_FILES, MARK_NAMES, EntityForm, Snapshots, read_block
from unibus.stores.jsonfile.state import State
from unibus.stores.seam.log_end import check_end

_KINDS = {name: kind for kind, name in KIND_NAMES.items()}
_read_entity = msgspec.json.Decoder(EntityForm).decode


class JsonLoading:
    """One recovery. It changes nothing on disk."""

    def __init__(self, files: Files, folder: str, folder_state: State, snapshots: Snapshots, log: JsonLog) -> None:
        self._files = files
        self._folder = folder
        self._folder_state = folder_state
        self._snapshots = snapshots
        self._log = log

    def run(self, state: StoreState) -> None:
        folder_state = self._folder_state
        self.load_snapshot(state)
        state.seq = folder_state.covers
        self._replay(state)
        problem = sequence_problem(state)
        if problem:
            raise damaged(f"{self._folder}/messages", 0, problem)
        # The log may add a message after newer ones of the snapshot: put them in the order of their sequences.
        if folder_state.overlap > folder_state.covers:
            for entity in state.entities.values():
                entity.entries = dict(sorted(entity.entries.items()))
        state.strict = True
        state.replaying = False
        self._snapshots.covers = folder_state.covers
        self._snapshots.listed = {listed.file: listed for listed in folder_state.files}

    def load_snapshot(self, state: StoreState) -> None:
        """The first half: everything except the log."""
        folder_state = self._folder_state
        state.replaying = True
        self._load_entities(state)
        for listed in folder_state.files:
            if listed.number:
                self._load_messages(state, listed)
        self._load_sessions(state)
        self._load_marks(state)
        state.positions.update(folder_state.positions)
        batches = [Applied(each.at_ns, 0, 0, each.batch_id, each.age_ns, each.results) for each in folder_state.batches]
        state.batches.restore(batches, folder_state.batches_evicted_ns)

    def _path(self, listed: Listed) -> str:
        """The path of a file: its name, or the name before its rename if a crash came in between. Raises
        StoreDamaged."""
        fresh = self._snapshots.fresh_path(listed.file, listed.generation)
        named = f"{self._folder}/{listed.file}"
        # The new name first. The checksum decides, not the name: after a power cut the old file may still have the
        # final name, and state.json lists the new content.
        for path in (fresh, named):
            if self._files.size(path) >= 0 and is_as_listed(self._files, path, listed):
                return path
        raise blame(self._files, named, listed)

    def _load_entities(self, state: StoreState) -> None:
        folder_state = self._folder_state
        # The counters are in state.json, because they change with every message, and the entity files change rarely.
        sequences = {counter.number: counter.last for counter in folder_state.sequences}
        found = []
        for listed in folder_state.files:
            if listed.file in ENTITY_FILES:
                path = self._path(listed)
                found += [_read_entity(block) for _, block in read_items(self._files, path, listed.bytes)]
        # By number, which is the order of creation: a subscription comes after its topic, a dead-letter queue after its
        # entity.
        for form in sorted(found, key=lambda form: form.number):
            entity = Entity(form.number, form.name, _KINDS[form.kind], form.settings)
            entity.created_ns, entity.updated_ns = form.created_ns, form.updated_ns
            state.add_entity(entity, sequences.get(form.number, 0))
            entity.unsaved = False
        for number, name in folder_state.deleted.items():
            state.known[number] = name  # History names deleted entities, too.
            state.numbered = max(state.numbered, number)
        for name, sequence in folder_state.retired.items():
            if state.find(name) is None:
                state.retired[name] = sequence

    def _load_messages(self, state: StoreState, listed: Listed) -> None:
        path = self._path(listed)
        entity = state.entities.get(listed.number)
        if entity is None:
            raise damaged(path, 1, f"it has messages of entity {listed.number}, which does not exist")
        rows = ItemRows(path)
        for offset, block in read_items(self._files, path, listed.bytes):
            try:
                sequence, saved = read_block(block)
            except (msgspec.MsgspecError, KeyError) as error:
                raise damaged(path, line_at(self._files, path, offset), ITEM) from error
            # Only the place of the data is kept; the data itself is read when the message is delivered.
            rows.add(sequence, offset, len(block))
            restore(state, entity, sequence, saved)
        self._snapshots.rows[listed.number] = rows

    def _load_sessions(self, state: StoreState) -> None:
        for number, sessions in self._folder_state.sessions.items():
            entity = state.entities.get(number)
            for form in sessions if entity is not None else ():
                assert entity is not None
                restore_session(state, entity, session_of(form))

    def _load_marks(self, state: StoreState) -> None:
        processed = MARK_NAMES[MARK_PROCESSED]
        for number, kinds in self._folder_state.marks.items():
            entity = state.entities.get(number)
            for kind, keys in kinds.items() if entity is not None else ():
                assert entity is not None
                mark = entity.mark_processed if kind == processed else entity.mark
                # By time: a dedup window removes expired keys from its front.
                for key, at_ns in sorted(keys.items(), key=lambda item: item[1]):
                    mark(key, at_ns)

    def _replay(self, state: StoreState) -> None:
        """Replay the log after the snapshot. Up to `overlap` its changes may be older than those of the snapshot."""
        overlap = self._folder_state.overlap
        for changes in self._log.recover(self._folder_state.covers):
            try:
                for change in changes:
                    state.strict = state.seq >= overlap
                    replay(state, change)
            except StoreDamaged as error:
                raise damaged(f"{self._folder}/wal", 0, f"change {state.seq}: {error.what}") from error
            state.end_group()
        check_end(f"{self._folder}/wal", self._log.reached, self._folder_state.reached, overlap)
