"""Durations as options write them."""

import pytest

from unibus.cli.terminal.durations import seconds_of
from unibus.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("30m", 1_800),
        ("2h", 7_200),
        ("1h30m", 5_400),
        ("7D", 604_800),
        ("1w", 604_800),
        ("500ms", 0.5),
        ("1m500ms", 60.5),
        ("PT30S", 30),
        ("p1dt12h", 129_600),
    ],
)
def test_a_time(text: str, seconds: float) -> None:
    assert seconds_of("--older-than", text) == seconds


OTHERS = ("1e300", "1_000", "PT", "P1Y", "p", "1ms2x", "٣s")


@pytest.mark.parametrize("text", ["", "2x", "h", "2h30", "-1", "0", "-5m", "nan", "inf", *OTHERS])
def test_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="--older-than"):
        seconds_of("--older-than", text)


def test_zero_where_it_means_not_to_wait() -> None:
    assert [seconds_of("--timeout", text, zero=True) for text in ("0", "0s", "PT0S")] == [0, 0, 0]
    with pytest.raises(UsageError):
        seconds_of("--timeout", "-1", zero=True)
