"""`unibus pipeline rebuild`, `compact` and `vacuum`: maintenance of a lake. Commands that remove data ask first."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.pipeline.options import DEFAULT_LAKE, Connect, LakeDir, Master, Where, extras, open_lake
from unibus.cli.pipeline.run import MAX_EVENTS_DEFAULT, Bad, Source, progress, report_batch
from unibus.cli.pipeline.sources import opened_sources
from unibus.cli.terminal.confirmation import confirm
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, write_json
from unibus.cli.terminal.shared_options import Yes
from unibus.cli.terminal.signals import undisturbed
from unibus.counting import counted
from unibus.errors import SparkLost, UsageError

if TYPE_CHECKING:
    from unibus.pipeline.run import BatchResult


@dataclass(frozen=True)
class RebuildOptions:
    yes: Yes = False
    source: Source = None
    lake: LakeDir = Path(DEFAULT_LAKE)
    master: Master = None
    connect: Connect = None
    bad: Bad = "quarantine"
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN", help="Drop the rows of a domain whose history no longer exists. May be repeated."
        ),
    ] = None
    max_events: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of events in one batch.")] = (
        MAX_EVENTS_DEFAULT
    )


@with_options(RebuildOptions)
def rebuild(options: RebuildOptions) -> None:
    """Rebuild all tables from the segments, beside the old ones, and then replace them.

    Rows whose segments no longer exist are not in the new tables. If it is interrupted, nothing changes.
    """
    lake = open_lake(options.lake)
    with extras():
        from unibus.pipeline.rebuild import check_all_there
        from unibus.pipeline.rebuild import rebuild as rebuilt
    with opened_sources(options.lake, options.source) as sources:
        check_all_there(lake, sources, options.forget or ())
        _ask(f"Rebuild all tables of {options.lake} from the segments that still exist?", options.yes)
        where = Where(options.master, options.connect)

        def make_all() -> int:
            spark = where.session(options.lake)
            with progress() as step:
                found = rebuilt(
                    spark,
                    lake,
                    sources,
                    max_events=options.max_events,
                    bad=options.bad,
                    progress=step,
                    forget=options.forget or (),
                )
                return sum(map(_report_one, found))

        made = again_if_lost(make_all)
    report_rebuilt(made, lake.done())


def again_if_lost(make_all: "Callable[[], int]") -> int:
    """Runs it again with a new Spark if the first one ended. A rebuild has no effect before its end."""
    try:
        return make_all()
    except SparkLost as error:
        typer.secho(f"warning: {error.what}; a new one is started, and the rebuild begins again", fg="yellow", err=True)
    return make_all()


def _report_one(result: "BatchResult") -> int:
    report_batch(result)
    return 1


def report_rebuilt(made: int, last: int) -> None:
    """`made` batches were numbered from 1 in the new tables; `last` is the lake's own number, which never repeats."""
    if is_terminal():
        typer.echo(f"rebuilt in {counted(made, 'batch', 'batches')}; the lake is at batch {last:,} now")
        return
    write_json({"rebuilt": True, "batches": made, "batch": last})
    flush()


def compact(lake: LakeDir = Path(DEFAULT_LAKE)) -> None:
    """Merge small files, and rows that can be added up. The results of queries do not change."""
    found = open_lake(lake)
    with extras():
        from unibus.pipeline.upkeep import compact as compacted
    with undisturbed():
        counts = compacted(found)
    for name, (before, after) in counts.items():
        if not is_terminal():
            write_json({"table": name, "files_before": before, "files": after})
        elif before:
            typer.echo(f"{name:<16} {before:>5} {'file' if before == 1 else 'files'}, now {after}")
    flush()


def vacuum(
    older: Annotated[
        str,
        typer.Option(
            metavar=METAVAR,
            help="Remove files that are unused for this time, in whole hours: a reader may still have them open.",
        ),
    ] = "24h",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=DURATION", help="Remove older rows of a table first: messages=90d. May be repeated."
        ),
    ] = None,
    yes: Yes = False,
    lake: LakeDir = Path(DEFAULT_LAKE),
) -> None:
    """Remove files that no table uses; with --keep also rows that are older."""
    hours = math.ceil(seconds_of("--older", older) / 3_600)
    kept = dict(_kept(each) for each in keep or ())
    found = open_lake(lake)
    with extras():
        from unibus.pipeline.upkeep import retain
        from unibus.pipeline.upkeep import vacuum as vacuumed
    what = f" and rows: {', '.join(keep)}" if keep else ""
    _ask(f"Remove files of {lake} that are unused for {_hours(hours)}{what}?", yes)
    with undisturbed():
        removed = retain(found, kept, time.time_ns() // 1_000) if kept else {}
        gone = vacuumed(found, hours)
    _report("removed", {"files": len(gone), **{f"rows of {name}": count for name, count in removed.items()}})


def _hours(count: int) -> str:
    return "one whole hour (the minimum)" if count == 1 else f"{count:,} whole hours"


def _kept(text: str) -> tuple[str, int]:
    table, equals, how_long = text.partition("=")
    if not equals:
        raise UsageError(f"--keep {text!r} is not TABLE=DURATION", "for example --keep messages=90d")
    return table, round(seconds_of("--keep", how_long) * 1e6)


def _report(what: str, counts: dict[str, int]) -> None:
    if is_terminal():
        typer.echo(f"{what}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        return
    write_json({what: True, **{name.replace(" ", "_"): count for name, count in counts.items()}})
    flush()


def _ask(question: str, yes: bool) -> None:
    if yes:
        aside(question.replace("?", ""))
        return
    confirm(question)
