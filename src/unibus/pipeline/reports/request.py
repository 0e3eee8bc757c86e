"""Requests and replies as they are sent through the socket of a server. Without Spark and Arrow."""

from typing import Final

import msgspec

from unibus.core.lifecycle.events import Event
from unibus.errors import BusError
from unibus.pipeline.reports.answer import Answer

REPORT_ROWS: Final = 20
SQL_ROWS: Final = 1_000
SQL_TIME_S: Final = 60.0


class ReportRequest(msgspec.Struct, frozen=True):
    """`question` is a name of `asking.QUESTIONS`, or "trace"; the others are its options."""

    question: str
    since_us: int | None = None
    channel: str | None = None
    limit: int = SQL_ROWS
    text: str = ""
    """The SQL, or the id."""
    time_s: float = SQL_TIME_S


class FoundEvents(msgspec.Struct):
    """The events of an id, ordered by time. `by` is the column that has the id, "" if none has."""

    id: str
    by: str
    events: list[Event]
    unread: list[str] = []
    """Segments, and whole sources, that could not be read."""


class ReportRefusal(msgspec.Struct, frozen=True):
    """An error of unibus in a reply."""

    kind: str
    what: str
    hint: str

    @staticmethod
    def of(error: BusError) -> "ReportRefusal":
        return ReportRefusal(type(error).__name__, error.what, error.hint)

    def as_error(self) -> BusError:
        return _kinds(BusError).get(self.kind, BusError)(self.what, self.hint)


def _kinds(kind: type[BusError]) -> dict[str, type[BusError]]:
    """All error classes of unibus by name."""
    found = {kind.__name__: kind}
    for each in kind.__subclasses__():
        found |= _kinds(each)
    return found


class Reply(msgspec.Struct):
    """Exactly one of the three is set."""

    answer: Answer | None = None
    found: FoundEvents | None = None
    refusal: ReportRefusal | None = None
