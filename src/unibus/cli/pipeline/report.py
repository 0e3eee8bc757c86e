"""`unibus pipeline report`, `sql` and `trace`: queries of the lake.

A running server of the lake answers at once; without one, Spark is started for the query. A trace needs no Spark.
"""

import enum
import sys
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.pipeline.options import (
    DEFAULT_LAKE,
    Connect,
    LakeDir,
    Master,
    Where,
    extras,
    no_lake,
    open_lake,
)
from unibus.cli.terminal.durations import METAVAR as DURATION
from unibus.cli.terminal.durations import seconds_of
from unibus.cli.terminal.moments import METAVAR, moment_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, printable
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import Csv, Json, Limit, limit_of
from unibus.errors import MessageNotFound, SparkLost, StoreUnavailable, UsageError
from unibus.pipeline.reports.request import REPORT_ROWS, SQL_ROWS, SQL_TIME_S, FoundEvents, Reply, ReportRequest

if TYPE_CHECKING:
    from unibus.pipeline.reports.answer import Answer

STDIN: Final = "-"
ROWS_MAX: Final = 1_000_000
UNREAD_SHOWN: Final = 5
SQL_HELP: Final = (
    "A SELECT over messages, channel_minute, latency_hist, failures, traces, quarantine, channels, batches, events and "
    "bodies; - reads it from standard input."
)


class Report(enum.StrEnum):
    CHANNELS = "channels"
    LATENCY = "latency"
    FAILURES = "failures"
    STUCK = "stuck"
    CONSUMERS = "consumers"


*_ALL_BUT_LAST, _LAST = Report
REPORT_HELP: Final = f"{', '.join(_ALL_BUT_LAST)} or {_LAST}."


@dataclass(frozen=True)
class ReportOptions:
    what: Annotated[
        Report,
        typer.Argument(metavar="WHAT", help=REPORT_HELP, show_default=False),
    ]
    since: Annotated[
        str | None,
        typer.Option(
            metavar=METAVAR, help="From this time on, in UTC; stuck: messages without an event since. Default: all."
        ),
    ] = None
    channel: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only these channels; * is a wildcard.")] = None
    limit: Limit = str(REPORT_ROWS)
    as_json: Json = False
    as_csv: Csv = False
    lake: LakeDir = Path(DEFAULT_LAKE)
    master: Master = None
    connect: Connect = None


@with_options(ReportOptions)
def report(options: ReportOptions) -> ExitCode:
    """Show a report of the lake.

    Prints a table with plots on a terminal, JSON Lines to a pipe.

    Exit code 3 if there are no rows.
    """
    from unibus.cli.pipeline.view import show

    _not_both(options.as_json, options.as_csv)
    limit = limit_of(options.limit, most=ROWS_MAX) or ROWS_MAX
    since_us = None if options.since is None else round(moment_of("--since", options.since, zone=UTC).timestamp() * 1e6)
    request = ReportRequest(options.what.value, since_us, options.channel, limit)
    answer = asked(options.lake, request, Where(options.master, options.connect))
    if not answer.rows:
        aside("the lake has no such rows" + ("; try an earlier --since, or another --channel" if since_us else ""))
    return show(answer, options.as_json, options.as_csv, limit)


@dataclass(frozen=True)
class SqlOptions:
    sql: Annotated[str, typer.Argument(metavar="SQL", help=SQL_HELP, show_default=False)]
    limit: Limit = str(SQL_ROWS)
    time_limit: Annotated[str, typer.Option(metavar=DURATION, help="Stop the query after this time.")] = (
        f"{SQL_TIME_S:g}s"
    )
    as_json: Json = False
    as_csv: Csv = False
    lake: LakeDir = Path(DEFAULT_LAKE)
    master: Master = None
    connect: Connect = None


@with_options(SqlOptions)
def sql(options: SqlOptions) -> ExitCode:
    """Query the lake with Spark SQL.

    For example: unibus pipeline sql "SELECT outcome, count(*) FROM messages GROUP BY 1"

    Exit code 3 if there are no rows.
    """
    from unibus.cli.pipeline.view import show
    from unibus.pipeline.reports.sql_text import wrapped

    _not_both(options.as_json, options.as_csv)
    limit = limit_of(options.limit, most=ROWS_MAX) or ROWS_MAX
    seconds = seconds_of("--time-limit", options.time_limit)
    text = sys.stdin.read() if options.sql == STDIN else options.sql
    wrapped(text, 1)  # Rejects what is not a SELECT before Spark is started for it.
    request = ReportRequest("sql", limit=limit, text=text, time_s=seconds)
    answer = asked(options.lake, request, Where(options.master, options.connect))
    return show(answer, options.as_json, options.as_csv, limit)


def _not_both(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise UsageError("--csv and --json exclude each other", "use one of them")


def asked(path: Path, request: ReportRequest, where: Where) -> "Answer":
    """Answered by the server of the lake if one runs and no other Spark was named."""
    reply = _of_server(path, request) if where == Where() else None
    if reply is not None and reply.answer is not None:
        return reply.answer
    lake = open_lake(path)
    if not lake.done():
        raise StoreUnavailable(f"the lake {path} is empty", "`unibus pipeline run --once` fills it")
    spark = where.session(path, quick=True)
    with extras():
        from unibus.pipeline.reports.asking import answer
    try:
        return answer(spark, lake, request)
    except SparkLost as error:
        aside(f"{error.what}; the query runs again")
        return answer(where.session(path, quick=True), lake, request)


def _of_server(path: Path, request: ReportRequest) -> Reply | None:
    from unibus.pipeline.serving.client import address_of, ask

    if not path.is_dir():
        raise no_lake(path)
    reply = ask(path, request)
    if reply is None:
        if address_of(path) is not None:
            aside("the server of this lake no longer runs")
        return None
    if reply.refusal is not None:
        error = reply.refusal.as_error()
        if isinstance(error, SparkLost):
            aside("the Spark of this lake's server has ended")
            return None
        raise error
    return reply


def trace(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A message id, a correlation id or a trace id.", show_default=False)
    ],
    source: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="WHERE", help="Only this source, instead of the sources of the lake."),
    ] = None,
    as_json: Json = False,
    lake: LakeDir = Path(DEFAULT_LAKE),
) -> ExitCode:
    """Show the path of a message, or of all messages of a trace, over channels and domains.

    To a pipe it writes one JSON line for each event.

    Exit code 3 if no segment has an event of it.
    """
    from unibus.cli.pipeline.trace import show_found

    found = _found(lake, id, source)
    if found.unread:
        typer.echo(_about_unread(found.unread), err=True)
    if not found.events:
        raise MessageNotFound(
            f"no segment has an event of {id!r}",
            "check that the id is complete; events that are not captured yet are not found",
        )
    show_found(found, as_json)
    return ExitCode.OK


def _about_unread(paths: list[str]) -> str:
    shown = ", ".join(printable(each) for each in paths[:UNREAD_SHOWN])
    more = len(paths) - UNREAD_SHOWN
    are_segments = all(each.endswith(".parquet") for each in paths)
    one, several = ("segment", "segments") if are_segments else ("source", "segments or sources")
    what = f"1 {one}" if len(paths) == 1 else f"{len(paths)} {several}"
    return f"{what} could not be read: {shown}{f' and {more} more' if more > 0 else ''}"


def _found(path: Path, id: str, source: list[str] | None) -> FoundEvents:
    from unibus.cli.pipeline.sources import opened_sources

    if not source and path.is_dir():
        reply = _of_server(path, ReportRequest("trace", text=id))
        if reply is not None and reply.found is not None:
            return reply.found
    if not source and path != Path(DEFAULT_LAKE):
        open_lake(path)  # A mistyped name is an error, not a search in the default capture.
    with extras():
        from unibus.pipeline.reports.tracing import find_events
    with opened_sources(path, source, keep_damaged=True) as sources:
        return find_events(sources, id)
