# mypyc: compiled
"""What a query reads, once: the messages that exist, in segments, and pages of history.

    StoreView.list_messages ──▶ segments ──▶ pages of records ──▶ cursors of `messages` and `dead_letters`
    StoreView.read_bodies   ──▶ pages of data, only if a column needs it
    StoreView.events_after  ──▶ pages of events, or an index by message id if a join asks for many

A segment has the messages of one entity: all have the same channel and the same status. A query that orders by these
gets the segments in that order, so SQLite does not sort a million rows. Messages are read page by page, up to the last
one that the entity had when the query began: a page is in memory while SQLite reads its rows, and the store works
between two pages. The price: the pages of an open store are not of one moment.
"""

from collections.abc import Collection, Sequence
from typing import Final, Protocol, final

from mypy_extensions import i64

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES
from unibus.errors import EntityNotFound
from unibus.stores.query.guard import Guard
from unibus.stores.seam.info_of import EntityInfo
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord
from unibus.stores.seam.store_view import StoreView

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
RECORD_BYTES: Final = 500
PLACE_BYTES: Final = 250
"""The memory of an event, of a record, and of an entry in a dictionary: rough estimates for the guard."""

RECORDS_KEPT_MAX: Final = 20_000
"""The most records that one query keeps for a second reading. Only entities whose messages fit on one page are kept."""

SEQUENCE_BITS: Final = 44
"""A row of `messages` is identified by (number of its segment, sequence): 2**19 entities, 2**44 sequences."""


@final
class RowSegment:
    """The messages of one entity; or, with `pages`, events of delivered messages.

    `number` identifies the entity within the query. `entries` are all of its rows if `is_read`; else they are read page
    by page, up to the sequence `until`.
    """

    def __init__(self, channel: str, status: str, number: int) -> None:
        self.channel = channel
        self.status = status
        self.number: i64 = number
        self.until: i64 = 0
        self.is_read = True
        self.entries: list[MessageRecord] = []
        self.pages: Pages | None = None

    def key(self, order: Sequence[str]) -> tuple[str, ...]:
        return tuple([self.channel if name == "channel" else self.status for name in order])

    def holding(self, entries: list[MessageRecord]) -> "RowSegment":
        """Another segment with some of its messages only."""
        part = RowSegment(self.channel, self.status, self.number)
        part.entries = entries
        return part


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

    def __init__(self, view: StoreView, guard: Guard, after: int, until: int | None, kinds: Collection[str]) -> None:
        self._view = view
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
            rows, safe = self._view.events_after(self._after, PAGE_EVENTS, self._kinds)
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

    def __init__(self, view: StoreView, guard: Guard) -> None:
        self.view = view
        self.guard = guard
        self._entities: list[EntityInfo] | None = None
        self._segments: list[RowSegment] = []
        self._kept: i64 = 0
        self._by_id: dict[str, list[tuple[RowSegment, int]]] | None = None
        self._looked_up = False
        self._targets: set[str] | None = None
        self._by_message: dict[str, list[Event]] | None = None
        self._asked: i64 = 0

    # Messages

    def segments(self, channel: str | None) -> list[RowSegment]:
        """One for each entity with messages, by name; only that of `channel` if it is given."""
        self.entities()
        if channel is None:
            return self._segments
        return [each for each in self._segments if each.channel == channel]

    def entities(self) -> list[EntityInfo]:
        if self._entities is None:
            self._entities = self.view.entities()
            for info in self._entities:
                if info.active or info.locked or info.scheduled or info.deferred:
                    status = FAILED if info.kind == KIND_NAMES[DEAD_LETTERS] else PENDING
                    segment = RowSegment(info.name, status, len(self._segments) + 1)
                    segment.until = info.last_sequence
                    segment.is_read = False
                    self._segments.append(segment)
        return self._entities

    def page(self, segment: RowSegment, from_sequence: i64) -> list[MessageRecord]:
        """The next messages of a segment; none at its end."""
        if segment.is_read:
            return segment.entries if from_sequence == 0 else []
        if from_sequence > segment.until or self.guard.is_over():
            return []
        try:
            page = self.view.list_messages(segment.channel, from_sequence, LIST_PAGE)
        except EntityNotFound:
            return []  # Deleted since.
        is_full = len(page) >= LIST_PAGE
        if page and page[-1].sequence > segment.until:
            page = [each for each in page if each.sequence <= segment.until]
        # A cursor reads a small entity again for every outer row of a join: then it is read once.
        if from_sequence == 0 and not is_full and self._kept + len(page) <= RECORDS_KEPT_MAX:
            self.guard.keep(RECORD_BYTES * len(page))
            self._kept += len(page)
            segment.entries = page
            segment.is_read = True
        return page

    def with_id(self, message_id: str) -> list[RowSegment]:
        """The first call scans; a second call means a join, and builds an index."""
        if self._by_id is None and self._looked_up:
            self._by_id = self._index()
        if self._by_id is not None:
            return self._found_by_index(message_id, self._by_id)
        # The first search of a query is mostly the only one, and a scan needs no memory.
        self._looked_up = True
        found: list[RowSegment] = []
        for segment in self.segments(None):
            rows = SegmentRows(self)
            rows.open(segment)
            while True:
                entry = rows.entry()
                if entry is None:
                    break
                if entry.who.message_id == message_id:
                    found.append(segment.holding([entry]))
                rows.at += 1
        return found

    def _index(self) -> dict[str, list[tuple[RowSegment, int]]]:
        index: dict[str, list[tuple[RowSegment, int]]] = {}
        for segment in self.segments(None):
            rows = SegmentRows(self)
            rows.open(segment)
            while True:
                entry = rows.entry()
                if entry is None:
                    break
                self.guard.keep(PLACE_BYTES)
                index.setdefault(entry.who.message_id, []).append((segment, entry.sequence))
                rows.at += 1
        return index

    def _found_by_index(self, message_id: str, index: dict[str, list[tuple[RowSegment, int]]]) -> list[RowSegment]:
        found: list[RowSegment] = []
        for segment, sequence in index.get(message_id, []):
            page = segment.entries if segment.is_read else self.view.list_messages(segment.channel, sequence, 1)
            entries = [each for each in page if each.sequence == sequence]
            if entries:
                found.append(segment.holding(entries))
        return found

    def dead_letter_targets(self) -> set[str]:
        """The entities to which dead-lettered messages are forwarded, in lower case."""
        if self._targets is None:
            infos = self.entities()
            named = [str(info.settings.get("forward_dead_letters_to") or "").casefold() for info in infos]
            self._targets = {name for name in named if name}
        return self._targets

    # Delivered messages

    def delivered(self, ids: Collection[str] | None) -> Pages:
        """The delivered messages with these ids, or all of them."""
        if ids is None:
            return HistoryPages(self.view, self.guard, 0, None, (COMPLETED,))
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
        return self.view.events_of(message_id)

    def _events_by_message(self) -> dict[str, list[Event]]:
        index: dict[str, list[Event]] = {}
        pages = HistoryPages(self.view, self.guard, 0, None, ())
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
        oldest, last = self.view.bounds()
        return max(0, last - oldest + 1)


def delivered_segment(channel: str, pages: Pages) -> RowSegment:
    segment = RowSegment(channel, DELIVERED, 0)
    segment.pages = pages
    return segment


@final
class SegmentRows:
    """Walks over the messages of a segment. `entries` is the page that `at` is in."""

    def __init__(self, source: TableSource) -> None:
        self._source = source
        self._segment: RowSegment | None = None
        self.entries: list[MessageRecord] = []
        self.at: i64 = 0

    def open(self, segment: RowSegment | None) -> None:
        self._segment = segment
        self.entries = [] if segment is None else self._source.page(segment, 0)
        self.at = 0

    def entry(self) -> MessageRecord | None:
        """The message at `at`; reads the next page behind the end of this one. None at the end of the segment."""
        while self.at >= len(self.entries):
            segment = self._segment
            if segment is None or not self.entries:
                return None
            self.entries = self._source.page(segment, self.entries[-1].sequence + 1)
            self.at = 0
        return self.entries[self.at]

    def rowid(self) -> int:
        """The same number for the same message in every plan: SQLite uses it to remove duplicates of an OR."""
        segment = self._segment
        return 0 if segment is None else (segment.number << SEQUENCE_BITS) + self.entries[self.at].sequence


@final
class QueryBodies:
    """The encoded messages of records, read a page at a time."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._asked: set[MessageKey] = set()
        self._read: dict[MessageKey, bytes] = {}

    def of(self, entries: list[MessageRecord], at: i64) -> bytes | None:
        """The data of the record at this index; reads the next ones along with it. None if it was removed meanwhile."""
        key = entries[at].key
        if key not in self._asked:
            # One page in memory at a time. SQLite reads rows forward, so the next rows are in it.
            page = page_of(entries, at)
            self._asked = set(page)
            self._read = self._view.read_bodies(page)
        return self._read.get(key)


def page_of(entries: list[MessageRecord], at: i64) -> list[MessageKey]:
    page: list[MessageKey] = []
    size: i64 = 0
    for entry in entries[at : at + PAGE_BODIES]:
        size += entry.who.size
        # At least one message, however large it is.
        if page and size > PAGE_BODY_BYTES:
            break
        page.append(entry.key)
    return page
