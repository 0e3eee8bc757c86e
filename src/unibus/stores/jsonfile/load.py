"""Recovery from JSON files: the last snapshot, then the log after it. What is damaged is named, and not served."""

import msgspec

from unibus.core.lifecycle.invariants import sequence_problem
from unibus.core.lifecycle.state.apply import replay
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
    """One recovery. Nothing is changed on disk."""

    def __init__(self, files: Files, folder: str, state: State, snapshots: Snapshots, log: JsonLog) -> None:
        self._files = files
        self._folder = folder
        self._state = state
        self._snapshots = snapshots
        self._log = log

    def run(self, book: StoreState) -> None:
        state = self._state
        self.load_snapshot(book)
        book.seq = state.covers
        self._replay(book)
        problem = sequence_problem(book)
        if problem:
            raise damaged(f"{self._folder}/messages", 0, problem)
        if state.overlap > state.covers:
            for entity in book.entities.values():
                entity.entries = dict(sorted(entity.entries.items()))
        book.strict = True
        book.replaying = False
        self._snapshots.covers = state.covers
        self._snapshots.listed = {listed.file: listed for listed in state.files}

    def load_snapshot(self, book: StoreState) -> None:
        """The first half."""
        state = self._state
        book.replaying = True
        self._load_entities(book)
        for listed in state.files:
            if listed.number:
                self._load_messages(book, listed)
        self._load_sessions(book)
        self._load_marks(book)
        book.positions.update(state.positions)

    def _path(self, listed: Listed) -> str:
        """Where the file stands: under its name, or beside it if a crash came before it had that. StoreDamaged."""
        fresh = self._snapshots.fresh_path(listed.file, listed.generation)
        named = f"{self._folder}/{listed.file}"
        for path in (fresh, named):
            if self._files.size(path) >= 0 and is_as_listed(self._files, path, listed):
                return path
        raise blame(self._files, named, listed)

    def _load_entities(self, book: StoreState) -> None:
        state = self._state
        sequences = {counter.number: counter.last for counter in state.sequences}
        found = []
        for listed in state.files:
            if listed.file in ENTITY_FILES:
                path = self._path(listed)
                found += [_read_entity(block) for _, block in read_items(self._files, path, listed.bytes)]
        for form in sorted(found, key=lambda form: form.number):
            entity = Entity(form.number, form.name, _KINDS[form.kind], form.settings)
            entity.created_ns, entity.updated_ns = form.created_ns, form.updated_ns
            book.add_entity(entity, sequences.get(form.number, 0))
            entity.unsaved = False
        for number, name in state.deleted.items():
            book.known[number] = name  # History speaks of those that are deleted, too.
            book.numbered = max(book.numbered, number)
        for name, sequence in state.retired.items():
            if book.find(name) is None:
                book.retired[name] = sequence

    def _load_messages(self, book: StoreState, listed: Listed) -> None:
        path = self._path(listed)
        entity = book.entities.get(listed.number)
        if entity is None:
            raise damaged(path, 1, f"messages of entity {listed.number}, which does not exist")
        rows = ItemRows(path)
        for offset, block in read_items(self._files, path, listed.bytes):
            try:
                sequence, saved = read_block(block)
            except (msgspec.MsgspecError, KeyError) as error:
                raise damaged(path, line_at(self._files, path, offset), ITEM) from error
            rows.add(sequence, offset, len(block))
            restore(book, entity, sequence, saved)
        self._snapshots.rows[listed.number] = rows

    def _load_sessions(self, book: StoreState) -> None:
        for number, sessions in self._state.sessions.items():
            entity = book.entities.get(number)
            for form in sessions if entity is not None else ():
                assert entity is not None
                restore_session(book, entity, session_of(form))

    def _load_marks(self, book: StoreState) -> None:
        processed = MARK_NAMES[MARK_PROCESSED]
        for number, kinds in self._state.marks.items():
            entity = book.entities.get(number)
            for kind, keys in kinds.items() if entity is not None else ():
                assert entity is not None
                mark = entity.mark_processed if kind == processed else entity.mark
                for key, at_ns in sorted(keys.items(), key=lambda item: item[1]):
                    mark(key, at_ns)

    def _replay(self, book: StoreState) -> None:
        """The log after the snapshot. Up to `overlap` its changes may be older than what the snapshot has."""
        overlap = self._state.overlap
        for changes in self._log.recover(self._state.covers):
            try:
                for change in changes:
                    book.strict = book.seq >= overlap
                    replay(book, change)
            except StoreDamaged as error:
                raise damaged(f"{self._folder}/wal", 0, f"change {book.seq}: {error.what}") from error
            book.end_group()
        check_end(f"{self._folder}/wal", self._log.reached, self._state.reached, overlap)
