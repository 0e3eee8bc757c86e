"""Shared by all reports: the filter by channel and time, and a period cut into equal pieces for a chart."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.pipeline.reports.answer import Value
from unibus.pipeline.reports.request import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PIECES: Final = 24
"""As many as a day has hours."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def like(pattern: str) -> str:
    """A pattern with * and ? as a pattern of SQL's LIKE."""
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")


def chosen(rows: "DataFrame", request: ReportRequest, when: str, unit: str = "minute") -> "DataFrame":
    """The rows of the requested channels and time. The time is truncated to the unit of the column."""
    if request.channel is not None:
        rows = rows.where(F.col("channel").like(like(request.channel)))
    if request.since_us is not None:
        rows = rows.where(F.col(when) >= F.date_trunc(unit, F.timestamp_micros(F.lit(request.since_us))))
    return rows


@dataclass(frozen=True)
class Period:
    """From the first to the last timestamp, in at most PIECES pieces of the same length."""

    from_us: int
    to_us: int
    piece_us: int

    @staticmethod
    def of(rows: "DataFrame", when: str, unit_us: int) -> "Period | None":
        """The period that the rows cover. None without rows."""
        found = rows.agg(F.unix_micros(F.min(when)), F.unix_micros(F.max(when))).collect()[0]
        if found[0] is None:
            return None
        first, last = found[0], found[1] + unit_us
        pieces = min(PIECES, max(1, (last - first) // unit_us))
        piece_us = -(-(last - first) // (pieces * unit_us)) * unit_us
        return Period(first, last, piece_us)

    @property
    def pieces(self) -> int:
        return -(-(self.to_us - self.from_us) // self.piece_us)

    @property
    def seconds(self) -> float:
        return (self.to_us - self.from_us) / 1e6

    def number(self, when: str) -> "Column":
        """The number of the piece that a row belongs to."""
        passed = F.unix_micros(F.col(when)) - F.lit(self.from_us)
        return F.floor(passed / F.lit(self.piece_us)).cast("int")

    def sums(self, when: str, amount: "Column") -> "Column":
        """An array with the sum of each piece: aggregation then needs no second grouping."""
        number = self.number(when)
        return F.array(*[F.sum(F.when(number == each, amount).otherwise(0)) for each in range(self.pieces)])

    def note(self) -> str:
        return f"{moment(self.from_us):%Y-%m-%d %H:%M} to {moment(self.to_us):%Y-%m-%d %H:%M} UTC"


def numbers(value: object) -> list[Value]:
    assert isinstance(value, list)
    return [int(each or 0) for each in value]
