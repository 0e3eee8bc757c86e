# mypyc: compiled
"""What a query reads, once: the messages that exist, in segments, and pages of history.

    Store.list_messages ──▶ segments ──▶ cursors of `messages` and `dead_letters`
    Store.read_bodies   ──▶ pages of data, only if a column needs it
    History             ──▶ pages of events, or an index by message id if a join asks for many

The list of messages is of one moment. The messages are live objects: one that is removed while the query runs is
skipped, and one that changes is shown as it is when its row is read.

A segment has the messages of one entity: all have the same channel and the same status. A query that orders by these
gets the segments in that order, so SQLite does not sort a million rows.
"""

from collections.abc import Collection, Sequence
from typing import Final, Protocol, final

from mypy_extensions import i64

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, StoredMessage
from unibus.errors import EntityNotFound
from unibus.stores.query.guard import Guard
from unibus.stores.seam.store import EntityInfo, Store

PENDING: Final = "pending"
FAILED: Final = "failed"
DELIVERED: Final = "delivered"
COMPLETED: Final = "completed"
"""The kind of the event of a delivered message, and its state."""

LOOKUPS_MAX: Final = 100
HISTORY_KEPT_MAX: Final = 200_000
"""The most events that one query keeps in memory."""

PAGE_EVENTS: Final = 2_000
PAGE_BODIES: Final = 256
PAGE_BODY_BYTES: Final = 4_000_000
EVENT_BYTES: Final = 600
PLACE_BYTES: Final = 150
"""The memory of an event, and of an entry in a dictionary: rough estimates for the guard."""


@final
class RowSegment:
    """The messages of one entity; or, with `pages`, events of delivered messages."""

    def __init__(self, channel: str, status: str, entries: list[StoredMessage]) -> None:
        self.channel = channel
        self.status = status
        self.entries = entries
        self.pages: Pages | None = None

    def key(self, order: Sequence[str]) -> tuple[str, ...]:
        return tuple([self.channel if name == "channel" else self.status for name in order])


class Pages(Protocol):
    """Events page by page; an empty page is the end."""

    def next_page(self) -> list[Event]: ...


@final
class OnePage:
    def __init__(self, events: list[Event]) -> None:
        self._events = events

    def next_page(self) -> list[Event]:
        page, self._events = self._events, []
        return page


@final
class HistoryPages:
    """History after a seq, up to its end at the first call: a reader must not follow new events for ever."""

    def __init__(self, store: Store, guard: Guard, after: int, until: int | None, kinds: Collection[str]) -> None:
        self._store = store
        self._guard = guard
        self._after = after
        self._until = until
        self._asked = False
        self._kinds = kinds

    def next_page(self) -> list[Event]:
        while self._until is None or self._after < self._until:
            if self._guard.is_over():
                return []
            # Each call syncs the store and takes the journal's lock, so a page is neither small nor large.
            rows, safe = self._store.history.events_after(self._after, PAGE_EVENTS, self._kinds)
            if not self._asked:
                self._asked = True
                # The end is fixed by the first page: events that this query itself could cause, or a busy store, must
                # not keep it running.
                self._until = safe if self._until is None else min(safe, self._until)
            # A page that is not full is all there is.
            last = rows[-1].seq if len(rows) >= PAGE_EVENTS else safe
            # No progress: without this, gaps in the seqs could repeat the same page for ever.
            if last <= self._after:
                return []
            self._after = last
            until = self._until
            if until is not None and rows and rows[-1].seq > until:
                rows = [row for row in rows if row.seq <= until]
            if rows:
                return rows
        return []


@final
class TableSource:
    """The store as one query sees it."""

    def __init__(self, store: Store, guard: Guard) -> None:
        self.store = store
        self.guard = guard
        self._all: list[RowSegment] | None = None
        self._of: dict[str, list[RowSegment]] = {}
        self._by_id: dict[str, list[StoredMessage]] | None = None
        self._looked_up = False
        self._targets: set[str] | None = None
        self._by_message: dict[str, list[Event]] | None = None
        self._asked: i64 = 0

    # Messages

    def segments(self, channel: str | None) -> list[RowSegment]:
        """One for each entity, in the order of creation; only those of `channel` if it is given."""
        if channel is None:
            if self._all is None:
                self._all = self.split(self.store.list_messages())
            return self._all
        if self._all is not None:
            return [each for each in self._all if each.channel == channel]
        found = self._of.get(channel)
        if found is None:
            try:
                found = self.split(self.store.list_messages(channel))
            except EntityNotFound:
                found = []
            self._of[channel] = found
        return found

    def split(self, entries: list[StoredMessage]) -> list[RowSegment]:
        self.guard.keep(8 * len(entries))
        found: list[RowSegment] = []
        size: i64 = len(entries)
        start: i64 = 0
        at: i64 = 0
        while at < size:
            entity = entries[at].entity
            # `list_messages` returns entity after entity, so each run of equal entities is one segment. Loops by index
            # are compiled to machine integers.
            while at < size and entries[at].entity is entity:
                at += 1
            status = FAILED if entity.kind == DEAD_LETTERS else PENDING
            found.append(RowSegment(entity.name, status, entries[start:at]))
            start = at
        return found

    def with_id(self, message_id: str) -> list[StoredMessage]:
        """The first call scans; a second call means a join, and builds an index."""
        if self._by_id is None and self._looked_up:
            self._by_id = self._index()
        if self._by_id is not None:
            return self._by_id.get(message_id, [])
        # The first search of a query is mostly the only one, and a scan needs no memory.
        self._looked_up = True
        found: list[StoredMessage] = []
        for segment in self.segments(None):
            for entry in segment.entries:
                if entry.who.message_id == message_id:
                    found.append(entry)
        return found

    def _index(self) -> dict[str, list[StoredMessage]]:
        index: dict[str, list[StoredMessage]] = {}
        for segment in self.segments(None):
            self.guard.keep(PLACE_BYTES * len(segment.entries))
            for entry in segment.entries:
                there = index.get(entry.who.message_id)
                if there is None:
                    index[entry.who.message_id] = [entry]
                else:
                    there.append(entry)
        return index

    def dead_letter_targets(self) -> set[str]:
        """The entities to which dead-lettered messages are forwarded, in lower case."""
        if self._targets is None:
            infos: list[EntityInfo] = self.store.entities().wait()
            named = [str(info.settings.get("forward_dead_letters_to") or "").casefold() for info in infos]
            self._targets = {name for name in named if name}
        return self._targets

    # Delivered messages

    def delivered(self, ids: Collection[str] | None) -> Pages:
        """The delivered messages with these ids, or all of them."""
        if ids is None:
            return HistoryPages(self.store, self.guard, 0, None, (COMPLETED,))
        return OnePage([event for each in sorted(ids) for event in self.events_of(each) if event.kind == COMPLETED])

    def events_of(self, message_id: str) -> list[Event]:
        """Many calls mean a join: then an index is built, unless history is too long for that."""
        self._asked += 1
        # A search in the store's index costs some reads each. From so many on, reading all of history once is cheaper,
        # if it fits into memory.
        if self._asked == LOOKUPS_MAX and self.history_size() <= HISTORY_KEPT_MAX:
            self._by_message = self._events_by_message()
        if self._by_message is not None:
            return self._by_message.get(message_id, [])
        return self.store.history.events_of(message_id)

    def _events_by_message(self) -> dict[str, list[Event]]:
        index: dict[str, list[Event]] = {}
        pages = HistoryPages(self.store, self.guard, 0, None, ())
        while True:
            page = pages.next_page()
            if not page:
                return index
            self.guard.keep(EVENT_BYTES * len(page))
            for event in page:
                if event.message_id is not None:
                    index.setdefault(event.message_id, []).append(event)

    def delivered_by_channel(self, ids: Collection[str] | None) -> list[RowSegment]:
        """The same at once, for a query that orders by channel."""
        by_channel: dict[str, list[Event]] = {}
        pages = self.delivered(ids)
        while True:
            page = pages.next_page()
            if not page:
                break
            self.guard.keep(EVENT_BYTES * len(page))
            for event in page:
                by_channel.setdefault(event.channel, []).append(event)
        return [delivered_segment(channel, OnePage(events)) for channel, events in by_channel.items()]

    def history_size(self) -> int:
        """An upper bound of the number of events."""
        health = self.store.health()
        return max(0, health.last_seq - health.oldest_seq + 1)


def delivered_segment(channel: str, pages: Pages) -> RowSegment:
    segment = RowSegment(channel, DELIVERED, [])
    segment.pages = pages
    return segment


@final
class QueryBodies:
    """The encoded messages of entries, read from disk a page at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[StoredMessage, bytes] = {}

    def of(self, entries: list[StoredMessage], at: i64) -> bytes | None:
        """The data of the entry at this index; reads the next ones along with it. None if it was removed meanwhile."""
        entry = entries[at]
        data = entry.data
        if data is None:
            data = self._read.get(entry)
        if data is None:
            # One page in memory at a time. SQLite reads rows forward, so the next rows are in it.
            self._read = self._store.read_bodies(page_of(entries, at))
            data = self._read.get(entry)
        return data


def page_of(entries: list[StoredMessage], at: i64) -> list[StoredMessage]:
    page: list[StoredMessage] = []
    size: i64 = 0
    for entry in entries[at : at + PAGE_BODIES]:
        size += entry.size
        # At least one message, however large it is.
        if page and size > PAGE_BODY_BYTES:
            break
        page.append(entry)
    return page
