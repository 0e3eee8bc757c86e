"""The four filters: what they match, what they reject, and that `matches` raises nothing but EvaluationError."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import Int32, MessageProperties
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.errors import EvaluationError, FilterInvalid


def message(headers: dict[str, object] | None = None, **fields: object) -> Message:
    return Message.new("orders").with_fields({"headers": headers or {}, **fields})


BARE = Message.new("orders")


def test_true_and_false() -> None:
    assert TrueFilter().matches(BARE)
    assert not FalseFilter().matches(BARE)
    assert (TrueFilter().text, FalseFilter().text) == ("1 = 1", "1 = 0")


SYSTEM = [
    ("content_type", "content_type"),
    ("correlation_id", "correlation_id"),
    ("label", "subject"),
    ("subject", "subject"),
    ("reply_to", "reply_to"),
    ("reply_to_session_id", "reply_to_session_id"),
    ("session_id", "session_id"),
    ("to", "to"),
]


@pytest.mark.parametrize(("field", "where"), SYSTEM)
def test_a_correlation_filter_on_a_system_property(field: str, where: str) -> None:
    wanted = CorrelationFilter(**{field: "x"})
    assert wanted.matches(message(**{where: "x"}))
    assert not wanted.matches(message(**{where: "X"}))
    assert not wanted.matches(message(**{where: "xx"}))
    assert not wanted.matches(message())
    assert not wanted.matches(BARE)


def test_a_correlation_filter_on_the_message_id() -> None:
    one = message()
    assert CorrelationFilter(message_id=one.id).matches(one)
    assert not CorrelationFilter(message_id=one.id).matches(message())


PROPERTIES = [
    # wanted, what the message has, whether that is the same
    ("red", "red", True),
    ("red", "Red", False),
    ("2", 2, False),
    (2, "2", False),
    (2, 2, True),
    (2, Int32(2), True),
    (Int32(2), 2, True),
    (2, 2.0, True),
    (2, Decimal("2.0"), True),
    (2.5, Decimal("2.5"), False),
    (1, True, False),
    (True, 1, False),
    (True, True, True),
    (True, False, False),
    (b"x", b"x", True),
    (b"x", "x", False),
    (UUID(int=1), UUID(int=1), True),
    (UUID(int=1), str(UUID(int=1)), False),
    (timedelta(seconds=1), timedelta(seconds=1), True),
    (timedelta(seconds=1), 1, False),
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), True),
    (datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), True),
    ("x", None, False),
]


@pytest.mark.parametrize(("wanted", "has", "same"), PROPERTIES)
def test_a_correlation_filter_compares_by_type(wanted: object, has: object, same: bool) -> None:
    one = CorrelationFilter(properties={"k": wanted})  # type: ignore[dict-item]
    assert one.matches(message({"k": has})) is same
    assert one.matches(message({"K": has})) is same
    assert not one.matches(message({"other": has}))


def test_a_correlation_filter_asks_for_all_of_its_properties() -> None:
    wanted = CorrelationFilter("high", {"color": "red"}, subject="s")
    assert wanted.matches(message({"color": "red"}, correlation_id="high", subject="s"))
    assert not wanted.matches(message({"color": "red"}, correlation_id="low", subject="s"))
    assert not wanted.matches(message({"color": "blue"}, correlation_id="high", subject="s"))
    assert not wanted.matches(message({"color": "red"}, correlation_id="high"))
    assert (wanted.system, wanted.properties) == ({"CorrelationId": "high", "Label": "s"}, {"color": "red"})
    assert wanted.text == "sys.CorrelationId = 'high' AND sys.Label = 's' AND color = @p0"


def test_a_lenient_correlation_filter() -> None:
    assert CorrelationFilter(properties={"n": 2}, mode="lenient").matches(message({"n": "2"}))
    assert CorrelationFilter(properties={"n": "2"}, mode="lenient").matches(message({"n": 2}))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CorrelationFilter(), "has no property"),
        (lambda: CorrelationFilter(labl="x"), "did you mean label"),
        (lambda: CorrelationFilter(label="x", subject="y"), "two names"),
        (lambda: CorrelationFilter(color="x"), "properties="),
        (lambda: CorrelationFilter(subject=5), "must be text"),
        (lambda: CorrelationFilter(properties={"a": [1]}), "cannot be compared"),
        (lambda: CorrelationFilter("x", mode="loose"), "no filter mode"),
        (lambda: SqlFilter("a = 1", mode="loose"), "no filter mode"),
        (lambda: SqlFilter("a = @x"), "no value for the parameter @x"),
        (lambda: SqlFilter("a = @limt", {"limit": 1}), "did you mean limit"),
        (lambda: SqlFilter("a = @x", {"@x": 2**63}), "does not fit into 64 bits"),
        (lambda: SqlFilter("a = @x", {"@x": object()}), "cannot be compared"),
        (lambda: SqlFilter("a = @x", {"@x": 1, "X": 2}), "two values"),
        (lambda: SqlFilter("a = @x", {5: 1}), "must be text, got 5"),
    ],
)
def test_what_a_filter_refuses(make: "object", words: str) -> None:
    assert callable(make)
    with pytest.raises(FilterInvalid, match=words):
        make()


def test_a_parameter_that_is_missing_is_told_with_its_place() -> None:
    with pytest.raises(FilterInvalid) as caught:
        SqlFilter("a = @x AND b = @y", {"x": 1})
    assert caught.value.position == 15


def test_parameters_are_given_with_the_sign_or_without_in_any_case() -> None:
    for name in ("@Limit", "limit", "LIMIT"):
        assert SqlFilter("n > @limit", {name: 5}).matches(message({"n": 6}))


def test_newid_draws_from_the_argument() -> None:
    drawn = iter([UUID(int=1), UUID(int=2)])
    wanted = SqlFilter("id = newid()", new_id=lambda: next(drawn))
    one = message({"id": UUID(int=2)})
    assert not wanted.matches(one)
    assert wanted.matches(one)
    with pytest.raises(EvaluationError, match="StopIteration"):
        wanted.matches(one)
    with pytest.raises(EvaluationError, match="new_id"):
        SqlFilter("id = newid()").matches(one)


class Odd:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("odd")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, Odd(), object(), 2**70, Decimal("sNaN"), Decimal("NaN"), float("nan")]
)
@pytest.mark.parametrize(
    "text", ["a = 1", "a > 1.5", "a = 'x'", "a IN (1, 'x', @d)", "a LIKE 'x'", "a + 1 = 2", "-a < @d"]
)
def test_headers_that_nobody_checked_give_an_answer_or_our_error(value: object, text: str) -> None:
    one = Message.new("c")
    one.properties = MessageProperties({"a": value})  # type: ignore[dict-item]
    for mode in ("azure", "lenient"):
        answers: list[object] = []
        try:
            answers.append(SqlFilter(text, {"d": Decimal(1)}, mode).matches(one))
        except EvaluationError as error:
            answers.append(error.what)
        assert isinstance(answers[0], (bool, str))


def test_the_exact_name_wins_and_then_the_first() -> None:
    one = message({"Color": "first", "COLOR": "second"})
    assert SqlFilter("COLOR = 'second'").matches(one)
    assert SqlFilter("Color = 'first'").matches(one)
    assert SqlFilter("color = 'first'").matches(one)


def test_an_exact_name_without_a_value_is_not_replaced_by_another_case() -> None:
    for headers in ({"color": None, "Color": "red"}, {"Color": "red", "color": None}):
        one = message(dict(headers))
        assert SqlFilter("color IS NULL").matches(one)
        assert SqlFilter("Color = 'red'").matches(one)


def test_headers_that_come_and_go_are_noticed() -> None:
    wanted = SqlFilter("COLOR = 'red'")
    one = message({"color": "red"})
    other = message({"colour": "red"})
    assert [wanted.matches(each) for each in (one, other, one, BARE, one)] == [True, False, True, False, True]
    spelled = [message({name: "red"}) for name in ("color", "cOLOR", "colour", "Color")]
    assert [wanted.matches(each) for each in spelled] == [True, True, False, True]
    assert one.properties is not None
    one.properties.headers["x"] = 1
    assert SqlFilter("X = 1").matches(one)
    del one.properties.headers["color"]
    assert not wanted.matches(one)


def test_a_pattern_that_a_message_brings_is_bound() -> None:
    wanted = SqlFilter("a LIKE b")
    assert wanted.matches(message({"a": "x" * 1024, "b": "x" * 1024}))
    with pytest.raises(EvaluationError, match="1024 characters"):
        wanted.matches(message({"a": "x", "b": "%" * 1025}))


def test_equal_filters() -> None:
    assert SqlFilter("a=1") == SqlFilter("A = 1".replace("A", "a"))
    assert SqlFilter("a=1") != SqlFilter("a=1.0")
    assert SqlFilter("a=1") != SqlFilter("a=1", mode="lenient")
    assert SqlFilter("a=@x", {"x": 1}) != SqlFilter("a=@x", {"x": True})
    assert hash(SqlFilter("a=@x", {"x": 1})) == hash(SqlFilter("a = @x", {"@x": 1}))
    assert TrueFilter() != SqlFilter("1 = 1")
    assert TrueFilter() != "1 = 1"
    assert isinstance(TrueFilter(), Filter)
    assert repr(SqlFilter("a=1")) == "<SqlFilter 'a = 1'>"


def test_what_stands_behind_a_condition_that_does_not_hold_is_not_evaluated() -> None:
    guarded = SqlFilter("d <> 0 AND 10 / d > 2")
    assert guarded.matches(message({"d": 3}))
    assert not guarded.matches(message({"d": 0}))
    assert not guarded.matches(message())
    with pytest.raises(EvaluationError, match="zero"):
        SqlFilter("10 / d > 2 AND d <> 0").matches(message({"d": 0}))


def test_why_it_does_not_match() -> None:
    wanted = SqlFilter("color = 'red' AND (price > @limit OR vip = TRUE) AND n / 0 = 1", {"limit": 10})
    shown = [
        (part.depth, part.text, part.shown)
        for part in wanted.explain(message({"color": "red", "price": 5, "n": Int32(7)}))
    ]
    assert shown == [
        (
            0,
            "color = 'red' AND (price > @limit OR vip = TRUE) AND n / 0 = 1",
            "error: a whole number is divided by zero",
        ),
        (1, "color = 'red'", "TRUE"),
        (2, "color", "'red'"),
        (1, "price > @limit OR vip = TRUE", "UNKNOWN"),
        (2, "price > @limit", "FALSE"),
        (3, "price", "5"),
        (3, "@limit", "10"),
        (2, "vip = TRUE", "UNKNOWN"),
        (3, "vip", "NULL"),
        (1, "n / 0 = 1", "error: a whole number is divided by zero"),
        (2, "n / 0", "error: a whole number is divided by zero"),
        (3, "n", "7"),
    ]


def test_every_kind_of_part_is_explained() -> None:
    text = "NOT a IN ('x', b) OR a LIKE p('b') ESCAPE c OR EXISTS(a) OR -n = 2.5 OR a IS NULL OR at = at OR t = t"
    parts = SqlFilter(text).explain(
        message({"a": "x", "n": 2, "t": True, "at": datetime(2024, 1, 1, tzinfo=UTC)}),
    )
    shown = {part.text: part.shown for part in parts}
    assert shown["a IN ('x', b)"] == "TRUE"
    assert shown["NOT a IN ('x', b)"] == "FALSE"
    assert shown["EXISTS(a)"] == "TRUE"
    assert shown["-n"] == "-2"
    assert shown["t"] == "TRUE"
    assert shown["at"] == "datetime 2024-01-01 00:00:00+00:00"
    assert shown["property('b')"] == "NULL"
    assert repr(parts[0]).endswith("->  TRUE")


def test_a_correlation_filter_is_explained_too() -> None:
    (whole, place, parameter) = CorrelationFilter(properties={"k": UUID(int=1)}).explain(message({"k": UUID(int=2)}))
    assert (whole.value, place.value, parameter.value) == (False, UUID(int=2), UUID(int=1))
