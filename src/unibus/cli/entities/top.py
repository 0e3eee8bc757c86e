"""`unibus top`: the counts and rates of all entities, refreshed beside the process that owns the store.

The rates come from the changes that the store wrote between two refreshes, so they include the work of all processes.
"""

import enum
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.entity_rows import TopRow
from unibus.cli.connection.management import Watching
from unibus.cli.entities.entities import NONE, age
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.keyboard import keyboard
from unibus.cli.terminal.output import flush, is_terminal, write_json
from unibus.cli.terminal.table import Cell, CellKind, TableColumn, fitted, lines_of_row
from unibus.counting import counted
from unibus.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text


EVERY_S_MIN: Final = 0.05
HEADINGS: Final = ("waiting", "in flight", "later", "dead", "oldest", "in/s", "out/s")
DEAD: Final = HEADINGS.index("dead")
COLUMNS: Final = (TableColumn("name", CellKind.NAME), *[TableColumn(each, CellKind.FIGURE) for each in HEADINGS])
FRAME_LINES: Final = 4
"""Lines of the terminal that hold no row: the title, the headings, the rule below them, and the cursor."""


class TopOrder(enum.StrEnum):
    WAITING = "waiting"
    DEAD = "dead"
    OLDEST = "oldest"
    RATE = "rate"


_KEYS: Final = {order[0]: order for order in TopOrder}


def top(
    every: Annotated[str, typer.Option(metavar=METAVAR, help="The refresh interval, for example 500ms or 2s.")] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Show the figures once and end.")] = False,
    sort: Annotated[TopOrder, typer.Option(help="Which entities come first.")] = TopOrder.WAITING,
    url: Url = DEFAULT_STORE,
) -> None:
    """Watch the counts and rates of queues, topics and subscriptions.

    On a terminal q ends it, and w, d, o and r sort by waiting, dead, oldest and rate. To a pipe it writes one JSON
    line for each entity at each refresh.
    """
    every_s = _interval(every)
    with managed(url) as bus:
        watch = bus.watch(once)
        if not is_terminal():
            _write(watch, sort, every_s, once)
        elif once:
            _print(_console(), arranged(watch.look(), sort))
        else:
            _live(watch, sort, every_s)


def _interval(text: str) -> float:
    seconds = seconds_of("--every", text)
    if seconds < EVERY_S_MIN:
        raise UsageError(f"--every {text} is too short", f"use at least {EVERY_S_MIN:g} s")
    return seconds


def arranged(rows: Sequence[TopRow], order: TopOrder) -> list[TopRow]:
    """The largest value first; equal values by name."""

    def measure(row: TopRow) -> float:
        if order is TopOrder.OLDEST:
            return row.oldest_s or 0.0
        if order is TopOrder.RATE:
            return (row.in_per_s or 0.0) + (row.out_per_s or 0.0)
        return row.dead if order is TopOrder.DEAD else row.waiting

    return sorted(rows, key=lambda row: (-measure(row), row.name))


# Through a pipe


def _write(watch: Watching, order: TopOrder, every_s: float, once: bool) -> None:
    while True:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        for row in arranged(watch.look(), order):
            write_json({"at": at, **_record(row)})
        flush()
        if once:
            return
        time.sleep(every_s)


def _record(row: TopRow) -> dict[str, object]:
    record = dict(vars(row))
    for name in ("oldest_s", "in_per_s", "out_per_s"):
        record[name] = None if record[name] is None else round(record[name], 3)
    return record


# On a terminal


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _print(console: "Console", rows: Sequence[TopRow]) -> None:
    console.print(table(rows, console.width), soft_wrap=True)


def _live(watch: Watching, order: TopOrder, every_s: float) -> None:
    """Refreshes until q or Ctrl-C. The last figures stay on the terminal."""
    from rich.live import Live

    console = _console()
    rows = watch.look()
    try:
        with keyboard() as keys, Live(console=console, auto_refresh=False, screen=True) as live:
            key, next_s = "", time.monotonic() + every_s
            while key != "q":
                order = _KEYS.get(key, order)
                live.update(_frame(rows, order, every_s, console), refresh=True)
                key = keys.wait(max(0.0, next_s - time.monotonic()))
                if time.monotonic() >= next_s:
                    rows, next_s = watch.look(), time.monotonic() + every_s
    finally:
        _print(console, arranged(rows, order))


def _frame(rows: Sequence[TopRow], order: TopOrder, every_s: float, console: "Console") -> "Group":
    from rich.console import Group
    from rich.text import Text

    found = arranged(rows, order)
    lines = lines_of_row(COLUMNS, _cells(found), console.width)
    shown = found[: max(1, (console.height - FRAME_LINES) // lines)]
    hidden = f", {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    entities = counted(len(rows), "entity", "entities")
    title = f"{entities}{hidden}, by {order}, every {every_s:g} s    q ends; sort: w d o r"
    return Group(Text(title, style="dim", no_wrap=True, overflow="ellipsis"), table(shown, console.width))


def table(rows: Sequence[TopRow], width: int) -> "Text":
    return fitted(COLUMNS, _cells(rows), width)


def _cells(rows: Sequence[TopRow]) -> list[list[Cell]]:
    from rich.text import Text

    found: list[list[Cell]] = []
    for row in rows:
        figures: list[Cell] = list(_figures(row))
        if row.dead:
            figures[DEAD] = Text(_figures(row)[DEAD], "bold red")
        found.append([row.name, *figures])
    return found


def _figures(row: TopRow) -> tuple[str, ...]:
    counts = (row.waiting, row.in_flight, row.scheduled + row.deferred, row.dead)
    oldest = NONE if row.oldest_s is None else age(round(row.oldest_s * 1e9))
    return (*[f"{count:,}" for count in counts], oldest, _rate(row.in_per_s), _rate(row.out_per_s))


def _rate(per_s: float | None) -> str:
    if per_s is None:
        return NONE
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}"
