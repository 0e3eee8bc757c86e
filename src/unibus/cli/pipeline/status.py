"""`unibus pipeline status`: the lag of the lake, its last batches, and its size. It needs no Spark."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unibus.cli.pipeline.options import DEFAULT_LAKE, LakeDir, extras, open_lake
from unibus.cli.pipeline.sources import sources_that_open
from unibus.cli.terminal.output import flush, is_terminal, printable, write_json
from unibus.cli.terminal.shared_options import Json

if TYPE_CHECKING:
    from rich.console import Console

    from unibus.pipeline.lake import Lake
    from unibus.pipeline.reports.answer import Value
    from unibus.pipeline.reports.status import DomainLag, PipelineStatus


def status(as_json: Json = False, lake: LakeDir = Path(DEFAULT_LAKE)) -> None:
    """Show how far the tables are behind the history of each store, and the last batches. Times are in UTC.

    A source that cannot be read is listed with its error. To a pipe it writes one JSON line.
    """
    found = open_lake(lake)
    with extras():
        from unibus.pipeline.reports.status import read_status
    with sources_that_open(lake) as (sources, wrong):
        status_now = read_status(found, sources)
    status_now.domains += _not_read(found, status_now, wrong)
    status_now.server = _server(lake)
    if as_json or not is_terminal():
        write_json(status_now)
        flush()
        return
    _draw(status_now)


def _not_read(lake: "Lake", found: "PipelineStatus", wrong: Mapping[str, str]) -> "list[DomainLag]":
    """Rows for domains in the lake that no source has now, and for sources that cannot be read."""
    from unibus.pipeline.reports.status import DomainLag

    last = lake.last_batch()
    known = {each["place"]: each for each in (last["ranges"] if last is not None else ())}
    listed = {each.domain for each in found.domains}
    gone = {place: "no source has it any more" for place, each in known.items() if each["domain"] not in listed}
    rows = []
    for place, error in {**gone, **wrong}.items():
        domain, up_to = (known[place]["domain"], known[place]["up_to"]) if place in known else ("", 0)
        rows.append(DomainLag(domain, place, up_to, up_to, 0, 0.0, error))
    return rows


def _server(lake: Path) -> str:
    """The address of a running server; a killed one may have left its address file behind."""
    from unibus.pipeline.serving.client import address_of, is_alive

    address = address_of(lake)
    return "" if address is None or not is_alive(address) else address.connect.partition("/;")[0]


def _draw(found: "PipelineStatus") -> None:
    from rich.console import Console

    from unibus.cli.pipeline.view import size

    console = Console(highlight=False)
    total = sum(table.bytes for table in found.tables)
    server = f", served at {found.server}" if found.server else ""
    typer.echo(f"{printable(found.lake)}: batch {found.batch}, {size(total)}{server}")
    _draw_domains(console, found)
    _draw_batches(console, found)
    _draw_tables(console, found)
    _draw_quarantine(console, found)


def _draw_domains(console: "Console", found: "PipelineStatus") -> None:
    from unibus.cli.pipeline.view import print_rows
    from unibus.pipeline.reports.answer import Column

    columns = [
        Column("domain"),
        Column("read up to", "count"),
        Column("available", "count"),
        Column("events behind", "count"),
        Column("behind", "us"),
        Column("where"),
    ]
    rows: list[list[Value]] = [_domain(each) for each in found.domains]
    console.print()
    print_rows(console, columns, rows)


def _domain(each: "DomainLag") -> "list[Value]":
    if not each.error:
        return [each.domain, each.up_to, each.last, each.events_behind, each.seconds_behind * 1e6, each.where]
    where = each.error if each.where in each.error else f"{each.where}: {each.error}"
    if each.events_behind:
        return [each.domain, each.up_to, each.last, each.events_behind, None, where]
    return [each.domain or None, each.up_to, None, None, None, where]


def _draw_batches(console: "Console", found: "PipelineStatus") -> None:
    from unibus.cli.pipeline.view import print_rows
    from unibus.pipeline.reports.answer import Column

    if not found.batches:
        console.print("\nno batches yet; `unibus pipeline run --once` runs the first")
        return
    kinds = {"at": "text", "events": "count", "closed": "count", "quarantined": "count", "seconds": "number"}
    names = ("number", "at", "events", "closed", "quarantined", "seconds")
    titles = {"number": "batch", "at": "at (UTC)"}
    columns = [Column(titles.get(name, name), kinds.get(name, "number")) for name in names]  # type: ignore[arg-type]
    rows = [[_utc(each[name]) if name == "at" else _short(each[name]) for name in names] for each in found.batches]
    console.print()
    print_rows(console, columns, rows)


def _draw_tables(console: "Console", found: "PipelineStatus") -> None:
    from unibus.cli.pipeline.view import print_rows
    from unibus.pipeline.reports.answer import Column

    columns = [Column("table"), Column("rows", "count"), Column("files", "count"), Column("size", "bytes")]
    console.print()
    print_rows(console, columns, [[each.table, each.rows, each.files, each.bytes] for each in found.tables])


def _draw_quarantine(console: "Console", found: "PipelineStatus") -> None:
    from unibus.cli.pipeline.view import print_rows
    from unibus.pipeline.reports.answer import Column

    if not found.quarantined:
        return
    names = ("domain", "first", "last", "reason", "file", "detail")
    columns = [Column(name, "number" if name in ("first", "last") else "text") for name in names]
    console.print(f"\n{found.quarantined:,} ranges are quarantined and not counted:", style="bold red")
    print_rows(console, columns, [[each[name] for name in names] for each in found.quarantine])


def _utc(at: "Value") -> "Value":
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M:%S}" if isinstance(at, str) else at


def _short(value: "Value") -> "Value":
    return round(value, 2) if isinstance(value, float) else value
