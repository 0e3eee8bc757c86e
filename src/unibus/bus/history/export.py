"""Writes a whole bus, or some of its queues, as lines of JSON (export_lines.py): a snapshot of one moment.

Not exported: history, positions, dedup keys, batch ids and locks. An in-flight message is exported as active, with its
delivery count.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from unibus.bus.history.export_lines import (
    VERSION,
    EntityLine,
    ExportEnd,
    Header,
    Line,
    MessageLine,
    SessionLine,
    encode_line,
    overlay_text,
    text_of,
)
from unibus.core.codec.codec import decode, encode_json
from unibus.core.flow.deadletter import is_sub_queue, sub_queue
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES, StoredMessage
from unibus.core.lifecycle.state.settings import DEFAULTS
from unibus.core.lifecycle.state.states import GONE, SCHEDULED, STATE_NAMES
from unibus.errors import EntityNotFound
from unibus.stores.schemes import has_reader, open_reader
from unibus.stores.seam.store import EntityInfo, Store

PAGE: Final = 500
_SUBSCRIPTION_MARK: Final = "/Subscriptions/"

Progress = Callable[[int, int], None]


class ExportSource(Protocol):
    """The source of an export. Inside of `moment` all reads see the same snapshot."""

    def moment(self) -> AbstractContextManager[None]: ...

    def entities(self) -> list[EntityInfo]: ...

    def list_messages(self) -> list[StoredMessage]: ...

    def read_bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]: ...

    def session_states(self, entity: str) -> dict[str, bytes]: ...

    def close(self) -> None: ...


def source_of(store: Store) -> ExportSource:
    """A source for a store that is in use. For one thread; the caller closes it.

    A file is read by a second, read-only connection, with the clock of the store: deadlines that have passed by that
    clock were already applied by the owner. A store without a reader is copied in memory.
    """
    if not has_reader(store.url):
        return store.copied()
    return open_reader(store.url, store.now_ns)


class Exporting:
    """One export. The counts are the lines written so far."""

    def __init__(self, reader: ExportSource, write: Callable[[bytes], object], progress: Progress) -> None:
        self.entities = 0
        self.messages = 0
        self.sessions = 0
        self._reader = reader
        self._write = write
        self._progress = progress
        self._digest = hashlib.sha256()

    def run(self, names: Collection[str] = ()) -> None:
        """Export all entities, or the named ones with what belongs to them. EntityNotFound for an unknown name."""
        # All reads see one snapshot, and the owner of the store is not blocked meanwhile.
        with self._reader.moment():
            infos = chosen(self._reader.entities(), names)
            kept = {info.name for info in infos}
            entries = [entry for entry in self._reader.list_messages() if _owner(entry.entity.name) in kept]
            states = [
                SessionLine(info.name, session_id, text_of(state))
                for info in infos
                if info.settings["requires_session"]
                for session_id, state in sorted(self._reader.session_states(info.name).items())
            ]
            at = datetime.now(UTC).isoformat(timespec="seconds")
            # Counts at the start are for a progress display only. The last line has the counts that an import verifies.
            self._line(Header(VERSION, at, len(infos), len(entries), len(states)))
            for info in infos:
                self._line(_entity_line(info))
            for line in self._message_lines(entries):
                self._line(line)
            for state in states:
                self._line(state)
        # The last line is written only after everything before it: a truncated file is recognised by its absence.
        end = ExportEnd(True, self.entities, self.messages, self.sessions, self._digest.hexdigest())
        self._write(encode_line(end) + b"\n")

    def _message_lines(self, entries: list[StoredMessage]) -> Iterator[MessageLine]:
        for start in range(0, len(entries), PAGE):
            # A page of bodies at a time: the whole backlog need not fit into memory.
            page = entries[start : start + PAGE]
            found = self._reader.read_bodies(page)
            for entry in page:
                data = found.get(entry)
                if data is not None and entry.state != GONE:  # Else settled after the snapshot was taken.
                    yield _message_line(entry, data)
            self._progress(start + len(page), len(entries))

    def _line(self, line: Header | Line) -> None:
        raw = encode_line(line) + b"\n"
        self._digest.update(raw)
        self._write(raw)
        if isinstance(line, EntityLine):
            self.entities += 1
        elif isinstance(line, MessageLine):
            self.messages += 1
        elif isinstance(line, SessionLine):
            self.sessions += 1


def chosen(infos: list[EntityInfo], names: Collection[str]) -> list[EntityInfo]:
    """The entities to export: queues, then topics, then subscriptions, so that an import can create them in order.

    A topic includes its subscriptions, and a subscription includes its topic.
    """
    order = list(KIND_NAMES.values())
    dead = KIND_NAMES[DEAD_LETTERS]
    known = {info.name.casefold(): info for info in infos if info.kind != dead}
    wanted: set[str] = set()
    for name in names:
        found = known.get(name.casefold())
        if found is None:
            raise EntityNotFound(f"there is no queue, topic or subscription {name!r}", "`unibus entities` lists them")
        wanted.add(found.name)
        wanted.add(found.name.partition(_SUBSCRIPTION_MARK)[0])
        wanted.update(info.name for info in infos if info.name.startswith(found.name + _SUBSCRIPTION_MARK))
    kept = [info for info in known.values() if not names or info.name in wanted]
    return sorted(kept, key=lambda info: (order.index(info.kind), info.name))


def _owner(name: str) -> str:
    return name[: -len(sub_queue(""))] if is_sub_queue(name) else name


def _entity_line(info: EntityInfo) -> EntityLine:
    settings = {name: value for name, value in info.settings.items() if DEFAULTS.get(name) != value}
    return EntityLine(info.name, info.kind, settings)


def _message_line(entry: StoredMessage, data: bytes) -> MessageLine:
    return MessageLine(
        message=entry.entity.name,
        state=STATE_NAMES[entry.state],
        sequence=int(entry.sequence),
        priority=int(entry.priority),
        envelope=msgspec.Raw(encode_json(decode(data))),
        delivery_count=int(entry.delivery_count),
        expires_ns=int(entry.expires_ns),
        visible_ns=int(entry.due_ns) if entry.state == SCHEDULED else 0,
        enqueued_ns=int(entry.enqueued_ns),
        first_delivered_ns=int(entry.first_delivered_ns),
        overlay=overlay_text(entry.overlay),
    )
