"""The snapshot in JSON files: slices are collected in one file, and the last slice writes a new generation of files.

    1. slices    messages are appended to `snapshot.part` and can be read from it; they are not part of the store yet
    2. write     the messages of old files and slices go to new files `NAME.GENERATION.new`, which are synced
    3. switch    `state.json` is replaced: it lists the new files with sizes and checksums
    4. rename    the new files get their names, obsolete ones are deleted

What a crash leaves:
    during 1, 2    the old snapshot is valid; the next opening deletes `snapshot.part` and the new files
    after 3        the new snapshot is valid; recovery finds each file under either name, and the next opening renames

Only files of entities that have changed are written again. An unchanged message is copied as it is, with its checksum.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from unibus.core.lifecycle.state.changes import SavedEntry
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES, NAMESPACE, QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT
from unibus.core.lifecycle.state.states import STATE_NAMES
from unibus.errors import StoreDamaged
from unibus.stores.files.disk import Files, append_whole, has_no_space
from unibus.stores.jsonfile.forms import (
    NO_DOCUMENT,
    MessageRefForm,
    data_of,
    message_form,
    overlay_form,
    overlay_of,
    session_form,
    who_form,
    who_of,
)
from unibus.stores.jsonfile.items import ITEM, ItemRows, ItemWindow, Listed, block_of, is_whole, line_at, write_items
from unibus.stores.jsonfile.log import damaged
from unibus.stores.jsonfile.names import stem_of
from unibus.stores.jsonfile.state import BatchForm, Counter, State, read_state, write_state
from unibus.stores.seam.journal import EntityRow, SnapshotSlice, Summary

PART: Final = "snapshot.part"
MARK_NAMES: Final = {MARK_SENT: "sent", MARK_PROCESSED: "processed"}
_STATES: Final = {name: state for state, name in STATE_NAMES.items()}
NAMESPACE_FILE: Final = "entities/namespace.json"
"""Written only if the namespace has settings: other stores have the files of earlier versions."""

ENTITY_FILES: Final = {
    "entities/queues.json": (QUEUE, DEAD_LETTERS),
    "entities/topics.json": (TOPIC,),
    "entities/subscriptions.json": (SUBSCRIPTION,),
    NAMESPACE_FILE: (NAMESPACE,),
}
_encode: Final = msgspec.json.Encoder().encode


class EntityForm(msgspec.Struct):
    """An EntityRow with names; its sequence is in state.json. Files of earlier versions have no times."""

    number: int
    name: str
    kind: str
    settings: dict[str, str | int | float | bool | None]
    created_ns: int = 0
    updated_ns: int = 0


class MessageForm(msgspec.Struct, omit_defaults=True):
    """A SavedEntry with names, and its message."""

    sequence: int
    state: str
    priority: int
    delivery_count: int
    enqueued_ns: int
    who: MessageRefForm
    expires_ns: int = 0
    due_ns: int = 0
    first_delivered_ns: int = 0
    token: bytes | None = None
    was_deferred: bool = False
    delayed: bool = False
    hops: int = 0
    consumer: str = ""
    ends_with_process: bool = False
    overlay: dict[str, object] | None = None
    overlay_packed: bytes = b""
    message: msgspec.Raw = NO_DOCUMENT
    data: bytes = b""


_read_message: Final = msgspec.json.Decoder(MessageForm).decode


def message_block(sequence: int, saved: SavedEntry, data: bytes) -> bytes:
    overlay, packed = overlay_form(saved.overlay)
    document, raw = message_form(data)
    return block_of(
        _encode(
            MessageForm(
                sequence=sequence,
                state=STATE_NAMES[saved.state],
                priority=saved.priority,
                delivery_count=saved.delivery_count,
                enqueued_ns=saved.enqueued_ns,
                who=who_form(saved.who),
                expires_ns=saved.expires_ns,
                due_ns=saved.due_ns,
                first_delivered_ns=saved.first_delivered_ns,
                token=saved.token,
                was_deferred=saved.was_deferred,
                delayed=saved.delayed,
                hops=saved.hops,
                consumer=saved.consumer,
                ends_with_process=saved.ends_with_process,
                overlay=overlay,
                overlay_packed=packed,
                message=document,
                data=raw,
            )
        )
    )


def read_block(block: bytes) -> tuple[int, SavedEntry]:
    """The sequence, and everything except the data."""
    form = _read_message(block)
    saved = SavedEntry(
        who=who_of(form.who),
        priority=form.priority,
        state=_STATES[form.state],
        delivery_count=form.delivery_count,
        expires_ns=form.expires_ns,
        due_ns=form.due_ns,
        enqueued_ns=form.enqueued_ns,
        first_delivered_ns=form.first_delivered_ns,
        token=form.token,
        was_deferred=form.was_deferred,
        delayed=form.delayed,
        hops=form.hops,
        overlay=overlay_of(form.overlay, form.overlay_packed),
        consumer=form.consumer,
        ends_with_process=form.ends_with_process,
    )
    return form.sequence, saved


class Snapshots:
    """The files of the last snapshot, and the slices of the next one."""

    def __init__(self, files: Files, folder: str) -> None:
        self.covers = 0
        self.generation = 0
        self.listed: dict[str, Listed] = {}
        self.rows: dict[int, ItemRows] = {}  # By the entity's number.
        self._files = files
        self._folder = folder
        self._declared: dict[
            str, list[tuple[int, bytes]]
        ] = {}  # The items of entity files, if this process wrote them.
        self._handle = -1
        self._part_bytes = 0
        # By the entity's number: offset and length of messages in the slices, and which messages are removed.
        self._taken: dict[int, dict[int, tuple[int, int]]] = {}
        self._gone: dict[int, set[int]] = {}
        self._entities: dict[
            int, EntityRow
        ] = {}  # Also one that came and went since the first piece may have messages.

    def is_running(self) -> bool:
        return self._handle >= 0

    # Slices

    def take(self, part: SnapshotSlice) -> None:
        if not self.is_running():
            self._handle = self._files.create(self._path(PART))
            self._part_bytes = 0
        # The write comes before any change in memory: a slice that finds no space leaves both as they were, and is
        # taken again as a whole.
        blocks = [message_block(sequence, saved, data) for _, sequence, saved, data in part.entries]
        if blocks:
            append_whole(self._files, self._handle, b"".join(blocks), self._part_bytes)
        self._entities.update((row.number, row) for row in part.entities)
        for (number, sequence, _, _), block in zip(part.entries, blocks, strict=True):
            self._taken.setdefault(number, {})[sequence] = (self._part_bytes, len(block))
            self._part_bytes += len(block)
        for number, sequence in part.gone:
            self._gone.setdefault(number, set()).add(sequence)

    def body(self, number: int, sequence: int) -> bytes:
        """The data of a message in the last snapshot or in a slice."""
        path, offset, length = self._locate(number, sequence)
        block = self._files.read(path, offset, length)
        if not is_whole(block):
            raise damaged(path, line_at(self._files, path, offset), ITEM)
        form = _read_message(block)
        return data_of(form.message, form.data)

    def _locate(self, number: int, sequence: int) -> tuple[str, int, int]:
        """In the slices, or in a file of the last snapshot."""
        # A slice is newer than the file of the last snapshot, so it is searched first.
        path, found = self._path(PART), self._taken.get(number, {}).get(sequence)
        rows = self.rows.get(number)
        if found is None and rows is not None:
            path, found = rows.path, rows.find(sequence)
        if found is None:
            raise damaged(self._path("messages"), 0, f"#{sequence} of entity {number} is not there")
        return path, *found

    def _blocks(self, number: int, keys: list[int]) -> Iterator[tuple[int, bytes]]:
        """The stored blocks, copied as they are. A block with a wrong checksum raises StoreDamaged: it is not
        copied."""
        windows: dict[str, ItemWindow] = {}
        for key in keys:
            path, offset, length = self._locate(number, key)
            if path not in windows:
                windows[path] = ItemWindow(self._files, path)
            yield key, windows[path].block(offset, length)

    # The last slice

    def finish(self, summary: Summary, written: str) -> None:
        """Write the new files and switch to them. After an OSError of no space nothing has changed: it can be
        repeated."""
        # From the file: `reached` and the marks of earlier snapshots are merged into the new one.
        before = read_state(self._files, self._folder)
        try:
            state, rows = self._switch(before, summary, written)
        except OSError as error:
            if has_no_space(error):
                self._declared = {}  # `tidy` deletes the files that it describes.
                self.tidy(before)
            raise
        # The switch has taken place. From here on only memory and the names of files follow.
        self.listed, self.rows = {listed.file: listed for listed in state.files}, rows
        self.covers, self.generation = summary.seq, state.generation
        self._clear()
        self.tidy(state)

    def _switch(self, before: State, summary: Summary, written: str) -> tuple[State, dict[int, ItemRows]]:
        files = self._files
        generation = before.generation + 1
        self._entities.update((row.number, row) for row in summary.entities)
        summary.entities = sorted(self._entities.values(), key=lambda row: row.number)
        # Under names that no state.json lists: until the switch the old files are untouched, and a crash leaves the old
        # snapshot.
        fresh = self._write_entities(summary, generation)
        rows = self._write_messages(summary, generation, fresh)
        # Content and names of the new files are on disk before state.json lists them.
        for folder in ("entities", "messages"):
            files.sync_folder(self._path(folder))
        state = merged(before, summary)
        state.written = written
        state.generation = generation
        state.files = list(fresh.values())
        state.obsolete = [name for name in self.listed if name not in fresh]
        write_state(files, self._folder, state)
        return state, rows

    def _write_entities(self, summary: Summary, generation: int) -> dict[str, Listed]:
        fresh = {}
        for name, kinds in ENTITY_FILES.items():
            items = [
                (row.number, block_of(_encode(_entity_form(row)))) for row in summary.entities if row.kind in kinds
            ]
            if name == NAMESPACE_FILE and not items:
                continue
            # `_declared` is empty after an opening: the first snapshot of a process writes these files once more.
            if name in self.listed and self._declared.get(name) == items:
                fresh[name] = self.listed[name]
                continue
            head: dict[str, object] = {"unibus": "entities", "generation": generation}
            _, fresh[name] = self._write(name, generation, head, iter(items))
            self._declared[name] = items
        return fresh

    def _write_messages(self, summary: Summary, generation: int, fresh: dict[str, Listed]) -> dict[int, ItemRows]:
        """Write the files of changed entities; the others stay valid. `fresh` gets all of them."""
        kept = {listed.number: listed for listed in self.listed.values() if listed.number}
        # An entity in neither has the same messages as in its file, so the file stays valid, and is not read.
        changed = {*self._taken, *self._gone}
        entities = {row.number: (row.name, row.kind) for row in summary.entities}
        rows = {number: found for number, found in self.rows.items() if number not in changed}
        fresh.update((listed.file, listed) for number, listed in kept.items() if number not in changed)
        names = {name.casefold() for name in fresh}
        for number in sorted(changed):
            keys = self._keys(number)
            # No file for an entity without messages: its old one becomes `obsolete`.
            if not keys:
                continue
            if number not in entities:
                raise StoreDamaged(
                    f"it has messages of entity {number}, which does not exist", "this is a defect of unibus"
                )
            name, kind = entities[number]
            file = kept[number].file if number in kept else f"messages/{stem_of(name, kind)}.json"
            # Compared without case, for file systems that ignore it: the second file would replace the first.
            if file.casefold() in names:
                file = f"{file.removesuffix('.json')}~{number}.json"
            names.add(file.casefold())
            head = {"unibus": "messages", "entity": name, "number": number, "generation": generation}
            rows[number], listed = self._write(file, generation, head, self._blocks(number, keys))
            listed.number = number
            fresh[file] = listed
        return rows

    def _keys(self, number: int) -> list[int]:
        """The sequences of the messages in the new file."""
        old = self.rows.get(number)
        keys = set(() if old is None else old.keys)
        keys.update(self._taken.get(number, ()))
        # Last: a message that was in a slice and was removed afterwards is in both.
        keys.difference_update(self._gone.get(number, ()))
        return sorted(keys)

    def _write(
        self, name: str, generation: int, head: dict[str, object], items: Iterator[tuple[int, bytes]]
    ) -> tuple[ItemRows, Listed]:
        rows, listed = write_items(self._files, self.fresh_path(name, generation), head, items)
        listed.file, listed.generation = name, generation
        return rows, listed

    def fresh_path(self, name: str, generation: int) -> str:
        """The path of a new file before its rename. The generation makes it unique: a power cut may undo a rename, and
        then the old path must not name a newer file."""
        return self._path(f"{name}.{generation}.new")

    def tidy(self, state: State) -> None:
        """Rename the new files of `state`, and delete obsolete ones. `state` is on disk, so a crash at any point is
        harmless: the next opening does the rest. Idempotent."""
        wanted = {listed.file: listed.generation for listed in state.files}
        for folder in ("entities", "messages"):
            for name in self._files.list(self._path(folder)):
                file, _, generation = f"{folder}/{name}".removesuffix(".new").rpartition(".")
                if not name.endswith(".new") or not generation.isdigit():
                    continue
                if wanted.get(file) == int(generation):
                    # Not synced. If a power cut undoes it, recovery finds the file under its other name.
                    self._files.rename(self._path(f"{folder}/{name}"), self._path(file))
                else:
                    self._files.remove(self._path(f"{folder}/{name}"))
        for listed in state.files:
            if listed.number in self.rows:
                self.rows[listed.number].path = self._path(listed.file)
        # Only after state.json no longer lists them.
        for file in state.obsolete:
            if self._files.size(self._path(file)) >= 0:
                self._files.remove(self._path(file))

    def _clear(self) -> None:
        self._taken, self._gone, self._entities = {}, {}, {}
        self.close()
        self._files.remove(self._path(PART))

    def abandon(self) -> None:
        """At close: delete the slices of an unfinished snapshot. If that fails, the next opening does it."""
        if self.is_running():
            self.close()
            with suppress(OSError):
                self._files.remove(self._path(PART))

    def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            self._files.close(handle)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


def _entity_form(row: EntityRow) -> EntityForm:
    return EntityForm(row.number, row.name, KIND_NAMES[row.kind], row.settings, row.created_ns, row.updated_ns)


def merged(before: State, summary: Summary) -> State:
    """The state of the last snapshot, with what is new since."""
    dropped = dict(summary.dropped)
    sessions = dict(before.sessions)
    sessions.update((number, [session_form(each) for each in found]) for number, found in summary.sessions.items())
    return State(
        "store",
        before.format,
        before.domain,
        identity=before.identity,
        covers=summary.seq,
        overlap=summary.overlap,
        # The log is synced up to `overlap` before the snapshot is finished, so the number is true.
        reached=max(before.reached, summary.overlap),
        sequences=[Counter(row.number, row.name, row.sequence) for row in summary.entities],
        retired=summary.retired,
        deleted=before.deleted | dropped,
        positions=summary.positions,
        batches=_merged_batches(before, summary),
        batches_evicted_ns=summary.batches_evicted_ns,
        sessions={number: found for number, found in sessions.items() if found and number not in dropped},
        marks=_merged_marks(before, summary, dropped),
    )


def _merged_batches(before: State, summary: Summary) -> list[BatchForm]:
    # By age: a batch that the snapshot before has too is not taken a second time.
    last_ns = before.batches[-1].age_ns if before.batches else 0
    new = [
        BatchForm(each.batch_id, each.at_ns, each.age_ns, each.results)
        for each in summary.batches
        if each.age_ns > last_ns
    ]
    return [each for each in [*before.batches, *new] if each.age_ns > summary.batches_evicted_ns]


def _merged_marks(before: State, summary: Summary, dropped: dict[int, str]) -> dict[int, dict[str, dict[str, int]]]:
    marks = {number: {kind: dict(keys) for kind, keys in kinds.items()} for number, kinds in before.marks.items()}
    for number, kind, key, at_ns in summary.marks:
        marks.setdefault(number, {}).setdefault(MARK_NAMES[kind], {})[key] = at_ns
    for number, kind, over_ns in summary.marks_over:
        keys = marks.get(number, {}).get(MARK_NAMES[kind])
        if keys:
            marks[number][MARK_NAMES[kind]] = {key: at_ns for key, at_ns in keys.items() if at_ns >= over_ns}
    return {number: kinds for number, kinds in marks.items() if number not in dropped and any(kinds.values())}
