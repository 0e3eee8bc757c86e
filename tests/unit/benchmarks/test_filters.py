"""What the benchmark of filters measures is what it says: three match the message, the others do not."""

import pytest

from benchmarks import filters
from benchmarks.filters_topic import FEW, FIELDS, MANY, figures_of, others, wanted
from unibus.core.envelope.message import Message
from unibus.core.filters.filters import SqlFilter
from unibus.limits import SUBSCRIPTIONS_PER_TOPIC_MAX


def test_three_of_the_rules_take_the_message() -> None:
    message = Message.new("orders").with_fields(FIELDS)
    assert [condition.matches(message) for condition in wanted()] == [True] * filters.MATCHING
    assert not any(condition.matches(message) for condition in others(MANY - filters.MATCHING))
    assert FEW < MANY <= SUBSCRIPTIONS_PER_TOPIC_MAX


def test_the_complex_filter_is_decided_by_the_message() -> None:
    def is_taken(color: str, price: int) -> bool:
        message = filters._message(color, price)
        assert isinstance(message, Message)
        return SqlFilter(filters.COMPLEX).matches(message)

    assert [is_taken("red", 20), is_taken("blue", 20), is_taken("red", 5), is_taken("pink", 20)] == [
        True,
        False,
        False,
        False,
    ]


def test_growth_is_told_against_the_small_topic() -> None:
    small, growth = figures_of("memory", 10.0, 40.0)
    assert (small.figure, small.unit, small.ours) == ("topic of 10, memory", "ns", 10.0)
    assert (growth.figure, growth.unit, growth.ours) == ("topic of 2,000 over 10, memory", "times", pytest.approx(4.0))
    assert growth.reaches_target is True
    assert figures_of("memory", 10.0, 51.0)[1].reaches_target is False
