"""Instants as people type them: how long ago (10m, 2h), or when (2026-01-31T12:00, 12:00 for today).

What has no zone is in the one that the command shows its own times in.
"""

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from unibus.cli.terminal.durations import seconds_of
from unibus.errors import UsageError

_BARE: Final = re.compile(r"\d{8,}(\.\d*)?")
"""A date without its lines, or seconds since 1970: as a time that has passed since it would stand for everything."""


def moment_of(option: str, text: str, now: datetime | None = None, zone: tzinfo | None = None) -> datetime:
    """With its time zone; `zone`, or that of the machine, where none is given. UsageError for what is no instant."""
    present = datetime.now(zone).astimezone(zone) if now is None else now
    if _BARE.fullmatch(text.strip()):
        raise UsageError(
            f"{option} {text!r} may be a time or a date", "say 2026-01-31T12:00+00:00, or how long ago: 90d"
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
        raise UsageError(f"{option} {text!r} is no time", "for instance 10m, 2h, 12:30 or 2026-01-31T12:00") from None


def _in_zone(found: datetime, zone: tzinfo | None) -> datetime:
    return found.replace(tzinfo=zone) if zone is not None and found.tzinfo is None else found.astimezone(zone)
