"""Instants as people type them: how long ago (10m, 2h), or when (2026-01-31T12:00, 12:00 for today)."""

from datetime import datetime, time, timedelta

from unibus.cli.durations import seconds_of
from unibus.errors import UsageError


def moment_of(option: str, text: str, now: datetime | None = None) -> datetime:
    """With its time zone; that of the machine where none is given. UsageError for what is no instant."""
    present = datetime.now().astimezone() if now is None else now
    try:
        return present - timedelta(seconds=seconds_of(option, text))
    except (UsageError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.combine(present.date(), time.fromisoformat(text)).astimezone()
    except ValueError:
        raise UsageError(f"{option} {text!r} is no time", "for instance 10m, 2h, 12:30 or 2026-01-31T12:00") from None
