# mypyc: compiled
"""The cursor of the table `dead_letters`. Methods and their order are those of cursors.py."""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.codec.codec import decode, encode_json
from unibus.core.flow.deadletter import (
    ATTEMPTS_HEADER,
    DESCRIPTION_HEADER,
    ERROR_TYPE_HEADER,
    REASON_HEADER,
    SOURCE_HEADER,
    TIME_HEADER,
)
from unibus.core.lifecycle.state.changes import HeaderOverrides
from unibus.stores.query.formatting import TimeFormatter
from unibus.stores.query.plan import QueryPlan, WantedMessages
from unibus.stores.query.table_source import FAILED, QueryBodies, RowSegment, SegmentRows, TableSource
from unibus.stores.seam.message_record import MessageRecord

LAST_ERROR_HEADER: Final = "LastError"
"""The header that a failed `with` block writes when it abandons the message (bus/queues/received.py)."""


@final
class DeadLetterCursor:
    """Dead-lettered messages: in dead-letter queues, and in the queues to which they are forwarded."""

    def __init__(self, source: TableSource, plans: list[QueryPlan]) -> None:
        self._source = source
        self._plans = plans
        self._clock = TimeFormatter()
        self._bodies = QueryBodies(source.view)
        self._segments: list[RowSegment] = []
        self._segment: i64 = 0
        self._ids: set[str] | None = None
        self._status = ""
        self._rows = SegmentRows(source)
        self._entry: MessageRecord | None = None

    def Filter(self, number: int, name: str | None, values: tuple[object, ...] | None) -> None:
        wanted = WantedMessages()
        for column, operator, value in self._plans[number].with_values(values):
            wanted.narrow(column, operator, value)
        self._segments = []
        self._segment = 0
        self._ids = wanted.ids
        self._rows.open(None)
        if wanted.statuses:
            # A forwarded dead-lettered message is in an ordinary queue; only its header says that it is one.
            targets = self._source.dead_letter_targets()
            for segment in self._source.segments(wanted.channel):
                if segment.status == FAILED or is_target(segment.channel, targets):
                    self._segments.append(segment)
        self._find()

    def Eof(self) -> bool:
        return self._entry is None

    def Next(self) -> None:
        self._rows.at += 1
        self._find()

    def _find(self) -> None:
        """Move to the next row: the message at the present position, or one after it."""
        while True:
            entry = self._rows.entry()
            if entry is not None:
                if takes(entry, self._status, self._ids):
                    self._entry = entry
                    return
                self._rows.at += 1
            elif self._segment < len(self._segments):
                segment = self._segments[self._segment]
                self._segment += 1
                self._status = segment.status
                self._rows.open(segment)
            else:
                self._entry = None
                return

    def Column(self, number: i64) -> object:
        entry = self._entry
        if entry is None:
            return None
        overlay: HeaderOverrides = {} if entry.overlay is None else entry.overlay
        if number == 0 or number == 1:
            return entry.who.message_id
        if number == 2:
            data = self._bodies.of(self._rows.entries, self._rows.at)
            return None if data is None else encode_json(decode(data)).decode("utf-8")
        if number == 3:
            return text_in(overlay, REASON_HEADER)
        if number == 4:
            return self._clock.text_ns(number_in(overlay, TIME_HEADER) or entry.enqueued_ns)
        if number == 5:
            return max(0, number_in(overlay, ATTEMPTS_HEADER) - 1)
        if number == 10:
            return number_in(overlay, ATTEMPTS_HEADER)
        if number == 6:
            return error_in(overlay)
        if number == 7:
            return entry.entity
        if number == 8:
            return text_in(overlay, SOURCE_HEADER)
        if number == 9:
            return text_in(overlay, ERROR_TYPE_HEADER)
        if number == 11:
            return entry.sequence
        return self._rows.rowid() if number < 0 else text_in(overlay, DESCRIPTION_HEADER)

    def Rowid(self) -> int:
        return self._rows.rowid()

    def Close(self) -> None:
        self._segments = []
        self._rows.open(None)


def takes(entry: MessageRecord, status: str, ids: set[str] | None) -> bool:
    if ids is not None and entry.who.message_id not in ids:
        return False
    return status == FAILED or (entry.overlay is not None and REASON_HEADER in entry.overlay)


def is_target(channel: str, targets: set[str]) -> bool:
    """Whether dead-lettered messages are forwarded to it: by its name, or as a subscription of such a topic."""
    name = channel.casefold()
    return name in targets or name.partition("/subscriptions/")[0] in targets


def text_in(overlay: HeaderOverrides, name: str) -> str | None:
    value = overlay.get(name)
    return value if isinstance(value, str) else None


def number_in(overlay: HeaderOverrides, name: str) -> int:
    value = overlay.get(name)
    return value if isinstance(value, int) else 0


def error_in(overlay: HeaderOverrides) -> str | None:
    """Type and text of the error, or the text that was given with abandon."""
    kind, text = text_in(overlay, ERROR_TYPE_HEADER), text_in(overlay, DESCRIPTION_HEADER)
    if kind:
        return f"{kind}: {text}" if text else kind
    return text_in(overlay, LAST_ERROR_HEADER) or text
