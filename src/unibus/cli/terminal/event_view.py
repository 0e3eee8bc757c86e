"""Events of history on a terminal: one line of text each. Programs get the records of
bus/management/history/events.py instead.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from unibus.bus.management.history.events import when
from unibus.cli.terminal.output import printable

if TYPE_CHECKING:
    from rich.text import Text

    from unibus.core.lifecycle.events import Event

_STYLES: Final = {
    **dict.fromkeys(("sent", "published", "copied", "scheduled", "activated"), "cyan"),
    "delivered": "blue",
    "completed": "green",
    **dict.fromkeys(("returned", "deferred", "duplicate", "moved"), "yellow"),
    **dict.fromkeys(("dead_lettered", "expired", "cancelled", "purged", "dropped"), "bold red"),
}
KIND_WIDTH: Final = 14


def clock_time(instant: datetime) -> str:
    """The time of day in the local zone, with milliseconds."""
    local = instant.astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1_000:03d}"


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
    """The fields of the event that are set, beyond its kind and its message."""
    named = {
        "reason": event.reason,
        "delivery": event.delivery_count,
        "to": event.consumer,
        "session": event.session_id,
        **{name: value for name, value in (event.attrs or {}).items() if not name.endswith("_us")},
    }
    return [(name, str(value)) for name, value in named.items() if value is not None]
