"""How the results of the pipeline are shown: a table with plots for people, JSON Lines or CSV for programs."""

import csv
import io
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
import typer

from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.table import CellKind, TableColumn, fitted
from unibus.counting import counted
from unibus.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from unibus.pipeline.reports.answer import Answer, Column, Kind, Plot, Value

NONE: Final = "–"
SERIES_WIDTH: Final = 16
BAR_WIDTH: Final = 40
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_PARTS: Final = " ▏▎▍▌▋▊▉"
_NUMBERS: Final = frozenset({"number", "count", "bytes", "us", "rate"})
_NAMES: Final = frozenset({"channel", "consumer", "domain"})
"""Columns with names of entities, of which the middle may be left out."""
_TROUBLE: Final = frozenset({"dead_lettered", "failed", "quarantined"})


def show(answer: "Answer", as_json: bool = False, as_csv: bool = False, limit: int | None = None) -> ExitCode:
    """In the requested format; default: a table on a terminal, JSON Lines to a pipe. 3 if there are no rows."""
    if as_json and as_csv:
        raise UsageError("--csv and --json exclude each other", "use one of them")
    if as_csv:
        _write_csv(answer)
    elif as_json or not is_terminal():
        for record in answer.records():
            write_json(record)
    else:
        _draw(answer)
    flush()
    _report(answer, limit)
    return ExitCode.OK if answer.rows else ExitCode.NOTHING_MATCHED


def _report(answer: "Answer", limit: int | None) -> None:
    if answer.more:
        typer.echo(f"there are more than {counted(limit or 0, 'row')}; --limit shows more", err=True)
    for note in answer.notes:
        aside(note)
    rows = len(answer.rows)
    aside(f"{counted(rows, 'row')} in {answer.seconds:.2f} s")


def _write_csv(answer: "Answer") -> None:
    from unibus.pipeline.reports.answer import unique

    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(unique([column.name for column in answer.columns]))
    writer.writerows([[_cell(value) for value in row] for row in answer.rows])
    write(page.getvalue().encode("utf-8", "surrogatepass"))


def _cell(value: "Value") -> object:
    if isinstance(value, (list, dict)):
        return msgspec.json.encode(value).decode()
    return "" if value is None else value


# On a terminal


def _draw(answer: "Answer") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if answer.rows:
        print_rows(console, answer.columns, answer.rows)
    for plot in answer.plots:
        console.print()
        console.print(bars(plot))


def print_rows(console: "Console", columns: "Sequence[Column]", rows: "Sequence[Sequence[Value]]") -> None:
    console.print(table(columns, rows, console.width), soft_wrap=True)


def table(columns: "Sequence[Column]", rows: "Sequence[Sequence[Value]]", width: int) -> "Text":
    """A column that is not `drawn` is only in JSON and CSV."""
    places = [at for at, column in enumerate(columns) if column.drawn and _has_any(rows, at, column)]
    headings = [TableColumn(printable(columns[at].title or columns[at].name), _kind(columns[at])) for at in places]
    return fitted(headings, [[_styled(row[at], columns[at]) for at in places] for row in rows], width)


def _kind(column: "Column") -> CellKind:
    if column.kind in _NUMBERS:
        return CellKind.FIGURE
    if column.kind == "text":
        return CellKind.NAME if column.name in _NAMES else CellKind.TEXT
    return CellKind.EXACT


def _has_any(rows: "Sequence[Sequence[Value]]", at: int, column: "Column") -> bool:
    """Hides an empty column of a report, which has a title. A column of a user's own query stays."""
    return not column.title or any(row[at] is not None for row in rows)


def _styled(value: "Value", column: "Column") -> "Text":
    from rich.text import Text

    style = ""
    if value is None:
        style = "dim"
    elif column.kind == "series":
        style = "cyan"
    elif column.name in _TROUBLE and value:
        style = "bold red"
    return Text(shown(value, column.kind), style)


def shown(value: "Value", kind: "Kind") -> str:
    """One value for people."""
    if value is None:
        return NONE
    if kind == "series" and isinstance(value, list):
        return spark_line([float(each) for each in value if isinstance(each, (int, float))])
    if isinstance(value, (list, dict)):
        return printable(msgspec.json.encode(value).decode())
    if kind in ("instant", "when") and isinstance(value, str):
        return _instant(value, kind)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value, kind)
    return printable(str(value))


def _instant(text: str, kind: "Kind") -> str:
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return printable(text)
    return f"{moment:%m-%d %H:%M}" if kind == "when" else f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _number(value: float, kind: "Kind") -> str:
    if kind == "us":
        return duration(value)
    if kind == "bytes":
        return size(value)
    if kind == "rate":
        return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"
    if kind == "number":
        return str(value) if isinstance(value, int) else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")


def duration(us: float) -> str:
    """A duration in microseconds, in a unit that keeps it short."""
    for unit, length_us in (("d", 86_400e6), ("h", 3_600e6), ("m", 60e6), ("s", 1e6), ("ms", 1e3)):
        if us >= length_us:
            amount = us / length_us
            return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"
    return f"{us:.0f} µs"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1_000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.3g} {unit}"
        number /= 1_000
    return f"{number:,.3g} TB"


def spark_line(values: Sequence[float], width: int = SERIES_WIDTH) -> str:
    """Zero has the lowest level, and every value above zero a higher one."""
    drawn = resampled(values, width)
    top = max(drawn, default=0)
    if top <= 0:
        return _LEVELS[0] * len(drawn)
    steps = len(_LEVELS) - 1
    return "".join(_LEVELS[0 if each <= 0 else max(1, round(each / top * steps))] for each in drawn)


def resampled(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values, each the mean of a range: sums would depend on the number of values in the range."""
    if len(values) <= width:
        return list(values)
    edges = [len(values) * each // width for each in range(width + 1)]
    return [sum(values[first:last]) / (last - first) for first, last in itertools.pairwise(edges)]


def bars(plot: "Plot") -> "Table":
    """Horizontal bars, with a resolution of an eighth of a character."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, 1, 0, 0), show_header=False, title=printable(plot.title), title_justify="left")
    drawn.add_column(justify="right", no_wrap=True)
    drawn.add_column(no_wrap=True)
    drawn.add_column(justify="right", no_wrap=True)
    top = max(plot.values, default=0) or 1
    for label, value in zip(plot.labels, plot.values, strict=True):
        whole = int(value) if value == int(value) else value
        drawn.add_row(Text(printable(label)), Text(bar(value / top), "cyan"), Text(shown(whole, plot.kind)))
    return drawn


def bar(share: float, width: int = BAR_WIDTH) -> str:
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _PARTS[eighths % 8].strip()
