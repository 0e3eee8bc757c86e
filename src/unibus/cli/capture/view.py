"""The status of a capture for people: one line per figure, in the largest unit that fits."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from unibus.cli.entities.entities import age
from unibus.counting import counted

if TYPE_CHECKING:
    from unibus.capture.status import Status


def lines(status: "Status") -> Iterator[tuple[str, str]]:
    """Labels and texts."""
    yield "capture", status.folder
    yield "domain", status.domain
    yield "state", "not running" if status.running is None else f"running, process {status.running}"
    yield "events", f"{status.events:,} in {counted(status.segments, 'segment')}, {size(status.bytes)}" + _range(status)
    yield "bodies", f"{status.bodies:,}, {size(status.bodies_bytes)}"
    if status.missed:
        gaps = counted(status.gaps, "gap")
        yield "missed", f"{status.missed:,} in {gaps}: the store pruned them before they were read"
    if status.oldest_us is not None and status.newest_us is not None:
        yield "from", f"{moment(status.oldest_us)} to {moment(status.newest_us)} UTC"
    if status.sealed_s is not None:
        yield "sealed", f"{age(round(status.sealed_s * 1e9))} ago"
    if status.lag_events is not None and status.lag_s is not None:
        behind = f"{counted(status.lag_events, 'event')}, {age(round(status.lag_s * 1e9))}"
        yield "lag", behind if status.lag_events else "none"
    yield "kept", _kept(status)
    for rule in status.redact:
        yield "redacted", rule


def _range(status: "Status") -> str:
    return f", {status.first:,} to {status.last:,}" if status.segments else ""


def _kept(status: "Status") -> str:
    times = (("events", status.keep_s), ("bodies", status.bodies_keep_s))
    return ", ".join(f"{name} {'for ever' if kept is None else age(round(kept * 1e9))}" for name, kept in times)


def size(count: int) -> str:
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} B"


def moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
