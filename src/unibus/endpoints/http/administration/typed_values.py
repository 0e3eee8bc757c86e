"""Values of filter parameters and properties: between the types of XML Schema and those of message headers.

int long short byte …  Int32, int      string char anyURI  str      dateTime   datetime (UTC where it names no zone)
double float           float           boolean             bool     duration   timedelta
decimal                Decimal         guid                UUID     base64Binary   bytes
"""

import base64
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from unibus.bus.entities.iso_duration import duration_s, duration_text
from unibus.codecs.atom.descriptions import TypedValue
from unibus.core.envelope.message_properties import HeaderValue, Int32
from unibus.errors import ConfigInvalid

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_DECIMAL: Final = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})", re.ASCII)
_DIGITS_MAX: Final = 100


def value_of(name: str, given: TypedValue) -> HeaderValue:
    """Parse a value. ConfigInvalid for an unsupported type, and for a text that is no value of its type."""
    read = _READERS.get(given.type)
    if read is None:
        raise ConfigInvalid(
            f"{name!r:.60} has the unsupported type {given.type!r:.40}", f"use one of {', '.join(sorted(_READERS))}"
        )
    if given.text is None:
        return None
    try:
        return read(given.text)
    except (ValueError, ArithmeticError) as error:
        raise ConfigInvalid(
            f"{name!r:.60} is {given.text!r:.60}, which is not of type {given.type}", "correct the value or its type"
        ) from error


def typed(value: HeaderValue) -> TypedValue:
    if value is None:
        return TypedValue("string", None)
    if isinstance(value, bool):
        return TypedValue("boolean", "true" if value else "false")
    for kind, name, write in _WRITERS:
        if isinstance(value, kind):
            return TypedValue(name, write(value))
    return TypedValue("string", str(value))


def _boolean(text: str) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if found is None:
        raise ValueError(text)
    return found


def _int32(text: str) -> HeaderValue:
    number = _whole(text)
    if not _INT32_MIN <= number <= _INT32_MAX:
        raise ValueError(text)
    return Int32(number)


def _int64(text: str) -> HeaderValue:
    number = _whole(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def _whole(text: str) -> int:
    if len(text) > 40 or not text.strip().isascii() or "_" in text:
        raise ValueError(text)
    return int(text)


def _double(text: str) -> float:
    if "_" in text:
        raise ValueError(text)
    return float(text.strip())


def _decimal(text: str) -> Decimal:
    # XML Schema allows no exponent here, and a large one would be written with that many digits.
    if _DECIMAL.fullmatch(text.strip()) is None:
        raise ValueError(text)
    return Decimal(text.strip())


def _date_time(text: str) -> datetime:
    # .NET writes seven decimals; Python reads six of them and ignores the last.
    found = datetime.fromisoformat(text.strip())
    return found.replace(tzinfo=UTC) if found.utcoffset() is None else found.astimezone(UTC)


def _duration(text: str) -> timedelta:
    plain = text.strip()
    seconds = duration_s(plain.removeprefix("-"))
    return timedelta(seconds=-seconds if plain.startswith("-") else seconds)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.strip(), validate=True)


def _double_text(value: float) -> str:
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return "NaN" if math.isnan(value) else repr(value)


def _decimal_text(value: Decimal) -> str:
    return format(value, "f") if value.is_finite() and abs(value.adjusted()) < _DIGITS_MAX else str(value)


def _date_time_text(value: datetime) -> str:
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return value.isoformat()  # Near the first or last instant of the calendar.


_READERS: Final[dict[str, Callable[[str], HeaderValue]]] = {
    "string": str,
    "char": str,
    "anyURI": str,
    "boolean": _boolean,
    "byte": _int32,
    "unsignedByte": _int32,
    "short": _int32,
    "unsignedShort": _int32,
    "int": _int32,
    "unsignedInt": _int64,
    "long": _int64,
    "integer": _int64,
    "float": _double,
    "double": _double,
    "decimal": _decimal,
    "dateTime": _date_time,
    "duration": _duration,
    "guid": UUID,
    "base64Binary": _bytes,
}
_WRITERS: Final[tuple[tuple[type, str, Callable[..., str]], ...]] = (
    (str, "string", str),
    (Int32, "int", lambda value: str(int(value))),
    (int, "long", lambda value: str(int(value))),
    (float, "double", _double_text),
    (Decimal, "decimal", _decimal_text),
    (datetime, "dateTime", _date_time_text),
    (timedelta, "duration", lambda value: duration_text(value.total_seconds())),
    (UUID, "guid", str),
    (bytes, "base64Binary", lambda value: base64.b64encode(value).decode("ascii")),
)
"""The first match is used: Int32 is a subclass of int."""
