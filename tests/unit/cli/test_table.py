"""Tables lose nothing at any width: every column is shown, or each row is a block of all its values."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from unibus.cli.terminal.table import (
    NAME_LEAST,
    CellKind,
    TableColumn,
    fitted,
    lines_of_row,
    shortened,
    wrapped,
)

COLUMNS = (
    TableColumn("name", CellKind.NAME),
    TableColumn("id", CellKind.EXACT),
    TableColumn("reason"),
    TableColumn("active", CellKind.FIGURE),
)
NAMES = ("orders-of-the-northern-region-eu/Subscriptions/high", "q")
ROWS = [
    [NAMES[0], "d2089f0d639753b8-1", "ValidationFailed\nthe field customer.address is missing", "1,234,567"],
    [NAMES[1], "d2089f0d639753b8-2", "", "0"],
]
WIDTHS = (40, 80, 120, 200)


def drawn(rows: list[list[str]], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(fitted(COLUMNS, rows, width), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_value_is_shown_complete_but_for_the_middle_of_a_name(width: int) -> None:
    lines = drawn(ROWS, width)
    text = "\n".join(lines)
    words = {word for row in ROWS for cell in row[1:] for word in cell.split()}
    assert words <= set(text.split())  # No word is broken.
    short = [word for word in text.split() if "…" in word]
    assert short or set(NAMES) <= set(text.split())
    assert all(word.startswith("orders") and word.endswith("/high") for word in short)
    assert all(column.heading in text for column in COLUMNS)


@pytest.mark.parametrize(("width", "is_table"), [(40, False), (80, True), (120, True), (200, True)])
def test_a_table_fits_its_width_and_blocks_replace_one_that_does_not(width: int, is_table: bool) -> None:
    lines = drawn(ROWS, width)
    assert lines[0].startswith("name: ") is not is_table
    assert lines_of_row(COLUMNS, ROWS, width) == (1 if is_table else len(COLUMNS) + 1)
    if is_table:
        assert max(map(len, lines)) <= width
        assert lines[1] == "─" * len(lines[1])
    else:
        # Only a word that is longer than a line exceeds the width: the terminal wraps it, and it can be copied.
        assert [line.strip() for line in lines if len(line) > width] == [NAMES[0]]
        assert [line for line in lines if line.startswith("active:")] == ["active: 1,234,567", "active: 0"]
        assert lines.count("") == 1


def test_two_names_that_would_look_the_same_are_shown_complete() -> None:
    columns = (TableColumn("name", CellKind.NAME), TableColumn("n", CellKind.FIGURE))
    alike = [[f"orders-of-the-{region}-region-of-europe", "1"] for region in ("northern", "southern")]
    for width in (26, 60):
        text = fitted(columns, alike, width).plain
        assert all(name in text for name, _ in alike)
    assert fitted(columns, alike[:1], 26).plain.splitlines()[2] == "orders-of-th…n-of-europe 1"


def test_a_style_and_data_that_would_control_the_terminal() -> None:
    text = fitted([TableColumn("a"), TableColumn("b", CellKind.FIGURE)], [["x\x1b[31m", Text("7", "bold red")]], 80)
    assert text.plain.splitlines()[2] == "x\\x1b[31m  7"
    assert any(span.style == "bold red" for span in text.spans)


@pytest.mark.parametrize("width", [3, 8, 9, NAME_LEAST, 30, 47])
@pytest.mark.parametrize("name", [NAMES[0], "日本語の注文-" * 9, "a/" * 40, "x" * 60])
def test_a_shortened_name_has_both_ends(name: str, width: int) -> None:
    short = shortened(name, width)
    assert cell_len(short) <= width
    assert short.count("…") == 1
    begin, _, end = short.partition("…")
    assert name.startswith(begin)
    assert name.endswith(end)
    assert shortened(name, cell_len(name)) == name


@pytest.mark.parametrize(
    ("width", "short"),
    [
        (31, "orders…on-eu/Subscriptions/high"),
        (24, "orders-of…criptions/high"),
        (9, "orde…high"),
    ],
)
def test_the_last_part_of_a_name_stays_complete_if_it_can(width: int, short: str) -> None:
    assert shortened(NAMES[0], width) == short


def test_text_is_wrapped_between_words_only() -> None:
    assert list(wrapped("one two  three\n\nfour", 7)) == ["one two", "three", "", "four"]
    assert list(wrapped("incomprehensibilities are", 5)) == ["incomprehensibilities", "are"]
