"""How results are shown: plots made of characters, short numbers with units, and the same rows for programs."""

import csv
import io
import json
from decimal import Decimal

import pytest
from rich.console import Console

from unibus.cli.pipeline.view import bar, bars, duration, resampled, show, size, spark_line, table
from unibus.errors import UsageError
from unibus.pipeline.reports.answer import Answer, Column, Plot, Value, plain
from unibus.pipeline.reports.channels import COLUMNS as CHANNELS


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0, 0], "▁▁"), ([1, 1], "██"), ([0, 1, 1000], "▁▂█"), ([0, 50, 100], "▁▅█"), ([7], "█")],
)
def test_a_series(values: list[float], drawn: str) -> None:
    assert spark_line(values) == drawn


def test_a_long_series_is_drawn_as_means() -> None:
    assert resampled([1] * 100, 16) == [1] * 16  # A constant stays constant, although the ranges differ in length.
    assert resampled([0, 4, 1, 3], 2) == [2, 2]
    assert len(spark_line([1] * 1_000)) == 16


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (999, "999 µs"),
        (1_500, "1.5 ms"),
        (123_456, "123 ms"),
        (9e6, "9 s"),
        (90e6, "1.5 m"),
        (9e10, "1.04 d"),
    ],
)
def test_durations(us: float, text: str) -> None:
    assert duration(us) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1_234, "1.23 kB"), (250_000, "250 kB"), (3.5e12, "3.5 TB")]
)
def test_sizes(number: float, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(("share", "drawn"), [(0, ""), (0.0001, "▏"), (0.5, "██"), (1, "████"), (0.3125, "█▎")])
def test_bars_are_drawn_in_eighths(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


def drawn(what: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


ANSWER = Answer(
    [Column("channel"), Column("n", "count"), Column("p95_us", "us", "p95"), Column("quiet", title="quiet")],
    [["a\x1b[31m", 1_234, 1_500.0, None], [None, None, None, None]],
    [Plot("per hour", ["00", "01"], [1.0, 3.0])],
)


def test_a_table_for_people() -> None:
    text = table(ANSWER.columns, ANSWER.rows, 100).plain
    assert text.splitlines()[0].split() == [
        "channel",
        "n",
        "p95",
    ]  # An empty column of a report is hidden.
    assert "1,234" in text
    assert "1.5 ms" in text
    assert "–" in text
    assert "\x1b" not in text  # Data from a message cannot control the terminal.
    lines = drawn(bars(ANSWER.plots[0])).splitlines()
    assert lines[0].strip() == "per hour"
    assert lines[2].count("█") == 40
    assert 13 <= lines[1].count("█") <= 14


def test_programs_get_values(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert show(ANSWER) == 0
    lines = capfdbinary.readouterr().out.splitlines()
    assert json.loads(lines[0]) == {"channel": "a\x1b[31m", "n": 1_234, "p95_us": 1_500.0, "quiet": None}
    show(ANSWER, as_csv=True)
    rows = list(csv.reader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert rows == [["channel", "n", "p95_us", "quiet"], ["a\x1b[31m", "1234", "1500.0", ""], ["", "", "", ""]]
    assert show(Answer([Column("a")], [])) == 3
    with pytest.raises(UsageError):
        show(ANSWER, as_json=True, as_csv=True)


def test_two_columns_of_one_name_stay_two() -> None:
    assert Answer([Column("a"), Column("a")], [[1, 2]]).records() == [{"a": 1, "a_2": 2}]


def test_values_that_json_does_not_have() -> None:
    assert plain({"a": b"\x00\xff", "b": float("nan"), "c": (1, [2.5])}) == {"a": "00ff", "b": "nan", "c": [1, [2.5]]}


@pytest.mark.parametrize(
    ("digits", "told"),
    [
        ("12345678901234567890.12", "12345678901234567890.12"),
        ("0.1", 0.1),
        ("12.340", 12.34),
        ("7.00", 7),
        ("12345678901234567890123456789012345678", 12345678901234567890123456789012345678),
    ],
)
def test_a_decimal_is_a_number_only_where_that_is_the_same(digits: str, told: object) -> None:
    found = plain(Decimal(digits))
    assert (found, type(found)) == (told, type(told))


def test_no_column_is_left_out_on_a_narrow_terminal() -> None:
    name = "emails.checked/Subscriptions"
    row: list[Value] = ["warehouse", name, 1_761, 1_761, 1_761, 0, 0, 0, 3_870_000, 0.02, [1, 2] * 8]
    titles = [column.title or column.name for column in CHANNELS]
    wide = table(CHANNELS, [row], 140).plain.splitlines()
    assert all(title in wide[0] for title in titles)
    narrow = table(CHANNELS, [row], 80).plain.splitlines()
    assert [line.partition(":")[0] for line in narrow] == titles
    assert narrow[1].split() == ["channel:", name]
