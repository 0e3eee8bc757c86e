"""An answer as data: it can be sent through a socket, and its columns say how to show their values.

Values are those of JSON. Instants are text with a time zone, durations are microseconds, bytes are hexadecimal text.
"""

import decimal
import math
from datetime import date, timedelta
from typing import Any, Final, Literal

import msgspec

Kind = Literal["text", "number", "count", "bytes", "us", "instant", "when", "rate", "id", "series"]
"""What a column means: `us` is a duration in microseconds, `rate` is per second, `series` a list to be drawn, `when` an
instant shown without seconds, and an `id` is not wrapped."""

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]


class Column(msgspec.Struct, frozen=True):
    """`title` is shown instead of a long name; a column that is not `drawn` is only in JSON and CSV."""

    name: str
    kind: Kind = "text"
    title: str = ""
    drawn: bool = True


class Plot(msgspec.Struct, frozen=True):
    """A horizontal bar chart. `kind` is that of the values."""

    title: str
    labels: list[str]
    values: list[float]
    kind: Kind = "count"


class Answer(msgspec.Struct):
    """`more`: there are rows beyond the limit. `notes` are text for people."""

    columns: list[Column]
    rows: list[list[Any]]
    """Of `Value`; typed as Any, since msgspec cannot decode a recursive type."""
    plots: list[Plot] = []
    more: bool = False
    notes: list[str] = []
    seconds: float = 0.0

    def records(self) -> list[dict[str, Value]]:
        names = unique([column.name for column in self.columns])
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def unique(names: list[str]) -> list[str]:
    """Unique names for a record: SQL allows two columns with the same name."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


_PLAIN: Final = (str, int, bool, type(None))


def plain(value: object) -> Value:
    """A value of JSON. Numbers that JSON cannot write become text."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, date):  # Also a datetime; no zone is added.
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1)
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return _nested(value)


def _decimal(value: decimal.Decimal) -> Value:
    """A number if a float has the same digits; otherwise text."""
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    return near if decimal.Decimal(repr(near)) == value else str(value)


def _nested(value: object) -> Value:
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(each) for each in value]
    return str(value)
