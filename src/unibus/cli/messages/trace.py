"""`unibus trace`: the path of one message, as a tree of the entities it was in, with the events in each.

Programs log the correlation id more often than the id of a message. So if no message has the id, it is looked for as
a correlation id, and the messages with it are traced, the oldest first.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.management import Asked, Management
from unibus.cli.terminal.output import flush, is_terminal, printable, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.counting import counted
from unibus.errors import MessageNotFound, QueryStopped
from unibus.limits import QUERY_MEMORY_MB_DEFAULT, QUERY_TIME_S_DEFAULT

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from unibus.bus.history.trace import MessageTrace, TracedCopy, TraceStep

_STYLES: Final = {
    "completed": "bold green",
    "waiting": "bold yellow",
    "in flight": "bold blue",
    "dead-lettered": "bold red",
    "not delivered": "bold red",
    "gone": "bold red",
}
_TROUBLE: Final = ("dead-lettered", "not delivered", "gone")
TRACES_MAX: Final = 20
"""Messages with one correlation id that are shown."""
_CORRELATED: Final = """
    SELECT message_id FROM events WHERE correlation_id = ? AND message_id IS NOT NULL GROUP BY 1 ORDER BY min(seq)
"""


def trace(
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a message, or a correlation id.", show_default=False)
    ],
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Show what happened to a message, in every entity it passed.

    To a pipe it writes one JSON line for each event.

    Exit code 3 if history has no event with that id.
    """
    with managed(url) as bus:
        traces = _traces(bus, message_id)
    for found in traces:
        if is_terminal():
            _draw(found)
        else:
            _write(found)
    return ExitCode.OK


def _traces(bus: Management, given: str) -> "list[MessageTrace]":
    """The trace of the message, else those of the messages with this correlation id."""
    try:
        return [bus.trace(given)]
    except MessageNotFound as missing:
        found = _correlated(bus, given)
        if not found:
            raise missing from None
    traces = []
    for each in found[:TRACES_MAX]:
        try:
            traces.append(bus.trace(each))
        except MessageNotFound:
            continue  # History was trimmed since the query.
    which = f"the first {TRACES_MAX} messages" if len(found) > TRACES_MAX else counted(len(traces), "message")
    typer.echo(f"no message has the id {printable(given)}; {which} with this correlation id:", err=True)
    return traces


def _correlated(bus: Management, given: str) -> list[str]:
    """The ids of messages with this correlation id, one more than are shown."""
    try:
        rows = bus.query(Asked(_CORRELATED, [given], TRACES_MAX + 1, QUERY_TIME_S_DEFAULT, QUERY_MEMORY_MB_DEFAULT))
    except QueryStopped:
        return []  # A history that is too long to search: the error about the id is the answer.
    return [str(row[0]) for row in rows]


def _write(found: "MessageTrace") -> None:
    from unibus.bus.management.history.events import record_of

    for event in found.events:
        write_json(record_of(event))
    flush()


def _draw(found: "MessageTrace") -> None:
    from rich.console import Console

    Console(highlight=False).print(tree_of(found))


def tree_of(found: "MessageTrace") -> "Tree":
    """The date once in the title; each line has the time of day, and the time since the first event."""
    from rich.text import Text
    from rich.tree import Tree

    from unibus.bus.management.history.events import when

    began = when(found.events[0].ts)
    title = Text()
    title.append(printable(found.message_id), style="bold")
    title.append(f"  {found.status}", style=_STYLES.get(found.status, "bold"))
    title.append(f"  {began.astimezone():%Y-%m-%d}", style="dim")
    tree = Tree(title, guide_style="dim")
    for root in found.roots:
        _add(tree, root, began)
    return tree


def _add(tree: "Tree", copy: "TracedCopy", began: datetime) -> None:
    from rich.text import Text

    place = Text()
    place.append(printable(copy.channel), style="bold")
    place.append(f" #{copy.sequence}  " if copy.sequence else "  ")
    place.append(copy.outcome, style=_STYLES.get(copy.outcome, "dim"))
    if copy.reason:
        trouble = copy.outcome in _TROUBLE
        place.append(f"  {printable(copy.reason)}", style="bold red" if trouble else "yellow")
    branch = tree.add(place)
    for step in copy.steps:
        branch.add(_line(step, began))
    for child in copy.children:
        _add(branch, child, began)
    for name, reason in copy.declined:
        branch.add(Text.assemble((printable(name), "bold"), "  ", (reason, "yellow")))


def _line(step: "TraceStep", began: datetime) -> "Text":
    from rich.text import Text

    from unibus.cli.terminal.event_view import clock_time, style_of

    shown = Text()
    shown.append(clock_time(step.at), style="dim")
    shown.append(f" {elapsed(step.at - began):>9}  ", style="cyan")
    shown.append(printable(step.text), style=style_of(step.kind))
    return shown


def elapsed(passed: timedelta) -> str:
    """The time since the first event, in a unit that keeps it short."""
    seconds = passed.total_seconds()
    if seconds < 1:
        return f"+{seconds * 1_000:.0f} ms"
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length_s:
            return f"+{seconds / length_s:.1f} {unit}"
    return f"+{seconds:.1f} s"
