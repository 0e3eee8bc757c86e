"""Rows out of Spark, as an answer has them.

pyspark gives a moment as the clock of this machine shows it, without a zone, and by Connect also without telling which
of the two hours it was when clocks went back. So no moment leaves Spark as one: Spark writes it as text before, in the
zone of the session, which is UTC (session.py). Days and spans of time go the same way, since Python has no word for a
month, nor for the year 10000.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from unibus.pipeline.reports.answer import Value, plain, unique

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AS_TEXT: Final = (TimestampType, TimestampNTZType, DateType, YearMonthIntervalType, CalendarIntervalType)


def collected(frame: "DataFrame") -> list[list[Value]]:
    """Instants come with their zone, UTC; timestamps without a zone stay without one, and as they are."""
    kinds = [field.dataType for field in frame.schema.fields]
    return [_told_all(row, kinds) for row in _sent(frame, kinds).collect()]


def _sent(frame: "DataFrame", kinds: list[DataType]) -> "DataFrame":
    changed = {number: _sent_as(kind) for number, kind in enumerate(kinds) if _sent_as(kind) != kind}
    if not changed:
        return frame
    names = [f"c{number}" for number in range(len(kinds))]  # Those of a SELECT may be there twice.
    columns = [F.col(name) for name in names]
    for number, kind in changed.items():
        columns[number] = columns[number].cast(kind)
    return frame.toDF(*names).select(*columns)


def _sent_as(kind: DataType) -> DataType:
    """The type that a value leaves Spark with."""
    if isinstance(kind, _AS_TEXT):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_sent_as(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_sent_as(kind.keyType), _sent_as(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _sent_as(each.dataType), each.nullable) for each in kind.fields])
    return kind


def _told(value: Any, kind: DataType) -> Value:
    """A value that came, by the type that it had in Spark."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return f"{_iso(value)}+00:00"
    if isinstance(kind, TimestampNTZType):
        return _iso(value)
    if isinstance(kind, ArrayType):
        return [_told(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return {str(_told(key, kind.keyType)): _told(each, kind.valueType) for key, each in value.items()}
    if isinstance(kind, StructType):
        return dict(zip(unique(kind.names), _told_all(value, [each.dataType for each in kind.fields]), strict=True))
    return plain(value)


def _told_all(values: Iterable[Any], kinds: list[DataType]) -> list[Value]:
    return [_told(value, kind) for value, kind in zip(values, kinds, strict=True)]


def _iso(text: str) -> str:
    """2026-01-05 00:00:20.5 as Python writes it: 2026-01-05T00:00:20.500000."""
    whole, _, part = text.replace(" ", "T", 1).partition(".")
    return f"{whole}.{part:0<6}" if part else whole
