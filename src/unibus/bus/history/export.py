"""Writes a whole bus, or some of its queues, as lines of JSON (export_lines.py): a snapshot of one moment.

Not exported: history, positions, dedup keys, batch ids and locks. An in-flight message is exported as active, with its
delivery count.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

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
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES
from unibus.core.lifecycle.state.settings import DEFAULTS
from unibus.core.lifecycle.state.states import STATE_NAMES
from unibus.errors import EntityNotFound
from unibus.stores.schemes import has_reader, open_reader
from unibus.stores.seam.message_record import MessageRecord, pages_of
from unibus.stores.seam.store import EntityInfo, Store
from unibus.stores.seam.store_view import CopiedView, StoreView

PAGE: Final = 500
_SUBSCRIPTION_MARK: Final = "/Subscriptions/"

Progress = Callable[[int, int], None]


def source_of(store: Store) -> StoreView:
    """A source for a store that is in use. For one thread; the caller closes it.

    A file is read by a second, read-only connection, with the clock of the store: deadlines that have passed by that
    clock were already applied by the owner. A store without a reader is copied in memory.
    """
    if not has_reader(store.url):
        return CopiedView(store)
    return open_reader(store.url, store.now_ns)


class Exporting:
    """One export. The counts are the lines written so far."""

    def __init__(self, reader: StoreView, write: Callable[[bytes], object], progress: Progress) -> None:
        self.entities = 0
        self.messages = 0
        self.sessions = 0
        self._reader = reader
        self._write = write
        self._progress = progress
        self._read = 0
        self._digest = hashlib.sha256()

    def run(self, names: Collection[str] = ()) -> None:
        """Export all entities, or the named ones with what belongs to them. EntityNotFound for an unknown name."""
        # All reads see one snapshot, and the owner of the store is not blocked meanwhile.
        with self._reader.moment():
            listed = self._reader.entities()
            infos = chosen(listed, names)
            kept = {info.name for info in infos}
            sources = [info for info in listed if _owner(info.name) in kept]
            total = sum(_count(info) for info in sources)
            states = [
                SessionLine(info.name, session_id, text_of(state))
                for info in infos
                if info.settings["requires_session"]
                for session_id, state in sorted(self._reader.session_states(info.name).items())
            ]
            at = datetime.now(UTC).isoformat(timespec="seconds")
            # Counts at the start are for a progress display only. The last line has the counts that an import verifies.
            self._line(Header(VERSION, at, len(infos), total, len(states)))
            for info in infos:
                self._line(_entity_line(info))
            for info in sources:
                for line in self._message_lines(info, total):
                    self._line(line)
            for state in states:
                self._line(state)
        # The last line is written only after everything before it: a truncated file is recognised by its absence.
        end = ExportEnd(True, self.entities, self.messages, self.sessions, self._digest.hexdigest())
        self._write(encode_line(end) + b"\n")

    def _message_lines(self, info: EntityInfo, total: int) -> Iterator[MessageLine]:
        # A page at a time: the whole backlog need not fit into memory.
        for page in pages_of(partial(self._reader.list_messages, info.name), info.last_sequence):
            found = self._reader.read_bodies([entry.key for entry in page])
            for entry in page:
                data = found.get(entry.key)
                if data is not None:  # Else settled since: the source has no snapshot.
                    yield _message_line(entry, data)
            self._read += len(page)
            self._progress(self._read, total)

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


def _count(info: EntityInfo) -> int:
    return info.active + info.locked + info.scheduled + info.deferred


def _owner(name: str) -> str:
    return name[: -len(sub_queue(""))] if is_sub_queue(name) else name


def _entity_line(info: EntityInfo) -> EntityLine:
    settings = {name: value for name, value in info.settings.items() if DEFAULTS.get(name) != value}
    return EntityLine(info.name, info.kind, settings)


def _message_line(entry: MessageRecord, data: bytes) -> MessageLine:
    return MessageLine(
        message=entry.entity,
        state=STATE_NAMES[entry.state],
        sequence=entry.sequence,
        priority=entry.priority,
        envelope=msgspec.Raw(encode_json(decode(data))),
        delivery_count=entry.delivery_count,
        expires_ns=entry.expires_ns,
        visible_ns=entry.scheduled_ns,
        enqueued_ns=entry.enqueued_ns,
        first_delivered_ns=entry.first_delivered_ns,
        overlay=overlay_text(entry.overlay),
    )
