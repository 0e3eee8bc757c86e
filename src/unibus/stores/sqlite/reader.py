"""StoreView of a SQLite file: read beside its owner, or without one. `open_reader` of stores/schemes.py opens it."""

import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import cast

from unibus.core.lifecycle.admission import target_of
from unibus.core.lifecycle.events import Event, event_of, is_about, kind_of
from unibus.core.lifecycle.sending import page_of
from unibus.core.lifecycle.state.changes import Change, Declared, Passed, Sent
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.info_of import info_of
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord, freeze
from unibus.stores.seam.replay_index import ReplayIndex
from unibus.stores.seam.store import EntityInfo
from unibus.stores.seam.store_view import PAGE, PAGE_BYTES, PAGE_CHANGES
from unibus.stores.sql.rows import SEQUENCE_BITS, changes_of
from unibus.stores.sql.tables import damaged
from unibus.stores.sql.trace_index import bucket_of, crc_of, find
from unibus.stores.sqlite.look import FollowedState, ReadOnlyFile


class SqliteReader:
    """For one thread."""

    def __init__(self, path: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = path
        self._file = ReadOnlyFile(path)
        self._state = FollowedState(self._file, now_ns)
        self._names = EntityNames(self._file)
        self._file.on_replaced = self._start_again

    def _start_again(self) -> None:
        self._state.start_again()
        self._names = EntityNames(self._file)

    def close(self) -> None:
        self._file.close()

    def moment(self) -> AbstractContextManager[None]:
        return self._file.look()

    # Entities and messages

    def entities(self) -> list[EntityInfo]:
        with self._file.look():
            state = self._state.catch_up()
        return sorted([info_of(entity) for entity in state.visible()], key=lambda info: info.name)

    def list_messages(self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE) -> list[MessageRecord]:
        with self._file.look():
            return [freeze(entry) for entry in page_of(self._state.catch_up(), entity, None, from_sequence, count)]

    def session_states(self, entity: str) -> dict[str, bytes]:
        with self._file.look():
            found = target_of(self._state.catch_up(), entity)
        return {session.id: session.state for session in found.sessions.values() if session.state is not None}

    def read_bodies(self, keys: Sequence[MessageKey]) -> dict[MessageKey, bytes]:
        found: dict[MessageKey, bytes] = {}
        with self._file.look():
            # Inside the look: the place of each message's data is valid for this moment.
            entries = _entries(self._state.with_homes(), keys)
            homes = sorted({entry.home_sequence for entry in entries.values() if not entry.home_entity})
            logged = dict(self._file.changes_at(homes))
            for key, entry in entries.items():
                data = self._data(entry, None if entry.home_entity else logged.get(entry.home_sequence))
                if data is not None:
                    found[key] = data
        return found

    def _data(self, entry: StoredMessage, change: Change | None) -> bytes | None:
        """From the log; or from a row of the snapshot, which it may have got since."""
        if isinstance(change, (Sent, Passed)) and change.who.message_id == entry.who.message_id:
            return change.data
        sql = "SELECT data, data_crc FROM messages WHERE key = ?"
        # The home as it was at the last look, then the row of the message itself: a snapshot may have written it since.
        # With home_entity 0 the first key finds nothing.
        for entity, sequence in ((entry.home_entity, entry.home_sequence), (entry.entity.number, entry.sequence)):
            row = self._file.connection.execute(sql, (entity << SEQUENCE_BITS | sequence,)).fetchone()
            if row is not None:
                if not isinstance(row[0], bytes) or zlib.crc32(row[0]) != row[1]:
                    raise damaged(self._path, f"the data of {entry.entity.name!r} #{entry.sequence}")
                return row[0]
        return None

    # History

    def bounds(self) -> tuple[int, int]:
        with self._file.look():
            return self._file.oldest(), self._file.last()

    def events_after(self, seq: int, limit: int = PAGE, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
        rows: list[Event] = []
        with self._file.look():
            for first, changes in self._file.groups_after(seq):
                for number, change in enumerate(changes, first):
                    if number > seq and (not kinds or kind_of(change) in kinds):
                        rows.append(self._names.event(number, change))
                        if len(rows) >= limit:
                            return rows, self._file.last()
            return rows, self._file.last()

    def events_of(self, message_id: str) -> list[Event]:
        crc = crc_of(message_id)
        sql = "SELECT first, data FROM trace_index WHERE bucket = ? ORDER BY first"
        with self._file.look():
            connection = self._file.connection
            # Blocks of the index end where the last full one ended; the rest of the log is searched. The open block is
            # in the owner's memory.
            indexed = cast(int, connection.execute("SELECT max(last) FROM trace_blocks").get or 0)
            blocks = cast("Iterator[tuple[int, bytes]]", connection.execute(sql, (bucket_of(crc),)))
            found = [seq for first, data in blocks for seq in find(first, data, crc)]
            changes = [each for each in self._file.changes_at(found) if is_about(each[1], message_id)]
            for first, group in self._file.groups_after(indexed):
                for seq, change in enumerate(group, first):
                    if seq > indexed and is_about(change, message_id):
                        changes.append((seq, change))
            return [self._names.event(seq, change) for seq, change in changes]

    def replay_index(self, entity: str, after_sequence: int, since_ns: int) -> ReplayIndex:
        with self._file.look():
            number = target_of(self._state.catch_up(), entity).number
        return ReplayIndex(LookedAtLog(self._file), number, after_sequence, since_ns)


def _entries(state: StoreState, keys: Sequence[MessageKey]) -> dict[MessageKey, StoredMessage]:
    found: dict[MessageKey, StoredMessage] = {}
    for key in keys:
        entity = state.find(key[0])
        entry = None if entity is None else entity.entries.get(key[1])
        if entry is not None:
            found[key] = entry
    return found


class LookedAtLog:
    """The log for a ReplayIndex. Each read is one look, unless the caller is inside `moment`."""

    def __init__(self, file: ReadOnlyFile) -> None:
        self._file = file

    def some_after(self, seq: int) -> list[tuple[int, Change]]:
        with self._file.look():
            rows = self._file.rows_after(seq, PAGE_CHANGES, PAGE_BYTES)
        changes = [each for row in rows for each in enumerate(changes_of(self._file.path, *row), row[0])]
        return [(number, change) for number, change in changes if number > seq]

    def changes_at(self, seqs: list[int]) -> list[tuple[int, Change]]:
        with self._file.look():
            return list(self._file.changes_at(seqs))

    def oldest_seq(self) -> int:
        with self._file.look():
            return self._file.oldest()


class EntityNames:
    """The names of entities by number, read again when an unknown number appears: history has numbers only."""

    def __init__(self, file: ReadOnlyFile) -> None:
        self._file = file
        self._domain = "local"
        self.known: dict[int, str] = {}
        self._learned_to = -1  # The last change that was searched for names.

    def event(self, seq: int, change: Change) -> Event:
        if self._learned_to < 0 or (change.entity and change.entity not in self.known):
            self.learn()
        return event_of(seq, change, self._domain, self.known)

    def know(self, entities: Iterable[int]) -> bool:
        return self._learned_to >= 0 and all(not entity or entity in self.known for entity in entities)

    def learn(self) -> None:
        """Read the entities of the snapshot, also deleted ones, and those that the log has declared since."""
        # The table has the entities of the last snapshot; later ones are declared in the log after it.
        if self._learned_to < 0:
            self._domain = str(self._file.meta("domain") or "local")
            self._learned_to = self._file.covered()
        self.known.update(self._file.connection.execute("SELECT number, name FROM entities"))
        for first, changes in self._file.groups_after(self._learned_to):
            for change in changes:
                if isinstance(change, Declared):
                    self.known.setdefault(change.entity, change.name)
            self._learned_to = first + len(changes) - 1
