"""Durations as ISO 8601 writes them."""

import pytest

from unibus.bus.entities.iso_duration import LONGEST_S, duration_s, duration_text
from unibus.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1S", 1),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("PT1M", 60),
        ("pt2h", 7_200),
        ("P14D", 14 * 86_400),
        ("P1W", 7 * 86_400),
        ("P1DT2H3M4S", 93_784),
        ("PT0S", 0),
    ],
)
def test_what_they_mean(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "PT0S"),
        (1, "PT1S"),
        (60, "PT1M"),
        (0.5, "PT0.5S"),
        (90, "PT1M30S"),
        (86_400, "P1D"),
        (93_784.25, "P1DT2H3M4.25S"),
        (0.0000001, "PT0.0000001S"),
        (-3, "-PT3S"),
        (59.99999999, "PT1M"),
    ],
)
def test_how_they_are_written(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_the_largest_of_dot_net() -> None:
    assert duration_s("P10675199DT2H48M5.4775807S") > LONGEST_S > duration_s("P10000000D")


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "PT1", "P1Y", "P1M", "-PT1S", "PT1S1M", "PTS", "P1D2H", "T1S"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="not a duration"):
        duration_s(text)
