"""`unibus pipeline run`: bring the tables up to date, once or continuously.

A batch is atomic, so the command can be killed at any moment. Ctrl-C nevertheless lets the current batch finish,
because the next run would have to repeat its work.
"""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from unibus.cli.pipeline.options import DEFAULT_LAKE, Connect, LakeDir, Master, Where, extras, needs_pipeline, open_lake
from unibus.cli.pipeline.sources import opened_sources
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.signals import stopping
from unibus.counting import counted
from unibus.errors import SparkLost, UsageError

if TYPE_CHECKING:
    from unibus.capture.event_source import EventSource
    from unibus.pipeline.lake import Lake
    from unibus.pipeline.run import BatchResult, Progress
    from unibus.pipeline.session import Session
    from unibus.pipeline.set_aside import SetAside

EVERY_DEFAULT: Final = "10s"
MAX_EVENTS_DEFAULT: Final = 5_000_000

Source = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="A capture directory, a folder of them, or a store: sqlite:///bus.db. May be repeated. "
        "Default: the sources of the run before.",
    ),
]
Bad = Annotated[
    Literal["quarantine", "fail"],
    typer.Option(
        help="quarantine: list a damaged segment in the table quarantine, and set a damaged source aside; "
        "fail: end the run."
    ),
]


@dataclass(frozen=True)
class PipelineRunOptions:
    once: Annotated[bool, typer.Option("--once", help="End when there are no new events.")] = False
    every: Annotated[
        str | None,
        typer.Option(metavar=METAVAR, help=f"Look for new events at this interval. Default: {EVERY_DEFAULT}."),
    ] = None
    source: Source = None
    lake: LakeDir = Path(DEFAULT_LAKE)
    master: Master = None
    connect: Connect = None
    bad: Bad = "quarantine"
    max_events: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of events in one batch.")] = (
        MAX_EVENTS_DEFAULT
    )


@with_options(PipelineRunOptions)
def run(options: PipelineRunOptions) -> None:
    """Bring the lake up to date: the folder with the tables of history.

    To a pipe it writes one JSON line for each batch. Ctrl-C ends it after the current batch.
    """
    if options.once and options.every is not None:
        raise UsageError("--once and --every exclude each other", "use one of them")
    every_s = None if options.once else seconds_of("--every", options.every or EVERY_DEFAULT)
    needs_pipeline()
    with opened_sources(options.lake, options.source, options.bad != "fail") as sources:
        lake = open_lake(options.lake, makes=True)
        warnings = Warnings()
        if every_s is None and not pending(lake, sources, options.bad, warnings):
            with lake.lock():
                lake.check_folder()
                lake.remember(sources)
            _report_nothing_new(lake)
            return
        where = Where(options.master, options.connect)

        def open_spark() -> "Session":
            return where.session(options.lake)

        spark = open_spark()
        with stopping("ending after this batch; press Ctrl-C again to end at once") as stop:
            batches = Batches(spark, lake, sources, options.max_events, options.bad, warnings, open_spark)
            batches.follow(every_s, stop)
    if not batches.made:
        _report_nothing_new(lake)


_NUMBER: Final = re.compile(r"\d[\d,]*")


class Warnings:
    """Reports each source that is set aside once per reason, however often a run finds it.

    Numbers in the reason are ignored: a history that was restored from a backup may continue to grow.
    """

    def __init__(self) -> None:
        self._reported: set[tuple[str, str, str]] = set()

    def __call__(self, found: "SetAside") -> None:
        known = (found.domain, found.where, _NUMBER.sub("#", found.reason))
        if known not in self._reported:
            self._reported.add(known)
            typer.secho(f"warning: {printable(str(found))}", fg="yellow", err=True)
            typer.echo(
                f"hint: {printable(found.hint)}; the other sources are read; with --bad fail the run would end",
                err=True,
            )


def pending(lake: "Lake", sources: "list[EventSource]", bad: Literal["quarantine", "fail"], warnings: Warnings) -> bool:
    """Whether there is work for Spark: new events, or the plan of an interrupted batch."""
    from unibus.pipeline.plan import last_ranges
    from unibus.pipeline.set_aside import usable

    if lake.is_interrupted():
        return True
    before = last_ranges(lake)
    positions = {each.domain: each.up_to for each in before}
    ready = usable(sources, before, None if bad == "fail" else warnings)
    return any(source.last() != positions.get(source.domain, 0) for source in ready)


class Batches:
    """Runs batches and reports each. `made` counts them."""

    def __init__(
        self,
        spark: "Session",
        lake: "Lake",
        sources: "list[EventSource]",
        max_events: int,
        bad: Literal["quarantine", "fail"],
        warnings: Warnings | None = None,
        reopen: "Callable[[], Session] | None" = None,
    ) -> None:
        """`reopen` starts a new Spark if the first one ends."""
        self.made = 0
        self._spark = spark
        self._lake = lake
        self._sources = sources
        self._max_events = max_events
        self._bad = bad
        self._reopen = reopen
        self._warnings = warnings or Warnings()

    def follow(self, every_s: float | None, stop: threading.Event) -> None:
        """Runs batches until there are no new events; with `every_s` until `stop` is set."""
        while not stop.is_set():
            began_s = time.monotonic()
            self._catch_up(stop)
            if every_s is None:
                return
            stop.wait(max(0.0, every_s - (time.monotonic() - began_s)))

    def _catch_up(self, stop: threading.Event) -> None:
        try:
            self._make_batches(stop)
        except SparkLost as error:
            if self._reopen is None:
                raise
            typer.secho(f"warning: {error.what}; a new one is started", fg="yellow", err=True)
            self._spark = self._reopen()
            self._make_batches(stop)

    def _make_batches(self, stop: threading.Event) -> None:
        with extras():
            from unibus.pipeline.run import run_all
        with progress() as step:
            found = run_all(
                self._spark,
                self._lake,
                self._sources,
                max_events=self._max_events,
                bad=self._bad,
                progress=step,
                set_aside=self._warnings,
            )
            with contextlib.closing(found):  # type: ignore[type-var]
                for result in found:
                    self.made += 1
                    report_batch(result)
                    if stop.is_set():
                        return


# Reporting


def report_batch(result: "BatchResult") -> None:
    if not is_terminal():
        write_json(
            {
                "batch": result.number,
                "events": result.events,
                "closed": result.closed,
                "seconds": round(result.seconds, 3),
                "left": result.left,
                "quarantined": [f"{each.domain} {each.first}-{each.last}: {each.reason}" for each in result.unread],
            }
        )
        flush()
        return
    rate = result.events / result.seconds if result.seconds else 0
    left = f", {result.left:,} left" if result.left else ""
    typer.echo(
        f"batch {result.number}: {counted(result.events, 'event')}, {counted(result.closed, 'message')} closed, "
        f"{result.seconds:.1f} s ({rate:,.0f} events/s){left}"
    )
    for each in result.unread:
        typer.secho(f"  not counted: {each.domain} {each.first:,} to {each.last:,}: {each.reason}", fg="red", err=True)


def _report_nothing_new(lake: "Lake") -> None:
    what = "no new events" if lake.done() else "the history is empty"
    if is_terminal():
        typer.echo(f"{what}; the lake is at batch {lake.done()}")
    else:
        aside(what)


@contextlib.contextmanager
def progress() -> "Iterator[Progress]":
    """A progress bar for the current batch, with the name of its step. Nothing without a terminal: `run` writes one
    line for each batch there."""
    if not sys.stderr.isatty():
        yield lambda step, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=1.0, visible=False)

        def step(name: str, share: float) -> None:
            if share >= 1:
                shown.reset(task, total=1.0, visible=False)
            else:
                shown.update(task, description=name, completed=share, visible=True)

        yield step
