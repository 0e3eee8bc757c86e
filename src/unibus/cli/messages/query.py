"""`unibus query`: SQL over the messages and the history of a store. It only reads; see stores/query/tables.py."""

import csv
import io
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.management import Asked
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import Csv, Json, Limit, limit_of
from unibus.cli.terminal.table import Cell, CellKind, TableColumn, print_table
from unibus.counting import counted
from unibus.errors import UsageError
from unibus.limits import QUERY_MEMORY_MB_DEFAULT, QUERY_ROWS_DEFAULT, QUERY_ROWS_MAX, QUERY_TIME_S_DEFAULT

if TYPE_CHECKING:
    from unibus.stores.query.result import QueryResult, Value

NONE: Final = "–"
STDIN: Final = "-"
SQL_HELP: Final = "A SELECT over messages, dead_letters, events and outgoing; - reads it from standard input."


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help=SQL_HELP, show_default=False)],
    parameters: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="VALUE", help="The value of the next ? in it. May be repeated."),
    ] = None,
    as_csv: Csv = False,
    as_json: Json = False,
    limit: Limit = str(QUERY_ROWS_DEFAULT),
    time_limit: Annotated[
        str, typer.Option(metavar=METAVAR, help="Stop the query after this time.")
    ] = f"{QUERY_TIME_S_DEFAULT:g}s",
    memory: Annotated[
        float, typer.Option(metavar="MB", help="Stop the query at this memory use.")
    ] = QUERY_MEMORY_MB_DEFAULT,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Query messages and history with SQL.

    Prints a table on a terminal, or a block for each row if the terminal is too narrow; JSON Lines to a pipe. For
    example: unibus query "SELECT channel, status, count(*) FROM messages GROUP BY 1, 2"

    Exit code 3 if there are no rows.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other", "use one of them")
    rows = limit_of(limit, most=QUERY_ROWS_MAX) or QUERY_ROWS_MAX
    seconds = seconds_of("--time-limit", time_limit)
    text = sys.stdin.read() if sql == STDIN else sql
    with managed(url) as bus:
        result = bus.query(Asked(text, parameters or [], rows, seconds, memory))
    if as_csv:
        write_csv(result)
    elif as_json or not is_terminal():
        write_lines(result)
    elif result:
        _show(result)
    flush()
    _report(result, rows)
    return ExitCode.OK if result else ExitCode.NOTHING_MATCHED


def _report(result: "QueryResult", rows: int) -> None:
    if result.truncated:
        typer.echo(f"there are more than {counted(rows, 'row')}; --limit shows more", err=True)
    else:
        aside(f"{counted(len(result), 'row')} in {result.seconds:.2f} s")


def write_lines(result: "QueryResult") -> None:
    for record in result.dicts():
        write_json(record)


def write_csv(result: "QueryResult") -> None:
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([["" if value is None else _text(value) for value in row] for row in result])
    write(page.getvalue().encode("utf-8"))


def _text(value: "Value") -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _show(result: "QueryResult") -> None:
    columns = []
    for place, name in enumerate(result.columns):
        numbers = all(isinstance(row[place], (int, float, type(None))) for row in result)
        columns.append(TableColumn(printable(name), CellKind.FIGURE if numbers else CellKind.TEXT))
    print_table(columns, [[_cell(value) for value in row] for row in result])


def _cell(value: "Value") -> "Cell":
    from rich.text import Text

    return Text(NONE, "dim") if value is None else _text(value)
