"""Instants as options write them: how long ago (10m, 2h), or a date and time (2026-01-31T12:00; 12:00 means today).

A time without a zone is in the zone in which the command shows its own times.
"""

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from unibus.cli.terminal.durations import seconds_of
from unibus.errors import UsageError

METAVAR: Final = "DURATION|TIME"
_BARE: Final = re.compile(r"\d{8,}(\.\d*)?")
"""A date without its hyphens, or seconds since 1970. Read as seconds ago it would silently select all of history."""


def moment_of(option: str, text: str, now: datetime | None = None, zone: tzinfo | None = None) -> datetime:
    """With a time zone: its own, else `zone`, else that of the machine. Raises UsageError if it is not an instant."""
    present = datetime.now(zone).astimezone(zone) if now is None else now
    if _BARE.fullmatch(text.strip()):
        raise UsageError(
            f"{option} {text!r} could be a duration or a date", "write 2026-01-31T12:00+00:00, or how long ago: 90d"
        )
    try:
        return present - timedelta(seconds=seconds_of(option, text))
    except (UsageError, OverflowError):
        pass
    try:
        return _in_zone(datetime.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        pass
    try:
        return _in_zone(datetime.combine(present.date(), time.fromisoformat(text)), zone)
    except ValueError:
        hint = "for example 10m, 2h, 12:30 or 2026-01-31T12:00"
        raise UsageError(f"{option} {text!r} is not a time", hint) from None


def _in_zone(found: datetime, zone: tzinfo | None) -> datetime:
    return found.replace(tzinfo=zone) if zone is not None and found.tzinfo is None else found.astimezone(zone)
