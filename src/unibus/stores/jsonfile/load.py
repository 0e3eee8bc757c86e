"""Recovery from JSON files (seam/recovery.py): load the files that state.json lists. The log after them is in log.py.

    state.json ──▶ entities/*.json, messages/*.json ──▶ the state at `covers` ──▶ wal/*.jsonl after it ──▶ StoreState

A wrong checksum raises StoreDamaged, with file and line.
"""

import msgspec

from unibus.core.lifecycle.state.changes import Applied
from unibus.core.lifecycle.state.entity import KIND_NAMES, Entity
from unibus.core.lifecycle.state.indexes import restore, restore_mark, restore_session
from unibus.core.lifecycle.state.state import MARK_PROCESSED, StoreState
from unibus.stores.files.disk import Files
from unibus.stores.jsonfile.forms import session_of
from unibus.stores.jsonfile.items import ITEM, ItemRows, Listed, blame, is_as_listed, line_at, read_items
from unibus.stores.jsonfile.log import damaged
from unibus.stores.jsonfile.snapshot import ENTITY_FILES, MARK_NAMES, EntityForm, Snapshots, read_block
from unibus.stores.jsonfile.state import State
from unibus.stores.seam.journal import Covered

_KINDS = {name: kind for kind, name in KIND_NAMES.items()}
_read_entity = msgspec.json.Decoder(EntityForm).decode


class JsonLoading:
    """One recovery. It changes nothing on disk."""

    def __init__(self, files: Files, folder: str, folder_state: State, snapshots: Snapshots) -> None:
        self._files = files
        self._folder = folder
        self._folder_state = folder_state
        self._snapshots = snapshots

    def load_snapshot(self, state: StoreState) -> Covered:
        """Everything except the log."""
        folder_state = self._folder_state
        self._load_entities(state)
        for listed in folder_state.files:
            if listed.number:
                self._load_messages(state, listed)
        self._load_sessions(state)
        self._load_marks(state)
        state.positions.update(folder_state.positions)
        batches = [Applied(each.at_ns, 0, 0, each.batch_id, each.age_ns, each.results) for each in folder_state.batches]
        state.batches.restore(batches, folder_state.batches_evicted_ns)
        # The data of messages is read from these files, and the next snapshot is written beside them.
        self._snapshots.covers = folder_state.covers
        self._snapshots.listed = {listed.file: listed for listed in folder_state.files}
        return Covered(folder_state.covers, folder_state.overlap, folder_state.reached)

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
                # By time: a dedup window removes expired keys from its front.
                for key, at_ns in sorted(keys.items(), key=lambda item: item[1]):
                    restore_mark(entity, kind == processed, key, at_ns)
