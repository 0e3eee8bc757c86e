"""Which rows a query wants: the channels and kinds of the options, and filters that Spark pushes down.

A filter is accepted only if we apply it exactly as Spark would; Spark applies all others. Filters on `seq` also reduce
the range that is read.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from unibus.capture.schema import EVENTS, KIND_CODES
from unibus.errors import UsageError
from unibus.pipeline.connector.offsets import SEQ_MAX
from unibus.pipeline.connector.options import near

PUSHED_COLUMNS: Final = ("seq", "ts", "channel", "kind", "message_id")

_COMPARE: Final[dict[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


@dataclass(frozen=True)
class Pushed:
    """A filter that we apply: its kind (the name of a class of pyspark), its column and its values."""

    kind: str
    column: str
    values: tuple[object, ...] = ()

    def mask(self, column: pa.Array) -> pa.Array:
        """Null where Spark has null, which removes a row as false does."""
        if self.kind == IsNotNull.__name__:
            return pc.is_valid(column)
        if self.kind == In.__name__:
            # A null in the column never matches: for Spark the result is null, which removes the row too.
            return pc.and_(pc.is_valid(column), pc.is_in(column, pa.array(self.values, column.type)))
        if self.kind == StringStartsWith.__name__:
            return pc.starts_with(column, self.values[0])
        compare = next(call for kind, call in _COMPARE.items() if kind.__name__ == self.kind)
        return compare(column, pa.scalar(self.values[0], column.type))


def pushed_of(given: Filter) -> Pushed | None:
    """None for a filter that Spark has to apply."""
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in PUSHED_COLUMNS:
        return None
    column = attribute[0]
    if isinstance(given, IsNotNull):
        return Pushed(IsNotNull.__name__, column)
    is_known = isinstance(given, (*_COMPARE, In)) or (isinstance(given, StringStartsWith) and column != "seq")
    if not is_known:
        return None
    value = given.value  # type: ignore[attr-defined]
    values = tuple(value) if isinstance(given, In) else (value,)
    return Pushed(type(given).__name__, column, values) if all(_fits(column, each) for each in values) else None


def _fits(column: str, value: object) -> bool:
    if column == "seq":
        return isinstance(value, int) and not isinstance(value, bool)
    if column == "ts":
        return isinstance(value, datetime) and value.tzinfo is not None
    return isinstance(value, str)


@dataclass(frozen=True)
class WantedHistory:
    """All conditions together. Only data: it is sent to the executors."""

    channels: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    pushed: tuple[Pushed, ...] = ()
    _known: dict[str, bool] = field(default_factory=dict, compare=False)

    def columns(self) -> set[str]:
        """The columns that the conditions need."""
        found = {each.column for each in self.pushed}
        return found | ({"channel"} if self.channels else set()) | ({"kind"} if self.kinds else set())

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.kinds:
            batch = batch.filter(pc.is_in(batch["kind"], pa.array(self.kinds)))
        if self.channels:
            names = [name for name in pc.unique(batch["channel"]).to_pylist() if self._is_wanted(name)]
            batch = batch.filter(pc.is_in(batch["channel"], pa.array(names, pa.string())))
        for each in self.pushed:
            batch = batch.filter(each.mask(batch[each.column]))
        return batch

    def _is_wanted(self, channel: str) -> bool:
        known = self._known.get(channel)
        if known is None:
            known = self._known[channel] = any(_pattern(each).fullmatch(channel) for each in self.channels)
        return known

    def seqs(self) -> tuple[int, int]:
        """The range (after, up_to] that the filters leave."""
        after, up_to = 0, SEQ_MAX
        for each in self.pushed:
            if each.column == "seq" and each.values:
                numbers = [value for value in each.values if isinstance(value, int)]
                low, high = _range(each.kind, min(numbers), max(numbers))
                after, up_to = max(after, low), min(up_to, high)
        return after, up_to


def _range(kind: str, low: int, high: int) -> tuple[int, int]:
    return {
        GreaterThan.__name__: (low, SEQ_MAX),
        GreaterThanOrEqual.__name__: (low - 1, SEQ_MAX),
        LessThan.__name__: (0, high - 1),
        LessThanOrEqual.__name__: (0, high),
    }.get(kind, (low - 1, high))


def _pattern(text: str) -> re.Pattern[str]:
    """`*` matches any characters. Names that differ only by case are the same channel."""
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.IGNORECASE | re.DOTALL)


def wanted_of(channels: Sequence[str], kinds: Sequence[str]) -> WantedHistory:
    for kind in kinds:
        if kind not in KIND_CODES:
            raise UsageError(f"there is no kind of event {kind!r}", near(kind, KIND_CODES))
    return WantedHistory(tuple(channels), tuple(kinds))


assert all(name in EVENTS.names for name in PUSHED_COLUMNS)
