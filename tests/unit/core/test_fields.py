"""Fields by name, with every value checked."""

from collections import ChainMap
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID

import pytest

from unibus.core.envelope.fields import ALIASES, NAMES, checked_headers, set_fields
from unibus.core.envelope.message_properties import TEXT_FIELDS, Int32, MessageProperties
from unibus.errors import HeaderInvalid, UsageError
from unibus.limits import HEADER_COUNT_MAX, HEADER_NAME_CHARS_MAX


def with_fields(**fields: object) -> MessageProperties:
    properties = MessageProperties()
    set_fields(properties, fields)
    return properties


@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_every_text_field_is_set_by_its_name_and_takes_only_text(name: str) -> None:
    assert getattr(with_fields(**{name: "text"}), name) == "text"
    with pytest.raises(UsageError, match=f"{name} must be text, not int"):
        with_fields(**{name: 1})


def test_none_leaves_a_field_as_it_is() -> None:
    properties = with_fields(subject="s", headers={"a": 1}, ttl=1)
    set_fields(properties, {"subject": None, "headers": None, "ttl": None})
    assert (properties.subject, properties.headers, properties.ttl_ns) == ("s", {"a": 1}, 1_000_000_000)


@pytest.mark.parametrize(
    ("alias", "value", "name", "stored"),
    [
        ("label", "l", "subject", "l"),
        ("metadata", {"a": 1}, "headers", {"a": 1}),
        ("properties", {"a": 1}, "headers", {"a": 1}),
        ("custom", {"a": "1"}, "headers", {"a": "1"}),
        ("tracing", {"k": "v"}, "trace", {"k": "v"}),
        ("transaction_id", "t", "tx_id", "t"),
    ],
)
def test_the_other_designs_names_mean_the_same_field(alias: str, value: object, name: str, stored: object) -> None:
    assert getattr(with_fields(**{alias: value}), name) == stored


def test_every_alias_is_tested_and_leads_to_a_field() -> None:
    assert set(ALIASES) == {"label", "metadata", "properties", "custom", "tracing", "transaction_id"}
    assert set(ALIASES.values()) <= set(NAMES)


def test_a_trace_id_joins_the_trace() -> None:
    properties = with_fields(trace={"k": "v"})
    set_fields(properties, {"trace_id": "t"})
    assert properties.trace == {"k": "v", "trace_id": "t"}


@pytest.mark.parametrize("trace", ["text", {"k": 1}, {1: "v"}, [("k", "v")]])
def test_a_trace_is_text_to_text(trace: object) -> None:
    with pytest.raises(UsageError):
        with_fields(trace=trace)


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no field 'correlation'") as refused:
        with_fields(correlation="x")
    assert "correlation_id" in refused.value.hint


# Times


@pytest.mark.parametrize(
    ("ttl", "ns"),
    [
        (1, 1_000_000_000),
        (0.1, 100_000_000),
        (2.3, 2_300_000_000),  # 2.3 * 1e9 is a little less: rounded, not cut.
        (timedelta(milliseconds=1), 1_000_000),
        (1e-12, 1),  # Never 0, which would mean "for ever".
        (31_536_000, 31_536_000_000_000_000),
    ],
)
def test_a_ttl_is_seconds_or_a_timedelta(ttl: object, ns: int) -> None:
    assert with_fields(ttl=ttl).ttl_ns == ns


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 9e9, True, "5", timedelta(0), timedelta(-1)])
def test_an_impossible_ttl_is_refused(ttl: object) -> None:
    with pytest.raises(UsageError, match="positive number of seconds"):
        with_fields(ttl=ttl)


class Nowhere(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, when: datetime | None) -> None:
        return None

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "nowhere"


def test_scheduled_at_is_an_instant() -> None:
    instant = datetime(2024, 1, 1, 1, 0, 0, 1, tzinfo=timezone(timedelta(hours=1)))
    assert with_fields(scheduled_at=instant).scheduled_at_ns == 1_704_067_200_000_001_000


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=Nowhere()),
        1_704_067_200,
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),  # 0 means "not scheduled".
        datetime(2263, 1, 1, tzinfo=UTC),  # Beyond 64 bits of nanoseconds.
    ],
)
def test_anything_else_is_no_instant(instant: object) -> None:
    with pytest.raises(UsageError, match="scheduled_at"):
        with_fields(scheduled_at=instant)


# Headers

KEPT = [
    True,
    0,
    -(2**63),
    2**63 - 1,
    Int32(5),
    1.5,
    float("inf"),
    Decimal("1.10"),
    "text",
    b"bytes",
    UUID(int=1),
    datetime(2024, 1, 1, tzinfo=UTC),
    timedelta(days=-1),
    None,
]


@pytest.mark.parametrize("value", KEPT, ids=lambda value: type(value).__name__)
def test_a_header_keeps_its_value_and_type(value: object) -> None:
    kept = checked_headers({"name": value})["name"]
    assert kept is value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (datetime(2024, 1, 1), "time zone"),
        (datetime(2024, 1, 1, tzinfo=Nowhere()), "time zone"),
        ([1], "list"),
        ({"a": 1}, "dict"),
        ((1,), "tuple"),
        (1j, "complex"),
        (bytearray(b"x"), "bytearray"),
        (object(), "object"),
    ],
)
def test_other_values_are_refused_by_name(value: object, told: str) -> None:
    with pytest.raises(HeaderInvalid, match=told) as refused:
        checked_headers({"culprit": value})
    assert "culprit" in refused.value.what
    assert refused.value.hint


@pytest.mark.parametrize("name", ["", 1, None, b"x", "n" * (HEADER_NAME_CHARS_MAX + 1)])
def test_a_header_needs_a_name(name: object) -> None:
    with pytest.raises(HeaderInvalid, match="header name"):
        checked_headers({name: 1})


def test_headers_are_bounded_and_a_mapping() -> None:
    assert len(checked_headers({f"h{n}": n for n in range(HEADER_COUNT_MAX)})) == HEADER_COUNT_MAX
    with pytest.raises(HeaderInvalid, match=f"at most {HEADER_COUNT_MAX}"):
        checked_headers({f"h{n}": n for n in range(HEADER_COUNT_MAX + 1)})
    with pytest.raises(HeaderInvalid, match="mapping"):
        checked_headers([("a", 1)])


@pytest.mark.parametrize("mapping", [MappingProxyType({"a": 1}), ChainMap({"a": 1})])
def test_any_mapping_will_do(mapping: object) -> None:
    assert checked_headers(mapping) == {"a": 1}


def test_headers_are_copied() -> None:
    given = {"a": 1}
    properties = with_fields(headers=given)
    given["b"] = 2
    assert properties.headers == {"a": 1}


def test_a_failed_change_changes_nothing() -> None:
    properties = with_fields(headers={"a": 1})
    with pytest.raises(HeaderInvalid):
        set_fields(properties, {"headers": {"b": 2, "c": [3]}})
    assert properties.headers == {"a": 1}


# Int32


@pytest.mark.parametrize("value", [-(2**31), 0, 2**31 - 1])
def test_an_int32_is_an_int_that_shows_its_width(value: int) -> None:
    number = Int32(value)
    assert number == value
    assert isinstance(number, int)
    assert repr(number) == f"Int32({value})"


@pytest.mark.parametrize("value", [-(2**31) - 1, 2**31])
def test_an_int32_holds_32_bits(value: int) -> None:
    with pytest.raises(HeaderInvalid, match="32 bits"):
        Int32(value)
