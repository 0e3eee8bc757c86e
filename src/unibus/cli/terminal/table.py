"""Tables on a terminal that lose nothing: every column is shown, or every row becomes a block of `key: value` lines.

    wide enough                      too narrow for the longest name      too narrow for all columns
    name                     active  name                 active          name:    orders-of-europe/Subscriptions/high
    ─────────────────────────────    ───────────────────────────          active:  3
    orders-of-europe/Su…/high     3  orders-…pe/Su…/high       3

Only names are shortened, in the middle, because both ends of a name are significant; a table in which two names would
look the same becomes blocks. Text is wrapped between words only. Figures and ids are never cut. Programs never see any
of this: the output to a pipe is JSON Lines.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from unibus.cli.terminal.output import printable

if TYPE_CHECKING:
    from rich.text import Text

NAME_LEAST: Final = 20
"""A name is not shortened below this width."""
TEXT_LEAST: Final = 16
"""A column of text is not narrower than this, unless its longest cell is."""
HEAD_LEAST: Final = 8
"""What has to be left of the first part of a name to keep its last part complete: `ord…-eu/Subscriptions/high`."""
ELLIPSIS: Final = "…"
GAPS: Final = (2, 1)
INDENT: Final = 2

Cell: TypeAlias = "str | Text"


class CellKind(enum.Enum):
    NAME = "name"
    """Shortened in the middle."""
    TEXT = "text"
    """Wrapped between words."""
    EXACT = "exact"
    """On one line, complete: people copy it."""
    FIGURE = "figure"
    """As EXACT, at the right of its column."""


class TableColumn(NamedTuple):
    heading: str
    kind: CellKind = CellKind.TEXT


class Layout(NamedTuple):
    widths: list[int]
    gap: int


def print_table(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    # The terminal wraps what is longer than a line: nothing is cut off, and it can be copied as one piece.
    console.print(fitted(columns, rows, console.width), soft_wrap=True)


def fitted(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], width: int) -> "Text":
    """The rows as a table if it fits the width, else as blocks."""
    layout = _layout(columns, rows, width)
    if layout is None or _are_confused(columns, rows, layout):
        return records([column.heading for column in columns], rows, width)
    return _table(columns, rows, layout)


def lines_of_row(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], width: int) -> int:
    """How many lines of the terminal one row needs at least."""
    layout = _layout(columns, rows, width)
    return len(columns) + 1 if layout is None or _are_confused(columns, rows, layout) else 1


# Layout


def _layout(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], width: int) -> Layout | None:
    full = [_full_width(column, [row[at] for row in rows]) for at, column in enumerate(columns)]
    for gap in GAPS:
        if sum(full) + gap * (len(columns) - 1) <= width:
            return Layout(full, gap)
    gap = GAPS[-1]
    least = [_least_width(column, full[at], [row[at] for row in rows]) for at, column in enumerate(columns)]
    spare = width - sum(least) - gap * (len(columns) - 1)
    if spare < 0:
        return None
    for kind in (CellKind.NAME, CellKind.TEXT):  # Names get the spare width first.
        for at, column in enumerate(columns):
            if column.kind is kind:
                more = min(spare, full[at] - least[at])
                least[at], spare = least[at] + more, spare - more
    return Layout(least, gap)


def _full_width(column: TableColumn, cells: Sequence[Cell]) -> int:
    from rich.cells import cell_len

    lines = (line for cell in cells for line in _plain(cell).splitlines())
    return max([cell_len(column.heading), *map(cell_len, lines)])


def _least_width(column: TableColumn, full: int, cells: Sequence[Cell]) -> int:
    from rich.cells import cell_len

    if column.kind is CellKind.NAME:
        return min(full, max(NAME_LEAST, cell_len(column.heading)))
    if column.kind is not CellKind.TEXT:
        return full
    words = (word for cell in cells for word in _plain(cell).split())
    return min(full, max([TEXT_LEAST, cell_len(column.heading), *map(cell_len, words)]))


def _are_confused(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], layout: Layout) -> bool:
    """Whether two different names would look the same."""
    for at, column in enumerate(columns):
        if column.kind is CellKind.NAME:
            names = {_plain(row[at]) for row in rows}
            if len({shortened(name, layout.widths[at]) for name in names}) < len(names):
                return True
    return False


# Drawing


def _table(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], layout: Layout) -> "Text":
    from rich.text import Text

    shown = Text()
    _append_line(shown, columns, [Text(column.heading, "bold") for column in columns], layout)
    shown.append("─" * (sum(layout.widths) + layout.gap * (len(columns) - 1)) + "\n")
    for row in rows:
        _append_line(shown, columns, row, layout)
    shown.rstrip()
    return shown


def _append_line(shown: "Text", columns: Sequence[TableColumn], row: Sequence[Cell], layout: Layout) -> None:
    """One row: as many lines as its longest cell has."""
    from rich.cells import cell_len

    cells = [
        list(_lines(column, cell, layout.widths[at]))
        for at, (column, cell) in enumerate(zip(columns, row, strict=True))
    ]
    for number in range(max(map(len, cells))):
        line = shown.blank_copy()
        for at, column in enumerate(columns):
            text = cells[at][number] if number < len(cells[at]) else ""
            blank = " " * (layout.widths[at] - cell_len(text))
            line.append(" " * (layout.gap if at else 0))
            line.append(blank if column.kind is CellKind.FIGURE else "")
            line.append(text, _style(row[at]))
            line.append("" if column.kind is CellKind.FIGURE else blank)
        line.rstrip()
        shown.append_text(line).append("\n")


def _lines(column: TableColumn, cell: Cell, width: int) -> Iterator[str]:
    text = _plain(cell)
    if column.kind is CellKind.NAME:
        yield shortened(text, width)
    elif column.kind is CellKind.TEXT:
        yield from wrapped(text, width)
    else:
        yield text


def records(names: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> "Text":
    """Each row as a block of names and complete values. A word that is longer than a line is left to the terminal."""
    from rich.cells import cell_len
    from rich.text import Text

    shown = Text()
    label_width = max(map(cell_len, names), default=0) + 1
    for number, row in enumerate(rows):
        shown.append("\n" if number else "")
        for name, cell in zip(names, row, strict=True):
            shown.append(f"{name}:" + " " * (label_width - cell_len(name)), "dim")
            _append_value(shown, cell, label_width + 1, width)
    shown.rstrip()
    return shown


def _append_value(shown: "Text", cell: Cell, column: int, width: int) -> None:
    """Beside its label if its words fit there, else below it."""
    from rich.cells import cell_len

    text, left = _plain(cell), width - column
    longest = max(map(cell_len, text.split()), default=0)
    if longest > left:
        column, left = INDENT, max(1, width - INDENT)
        shown.append("\n" + " " * INDENT)
    lines = list(wrapped(text, left)) or [""]
    shown.append(("\n" + " " * column).join(lines) + "\n", _style(cell))


# Texts


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width`, broken at spaces. A longer word is a line of its own."""
    from rich.cells import cell_len

    for line in text.splitlines() or [""]:
        if cell_len(line) <= width:
            yield line
            continue
        current = ""
        for word in line.split():
            joined = f"{current} {word}" if current else word
            if current and cell_len(joined) > width:
                yield current
                joined = word
            current = joined
        yield current


def shortened(name: str, width: int) -> str:
    """At most `width` wide, with the middle left out; the last part of an entity's name stays complete if it can."""
    from rich.cells import cell_len

    if cell_len(name) <= width:
        return name
    for head, tail in _splits(name):
        left = width - cell_len(tail)
        if left >= HEAD_LEAST:
            return shortened(head, left) + tail
    at_end = (width - 1) // 2
    return _cut(name, width - 1 - at_end) + ELLIPSIS + _cut(name[::-1], at_end)[::-1]


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """The beginning, which is shortened, and the end, which stays: first `/Subscriptions/high`, then `/high`."""
    head, slash, tail = name.rpartition("/")
    topic, _, kind = head.rpartition("/")
    if topic and kind.casefold() == "subscriptions":
        yield topic, f"/{kind}/{tail}"
    if head and slash:
        yield head, f"/{tail}"


def _cut(text: str, width: int) -> str:
    """The first characters, at most `width` wide: some characters are two columns wide."""
    from rich.cells import cell_len

    while cell_len(text) > width:
        text = text[: min(len(text) - 1, max(width, 0))]
    return text


def _plain(cell: Cell) -> str:
    return printable(cell if isinstance(cell, str) else cell.plain)


def _style(cell: Cell) -> str:
    return "" if isinstance(cell, str) else str(cell.style)
