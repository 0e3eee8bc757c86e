"""The index evaluates few filters, and its result is that of evaluating all."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import Int32
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.core.filters.index import FilterIndex
from unibus.errors import EvaluationError


def message(headers: dict[str, object] | None = None, **fields: object) -> Message:
    return Message.new("orders").with_fields({"headers": headers or {}, **fields})


def selected(filters: list[Filter], one: Message) -> tuple[list[object], list[object]]:
    selection = FilterIndex(enumerate(filters)).select(one)
    return selection.matched, [failure.key for failure in selection.failed]


def scanned(filters: list[Filter], one: Message) -> tuple[list[object], list[object]]:
    matched: list[object] = []
    failed: list[object] = []
    for at, each in enumerate(filters):
        try:
            if each.matches(one):
                matched.append(at)
        except EvaluationError:
            failed.append(at)
    return matched, failed


PLACED = [
    "color = 'red'",
    "'red' = color",
    "color = 'red' AND price > 10",
    "price > 10 AND color = 'red'",
    "color IN ('red', 'blue')",
    "color = 'red' OR size = 5",
    "(color = 'red' AND price > 1) OR sys.To = 'x'",
    "sys.Label = 'x'",
    "sys.DeliveryCount = 1",
    "color = 'red' AND 1 / price > 0",
    "NOT price > 5 AND (color = 'red')",
    "color = 'a' + 'b'",
    "color = @p",
    "color = NULL",
    "1 = 0",
    "p('color') = 'red'",
]
UNPLACED = [
    "price > 10",
    "color <> 'red'",
    "color LIKE 'r%'",
    "color NOT IN ('red')",
    "NOT color = 'red'",
    "color = 'red' OR price > 5",
    "1 / price > 0 AND color = 'red'",
    "color = size",
    "color IN ('red', size)",
    "EXISTS(color)",
    "1 = 1",
    "p(color) = 'red' AND color = 'red'",
]


@pytest.mark.parametrize("text", PLACED)
def test_a_filter_that_needs_a_value_is_only_asked_for_it(text: str) -> None:
    index = FilterIndex([("k", SqlFilter(text, {"p": 1}))])
    assert index.unplaced == 0
    assert index.candidates(message({"color": "green", "size": 1, "price": 0})) == []


@pytest.mark.parametrize("text", UNPLACED)
def test_a_filter_that_needs_none_is_always_asked(text: str) -> None:
    index = FilterIndex([("k", SqlFilter(text))])
    assert index.unplaced == 1
    assert index.candidates(message()) == [0]


def test_many_that_cannot_match_are_not_asked() -> None:
    rules: list[Filter] = [SqlFilter(f"type = 'order' AND customer = 'c{at}'") for at in range(2000)]
    rules += [CorrelationFilter(f"id-{at}") for at in range(500)]
    rules += [SqlFilter(f"own{at} = {at}") for at in range(500)]
    index = FilterIndex(enumerate(rules))
    one = message({"type": "order", "customer": "c7", "OWN9": 9}, correlation_id="id-3")
    assert len(index) == 3000
    assert index.candidates(one) == [7, 2003, 2509]
    assert index.select(one).matched == [7, 2003, 2509]
    assert index.candidates(Message.new("orders")) == []


def test_the_answers_keep_the_order_of_the_rules_and_have_each_once() -> None:
    rules: list[Filter] = [
        TrueFilter(),
        SqlFilter("a = 5"),
        SqlFilter("b = 'x' OR a = 5"),
        FalseFilter(),
        SqlFilter("a IN ('5', 5)", mode="lenient"),
        SqlFilter("a > 1"),
    ]
    assert selected(rules, message({"a": 5, "b": "x"})) == ([0, 1, 2, 4, 5], [])
    assert selected(rules, message({"a": "5"})) == ([0, 4], [])


VALUES: list[object] = [
    "red",
    "5",
    "5.0",
    " 5 ",
    5,
    Int32(5),
    5.0,
    Decimal(5),
    Decimal("5.00"),
    2**53,
    2**53 + 1,
    float(2**53),
    True,
    1,
    b"5",
    UUID(int=5),
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    timedelta(seconds=5),
    float("nan"),
    Decimal("NaN"),
    float("inf"),
    None,
]


@pytest.mark.parametrize("mode", ["azure", "lenient"])
def test_every_value_is_found_by_whatever_equals_it(mode: str) -> None:
    rules: list[Filter] = [SqlFilter("v = @v", {"v": value}, mode) for value in VALUES]  # type: ignore[dict-item]
    rules += [SqlFilter("v IN (@v, 'other')", {"v": value}, mode) for value in VALUES]  # type: ignore[dict-item]
    for value in VALUES:
        one = message({"V": value})
        assert selected(rules, one) == scanned(rules, one), value


def test_spellings_find_their_own_header() -> None:
    rules: list[Filter] = [SqlFilter("color = 'a'"), SqlFilter("Color = 'a'"), SqlFilter("COLOR = 'b'")]
    rules += [SqlFilter(f"x{at} = 1") for at in range(10)]
    for headers in (
        {"color": "a", "Color": "b"},
        {"Color": "a", "color": "b"},
        {"cOLOR": "a"},
        {"cOLOR": "b", "COLOR": "a"},
    ):
        one = message(dict(headers))
        assert selected(rules, one) == scanned(rules, one), headers


def test_failures_are_told_and_do_not_stop_the_others() -> None:
    rules: list[Filter] = [
        SqlFilter("1 / n > 0"),
        SqlFilter("color = 'red' AND 1 / n > 0"),
        SqlFilter("color = 'blue' AND 1 / n > 0"),
        SqlFilter("missing = 1 AND 1 / n > 0"),
        SqlFilter("1 / n > 0 AND color = 'blue'"),
        SqlFilter("color = 'red'"),
    ]
    one = message({"color": "red", "n": 0})
    assert selected(rules, one) == scanned(rules, one) == ([5], [0, 1, 4])
    (first, *_) = FilterIndex(enumerate(rules)).select(one).failed
    assert first.error.code == "evaluation_error"


def test_an_empty_index() -> None:
    assert FilterIndex([]).select(message({"a": 1})).matched == []
