"""`unibus entities`: the queues, topics and subscriptions of a store with their counts, one line each."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.entity_rows import DEAD_LETTERS
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.table import CellKind, TableColumn, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from unibus.stores.seam.store import EntityInfo

# Short headings, so that 80 columns have space for the name.
COUNTS: Final = {"active": "active", "locked": "locked", "scheduled": "sched", "deferred": "defer", "dead": "dead"}
NONE: Final = "–"
COLUMNS: Final = (
    TableColumn("name", CellKind.NAME),
    TableColumn("kind", CellKind.EXACT),
    *[TableColumn(heading, CellKind.FIGURE) for heading in (*COUNTS.values(), "size", "oldest")],
)


def entities(
    settings: Annotated[bool, typer.Option("--settings", help="Show the settings, too.")] = False,
    dead_letters: Annotated[
        bool,
        typer.Option(
            "--dead-letters",
            help="List dead-letter queues as entities, too. Without it a queue counts its own as dead.",
        ),
    ] = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """List queues, topics and subscriptions with their counts.

    Works while another process uses the store.
    """
    with managed(url) as bus:
        found = [each for each in bus.entities() if dead_letters or each.kind != DEAD_LETTERS]
    if not is_terminal():
        for each in found:
            write_json(record_of(each, settings))
        flush()
    elif found:
        _show(found, settings)
    else:
        aside("no queues yet; `unibus send` creates one")


def record_of(info: "EntityInfo", settings: bool) -> dict[str, object]:
    from unibus.cli.terminal.message_view import instant

    record: dict[str, object] = {"name": info.name, "kind": info.kind}
    record.update({name: getattr(info, name) for name in COUNTS})
    record["size_bytes"] = info.size_bytes
    record["last_sequence"] = info.last_sequence
    record["oldest_at"] = instant(info.oldest_ns) if info.oldest_ns else None
    record["created_at"] = instant(info.created_ns) if info.created_ns else None
    record["updated_at"] = instant(info.updated_ns) if info.updated_ns else None
    if settings:
        from unibus.core.lifecycle.state.settings import shown

        record["settings"] = shown(info.settings)
    return record


def _show(found: "Sequence[EntityInfo]", settings: bool) -> None:
    print_table(COLUMNS, [_row(info, time.time_ns()) for info in found])
    if not settings:
        return
    from rich.console import Console

    console = Console(highlight=False)
    for info in found:
        _show_settings(console, info)


def _row(info: "EntityInfo", now_ns: int) -> list[str]:
    counts = [f"{getattr(info, name):,}" for name in COUNTS]
    oldest = age(now_ns - info.oldest_ns) if info.oldest_ns else NONE
    kind = "dead-letter" if info.kind == DEAD_LETTERS else info.kind
    return [info.name, kind, *counts, size(info.size_bytes), oldest]


def _show_settings(console: "Console", info: "EntityInfo") -> None:
    """Settings that differ from their default are bold."""
    from rich.text import Text

    from unibus.core.lifecycle.state.settings import DEFAULTS, shown

    console.print(Text(printable(info.name), style="bold"))
    for name, value in shown(info.settings).items():
        line = f"  {name:<26}{NONE if value is None else printable(str(value))}"
        console.print(Text(line, style="dim" if DEFAULTS.get(name) == value else "bold"))


def size(count: int) -> str:
    """A size in bytes, in a unit that keeps it short."""
    if count < 1_000:
        return f"{count} B"
    for unit, length in (("kB", 1e3), ("MB", 1e6)):
        if count < 999.95 * length:
            return f"{count / length:.1f} {unit}"
    return f"{count / 1e9:,.1f} GB"


def age(passed_ns: int) -> str:
    """A duration in the largest unit that fits."""
    seconds = max(0, passed_ns) // 1_000_000_000
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length_s:
            return f"{seconds // length_s} {unit}"
    return f"{seconds} s"
