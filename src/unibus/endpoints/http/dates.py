"""Instants in HTTP: RFC 1123 text in headers, ISO 8601 in JSON documents.

A header has whole seconds, rounded down: a client that relies on `LockedUntilUtc` never assumes a lock for longer than
it lasts.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_HTTP: Final = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)


def http_date(ns: int) -> str:
    return _http_date(ns // 1_000_000_000)


@lru_cache(maxsize=4096)
def _http_date(seconds: int) -> str:
    # Not strftime, whose names of days and months depend on the locale.
    at = time.gmtime(seconds)
    clock = f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    return f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04d} {clock} GMT"


def iso_date(ns: int) -> str:
    return iso_text(_EPOCH + timedelta(microseconds=ns // 1_000))


def iso_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def http_text(at: datetime) -> str:
    """RFC 1123 for whole seconds, else ISO 8601."""
    moment = at.astimezone(UTC)
    if moment.microsecond:
        return iso_text(moment)
    return _http_date((moment - _EPOCH) // timedelta(seconds=1))


def instant(text: str) -> datetime | None:
    """Parse an instant in one of the two forms; None otherwise. ISO 8601 without an offset is UTC, as in Azure."""
    try:
        if _HTTP.fullmatch(text):
            return parsedate_to_datetime(text)
        if _ISO.fullmatch(text):
            return _iso_instant(text)
    except (ValueError, OverflowError):
        # No such day, such as February 30.
        return None
    return None


def has_offset(text: str) -> bool:
    """Whether an ISO text has a time-zone offset."""
    return text[-1:] in ("Z", "z") or "+" in text[10:] or "-" in text[10:]


def _iso_instant(text: str) -> datetime:
    found = datetime.fromisoformat(text.replace("z", "Z"))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
