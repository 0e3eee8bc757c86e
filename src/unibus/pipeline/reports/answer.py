"""An answer as data: it goes through a socket as it is, and whoever shows it knows what its columns mean.

Values are those of JSON. Instants are text with their zone, durations are microseconds, bytes are text in hexadecimal.
"""

import decimal
import math
from datetime import date, timedelta
from typing import Any, Final, Literal

import msgspec

Kind = Literal["text", "number", "count", "bytes", "us", "instant", "when", "rate", "id", "series"]
"""What a column means: `us` is a duration in microseconds, `rate` is per second, `series` a list to be drawn, `when` an
instant that needs no seconds, and what is an `id` is not broken into lines."""

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]


class Column(msgspec.Struct, frozen=True):
    """`title` is for people, where the name is long; `drawn` is False for what only programs get. What is `spare` is
    left out where a terminal is too narrow for all of them."""

    name: str
    kind: Kind = "text"
    title: str = ""
    drawn: bool = True
    spare: bool = False


class Plot(msgspec.Struct, frozen=True):
    """Bars, one below the other. `kind` is that of the values."""

    title: str
    labels: list[str]
    values: list[float]
    kind: Kind = "count"


class Answer(msgspec.Struct):
    """`more` says that there are rows beyond the limit; `notes` are for people."""

    columns: list[Column]
    rows: list[list[Any]]
    """Values; by this name, since who decodes JSON cannot follow a type that names itself."""
    plots: list[Plot] = []
    more: bool = False
    notes: list[str] = []
    seconds: float = 0.0

    def records(self) -> list[dict[str, Value]]:
        names = unique([column.name for column in self.columns])
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def unique(names: list[str]) -> list[str]:
    """SQL may call two columns by one name; a record cannot."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


_PLAIN: Final = (str, int, bool, type(None))


def plain(value: object) -> Value:
    """A value as JSON has it. Numbers that JSON cannot write become text."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, date):  # Also one with its time; what has no zone gets none.
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1)
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return _nested(value)


def _decimal(value: decimal.Decimal) -> Value:
    """A number where it is written as the same one; else its digits, as text."""
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
