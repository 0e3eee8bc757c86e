# mypyc: compiled
"""The cursors of the virtual tables. SQLite calls Python for each row and each value, so this file is compiled.

    Filter(plan, values) ──▶ choose segments ──▶ _find: the first row
    Eof? ── no ──▶ Column(number) … ──▶ Next ──▶ _find: the next row that exists ──▶ Eof? …

A million rows are a million calls of Next, Eof and Column each. The rule: nothing is computed for a row before SQLite
reads the column, and a message is decoded only when a column needs its data.

Methods and their order are those of SQLite's virtual tables (sqlite3_module); SQLite calls them in the thread that runs
the query, without a lock of the store.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.codec.codec import decode
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.states import STATE_NAMES
from unibus.stores.query.formatting import TimeFormatter, body_text
from unibus.stores.query.plan import HistoryPart, QueryPlan, WantedMessages, kinds_of
from unibus.stores.query.table_source import (
    COMPLETED,
    DELIVERED,
    HistoryPages,
    OnePage,
    Pages,
    QueryBodies,
    RowSegment,
    SegmentRows,
    TableSource,
    delivered_segment,
)
from unibus.stores.seam.message_record import MessageRecord

# Column numbers of MESSAGES in tables.py.
ID: Final = 0
TYPE: Final = 1
SOURCE: Final = 2
TARGET: Final = 3
PAYLOAD: Final = 4
TIMESTAMP: Final = 5
PRIORITY: Final = 6
CORRELATION: Final = 7
ROUTING_KEY: Final = 8
TTL: Final = 9
TRANSACTION: Final = 10
SEQUENCE: Final = 11
STATUS: Final = 12
CHANNEL: Final = 13
STATE: Final = 14
DELIVERIES: Final = 15
SIZE: Final = 16
SESSION: Final = 17
TRACE: Final = 18
ENQUEUED: Final = 19
EXPIRES: Final = 20
CONSUMER: Final = 21
SUBJECT: Final = 22
LOCKED_UNTIL: Final = 23


@final
class MessageCursor:
    """Messages that exist, and delivered ones of history."""

    def __init__(self, source: TableSource, plans: list[QueryPlan]) -> None:
        self._source = source
        self._plans = plans
        self._clock = TimeFormatter()
        self._bodies = QueryBodies(source.view)
        self._segments: list[RowSegment] = []
        self._segment: i64 = 0
        self._channel = ""
        self._status = ""
        self._rows = SegmentRows(source)
        self._pages: Pages | None = None
        self._events: list[Event] = []
        self._event_at: i64 = 0
        self._only: str | None = None  # The channel of the comparison.
        self._entry: MessageRecord | None = None
        self._event: Event | None = None
        self._message: Message | None = None
        self._decoded: MessageRecord | None = None

    def Filter(self, number: int, name: str | None, values: tuple[object, ...] | None) -> None:
        # A cursor is used again for each outer row of a join, with other values: everything is reset here.
        plan = self._plans[number]
        wanted = WantedMessages()
        for column, operator, value in plan.with_values(values):
            wanted.narrow(column, operator, value)
        # Kept for events of history, which `_find_event` compares itself: they are not grouped by channel.
        self._only = wanted.channel
        self._segments = self._chosen(wanted, plan)
        self._segment = 0
        self._event_at = 0
        self._rows.open(None)
        self._events = []
        self._pages = None
        self._find()

    def _chosen(self, wanted: WantedMessages, plan: QueryPlan) -> list[RowSegment]:
        chosen = self._held(wanted)
        if DELIVERED in wanted.statuses:
            # History is in order of seq, not of channels. It is grouped in memory, which `_order` in tables.py has
            # allowed only for a short history.
            if "channel" in plan.order:
                chosen.extend(self._source.delivered_by_channel(wanted.ids))
            else:
                chosen.append(delivered_segment("", self._source.delivered(wanted.ids)))
        if plan.order:
            # Stable, and within a segment all values of the order are equal: the rows come in the order that SQLite was
            # promised.
            chosen.sort(key=lambda each: each.key(plan.order), reverse=plan.descending)
        return chosen

    def _held(self, wanted: WantedMessages) -> list[RowSegment]:
        statuses = wanted.statuses
        if not statuses or (len(statuses) == 1 and DELIVERED in statuses):
            return []
        # By id: few messages, found by a scan or by the index of the source.
        if wanted.ids is None:
            return [each for each in self._source.segments(wanted.channel) if each.status in statuses]
        # Sorted: an IN is a set, and the order of rows must not depend on hashes.
        found = [segment for each in sorted(wanted.ids) for segment in self._source.with_id(each)]
        return [each for each in found if each.status in statuses]

    def Eof(self) -> bool:
        return self._entry is None and self._event is None

    def Next(self) -> None:
        if self._entry is None:
            self._event_at += 1
        else:
            self._rows.at += 1
        self._find()

    def _find(self) -> None:
        """Move to the next row."""
        while True:
            self._entry = self._rows.entry()
            if self._entry is not None:
                return
            if self._pages is not None and self._find_event():
                return
            if self._segment >= len(self._segments):
                return
            # Opened when it is reached: a LIMIT may end the query before.
            self._open(self._segments[self._segment])
            self._segment += 1

    def _find_event(self) -> bool:
        while self._pages is not None:
            while self._event_at < len(self._events):
                event = self._events[self._event_at]
                if self._only is None or event.channel == self._only:
                    self._event = event
                    return True
                self._event_at += 1
            # An empty page is the end, also when the guard has stopped the query.
            self._events = self._pages.next_page()
            self._event_at = 0
            if not self._events:
                self._pages = None
        self._event = None
        return False

    def _open(self, segment: RowSegment) -> None:
        self._channel = segment.channel
        self._status = segment.status
        self._rows.open(segment)
        self._pages = segment.pages

    def Column(self, number: i64) -> object:
        entry = self._entry
        if entry is None:
            return self._column_of_event(number)
        # The columns of WHERE, GROUP BY and ORDER BY first: they are read for every row.
        if number == CHANNEL:
            return self._channel
        if number == STATUS:
            return self._status
        if number == STATE:
            return STATE_NAMES[entry.state]
        if number == SEQUENCE:
            return entry.sequence
        if number == PRIORITY:
            return entry.priority
        if number == DELIVERIES:
            return entry.delivery_count
        if number == SIZE:
            return entry.who.size
        if number == ENQUEUED:
            return self._clock.text_ns(entry.enqueued_ns)
        if number == EXPIRES:
            return self._clock.text_ns(entry.expires_ns)
        if number == CONSUMER:
            return entry.consumer or None
        if number == LOCKED_UNTIL:
            return self._clock.text_ns(entry.locked_until_ns)
        if number in (ID, CORRELATION, SESSION, TRACE):
            return self._column_of_who(entry, number)
        return self._column_of_body(entry, number)

    def _column_of_who(self, entry: MessageRecord, number: i64) -> object:
        who = entry.who
        if number == ID:
            return who.message_id
        if number == CORRELATION:
            return who.correlation_id
        return who.session_id if number == SESSION else who.trace_id

    def _column_of_body(self, entry: MessageRecord, number: i64) -> object:
        # SQLite asks for column -1 where the query names the rowid.
        if number < 0:
            return self.Rowid()
        message = self._decode(entry)
        # Removed since this row was found: its data is gone, and the row shows NULL for it.
        if message is None:
            return None
        if number == PAYLOAD:
            return body_text(message.body)
        if number == TIMESTAMP:
            return self._clock.text(message.timestamp_ns // 1_000)
        if number == TTL:
            return message.ttl
        properties = message.properties
        if properties is None:
            return None
        if number == TYPE:
            return properties.type
        if number == SOURCE:
            return properties.source
        if number == TARGET:
            return properties.target
        if number == ROUTING_KEY:
            return properties.routing_key
        if number == TRANSACTION:
            return properties.tx_id
        return properties.subject

    def _decode(self, entry: MessageRecord) -> Message | None:
        """Once per row."""
        # By identity: SQLite may read several columns of a row, and each would decode it again.
        if self._decoded is not entry:
            data = self._bodies.of(self._rows.entries, self._rows.at)
            self._message = None if data is None else decode(data)
            self._decoded = entry
        return self._message

    def _column_of_event(self, number: i64) -> object:
        """What history has of a delivered message. Its body no longer exists."""
        event = self._event
        if event is None:
            return None
        if number == CHANNEL:
            return event.channel
        if number == STATUS:
            return DELIVERED
        if number == ID:
            return event.message_id
        if number == STATE:
            return COMPLETED
        if number in (ENQUEUED, TIMESTAMP):
            return None if event.enqueued_us is None else self._clock.text(event.enqueued_us)
        if number == SEQUENCE:
            return event.sequence
        if number == DELIVERIES:
            return event.delivery_count
        if number == SIZE:
            return event.size
        if number == CORRELATION:
            return event.correlation_id
        if number == SESSION:
            return event.session_id
        if number == TRACE:
            return event.trace_id
        if number == CONSUMER:
            return event.consumer
        return self.Rowid() if number < 0 else None

    def Rowid(self) -> int:
        if self._entry is not None:
            return self._rows.rowid()
        return 0 if self._event is None else -self._event.seq

    def Close(self) -> None:
        self._segments = []
        self._rows.open(None)
        self._events = []


@final
class EventCursor:
    """Events of history, in the order of their seq."""

    def __init__(self, source: TableSource, plans: list[QueryPlan], fields: tuple[str, ...]) -> None:
        self._source = source
        self._plans = plans
        self._fields = fields
        self._clock = TimeFormatter()
        self._pages: Pages = OnePage([])
        self._events: list[Event] = []
        self._at: i64 = 0

    def Filter(self, number: int, name: str | None, values: tuple[object, ...] | None) -> None:
        wanted = HistoryPart()
        for column, operator, value in self._plans[number].with_values(values):
            wanted.narrow(column, operator, value)
        # Nothing can match: history is not read at all.
        if wanted.empty or (wanted.kinds is not None and not wanted.kinds):
            self._pages = OnePage([])
        elif wanted.message_id is not None:
            self._pages = OnePage(self._source.events_of(wanted.message_id))
        else:
            self._pages = HistoryPages(
                self._source.view, self._source.guard, wanted.after, wanted.until, kinds_of(wanted)
            )
        self._events = self._pages.next_page()
        self._at = 0

    def Eof(self) -> bool:
        return self._at >= len(self._events)

    def Next(self) -> None:
        self._at += 1
        if self._at >= len(self._events):
            self._events = self._pages.next_page()
            self._at = 0

    def Column(self, number: i64) -> object:
        event = self._events[self._at]
        if number < 0 or number == 0:
            return event.seq
        name = self._fields[number]
        if name == "ts":
            return self._clock.text(event.ts)
        if name == "ts_us":
            return event.ts
        if name == "attrs":
            return None if event.attrs is None else body_text(event.attrs)
        return getattr(event, name)

    def Rowid(self) -> int:
        return self._events[self._at].seq

    def Close(self) -> None:
        self._events = []


@final
class EmptyCursor:
    def Filter(self, number: int, name: str | None, values: tuple[object, ...] | None) -> None:
        return

    def Eof(self) -> bool:
        return True

    def Next(self) -> None:
        return

    def Column(self, number: i64) -> object:
        return None

    def Rowid(self) -> int:
        return 0

    def Close(self) -> None:
        return
