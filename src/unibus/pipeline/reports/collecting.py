"""Collects rows from Spark as values of an answer.

pyspark converts a timestamp to the local time of this machine, without a zone, and with Spark Connect it also loses
which of the two hours it was when clocks were set back. So Spark casts every timestamp to text before, in the zone of
the session, which is UTC (session.py). Dates and intervals are cast too: Python has no type for a month, nor for the
year 10000.
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
    """Instants are given in UTC; a timestamp without a zone stays without one."""
    kinds = [field.dataType for field in frame.schema.fields]
    return [_values_of(row, kinds) for row in _cast(frame, kinds).collect()]


def _cast(frame: "DataFrame", kinds: list[DataType]) -> "DataFrame":
    changed = {number: _cast_type(kind) for number, kind in enumerate(kinds) if _cast_type(kind) != kind}
    if not changed:
        return frame
    names = [f"c{number}" for number in range(len(kinds))]  # A SELECT may have two columns of one name.
    columns = [F.col(name) for name in names]
    for number, kind in changed.items():
        columns[number] = columns[number].cast(kind)
    return frame.toDF(*names).select(*columns)


def _cast_type(kind: DataType) -> DataType:
    """The type in which Spark gives a value to Python."""
    if isinstance(kind, _AS_TEXT):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_cast_type(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_cast_type(kind.keyType), _cast_type(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _cast_type(each.dataType), each.nullable) for each in kind.fields])
    return kind


def _value_of(value: Any, kind: DataType) -> Value:
    """The value for the answer; `kind` is its type in Spark before the cast."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return f"{_iso(value)}+00:00"
    if isinstance(kind, TimestampNTZType):
        return _iso(value)
    if isinstance(kind, ArrayType):
        return [_value_of(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return {str(_value_of(key, kind.keyType)): _value_of(each, kind.valueType) for key, each in value.items()}
    if isinstance(kind, StructType):
        return dict(zip(unique(kind.names), _values_of(value, [each.dataType for each in kind.fields]), strict=True))
    return plain(value)


def _values_of(values: Iterable[Any], kinds: list[DataType]) -> list[Value]:
    return [_value_of(value, kind) for value, kind in zip(values, kinds, strict=True)]


def _iso(text: str) -> str:
    """2026-01-05 00:00:20.5 as Python writes it: 2026-01-05T00:00:20.500000."""
    whole, _, part = text.replace(" ", "T", 1).partition(".")
    return f"{whole}.{part:0<6}" if part else whole
