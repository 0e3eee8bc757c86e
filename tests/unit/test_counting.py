"""The noun follows the number."""

import pytest

from unibus.counting import counted


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (-1, "-1 messages"), (1234567, "1,234,567 messages")],
)
def test_the_noun_follows_the_number(count: int, text: str) -> None:
    assert counted(count, "message") == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 retries"), (1, "1 retry"), (3, "3 retries")])
def test_a_plural_can_be_given(count: int, text: str) -> None:
    assert counted(count, "retry", "retries") == text
