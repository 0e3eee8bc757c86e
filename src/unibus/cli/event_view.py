"""How events of history are shown: a JSON object per line for programs, a line of text for people."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from unibus.cli.output import printable

if TYPE_CHECKING:
    from rich.text import Text

    from unibus.core.life.events import Event

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = {"enqueued_us": "enqueued_at", "first_delivered_us": "first_delivered_at"}
_STYLES: Final = {
    **dict.fromkeys(("sent", "published", "copied", "scheduled", "activated"), "cyan"),
    "delivered": "blue",
    "completed": "green",
    **dict.fromkeys(("returned", "deferred", "duplicate", "moved"), "yellow"),
    **dict.fromkeys(("dead_lettered", "expired", "cancelled", "purged", "dropped"), "bold red"),
}
KIND_WIDTH: Final = 14


def when(event_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=event_us)


def clock_time(instant: datetime) -> str:
    """Of the day, in the zone of whoever reads it."""
    local = instant.astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1_000:03d}"


def record_of(event: "Event") -> dict[str, object]:
    """What is known of it; instants as text."""
    record: dict[str, object] = {"seq": event.seq, "at": when(event.ts).isoformat()}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value is not None and name not in ("seq", "ts"):
            record[_TIMES.get(name, name)] = when(value).isoformat() if name in _TIMES else value
    return record


def style_of(kind: str) -> str:
    return _STYLES.get(kind, "")


def line(event: "Event") -> "Text":
    from rich.text import Text

    shown = Text()
    shown.append(clock_time(when(event.ts)), style="dim")
    shown.append(f"  {event.kind:<{KIND_WIDTH}}", style=style_of(event.kind))
    if event.channel:
        shown.append(f" {printable(event.channel)}", style="bold")
        shown.append(f" #{event.sequence}")
    if event.message_id:
        shown.append(f"  {printable(event.message_id)}")
    for name, value in _details(event):
        shown.append(f"  {name} ", style="dim")
        shown.append(printable(value).replace("\n", " "))
    return shown


def _details(event: "Event") -> list[tuple[str, str]]:
    """What says more than that it happened."""
    named = {
        "reason": event.reason,
        "delivery": event.delivery_count,
        "to": event.consumer,
        "session": event.session_id,
        **{name: value for name, value in (event.attrs or {}).items() if not name.endswith("_us")},
    }
    return [(name, str(value)) for name, value in named.items() if value is not None]
