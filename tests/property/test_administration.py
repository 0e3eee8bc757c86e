"""Whatever a document holds, its conversion ends in settings that hold or in an error of the bus."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from unibus.bus.entities.azure_names import PROPERTIES
from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import (
    AccessDescription,
    ActionDescription,
    EntityDescription,
    FilterDescription,
    RuleDescription,
    TypedValue,
)
from unibus.core.envelope.message_properties import HeaderValue, Int32
from unibus.core.lifecycle.state.rules import rules_of, text_of
from unibus.core.lifecycle.state.settings import checked_settings
from unibus.endpoints.http.administration.properties import given_settings, replaced_settings
from unibus.endpoints.http.administration.rule_descriptions import description_of, rule_of
from unibus.endpoints.http.administration.typed_values import typed, value_of
from unibus.errors import BusError

WORDS = st.sampled_from(
    [
        *("", "true", "false", "1", "0", "-1", "10", "1e5", "nan", "Active", "Disabled"),
        *("PT1M", "P1D", "P10675199DT2H48M5.4775807S", "P", "PT", "P1Y", "PT1e9S", "P999999999999999D"),
        *("sb://h/q", "sb://", "http://[", "sb://h/%ff"),
    ]
)
TEXT = WORDS | st.text(max_size=30)
KINDS = st.sampled_from([schema.QUEUE, schema.TOPIC, schema.SUBSCRIPTION])
ACCESS = st.tuples(TEXT, st.lists(TEXT, max_size=3).map(tuple), TEXT, TEXT).map(lambda four: AccessDescription(*four))


@given(KINDS, st.dictionaries(st.sampled_from(sorted(PROPERTIES)), TEXT), st.none() | st.lists(ACCESS, max_size=2))
def test_settings(kind: str, values: dict[str, str], access: list[AccessDescription] | None) -> None:
    described = EntityDescription(kind, values, None if access is None else tuple(access))
    try:
        found = given_settings(described)
        assert found == checked_settings(found)
        assert replaced_settings(described, {}).keys() >= found.keys()
    except BusError:
        return


TYPES = st.sampled_from(
    [
        *("string", "int", "long", "byte", "double", "decimal", "boolean"),
        *("dateTime", "duration", "guid", "base64Binary", "picture"),
    ]
)
VALUE_TEXTS = TEXT | st.sampled_from(
    ["0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "1e400", "-PT5S", "2026-11-17T10:00:00Z", "9" * 30]
)
PAIRS = st.lists(
    st.tuples(TEXT, st.tuples(TYPES, st.none() | VALUE_TEXTS).map(lambda two: TypedValue(*two))), max_size=3
).map(tuple)
SQL = TEXT | st.sampled_from(["a = 1", "a = @x", "SET a = @x", "sys.Label LIKE 'x%'"])
FILTERS = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(schema.FILTERS), SQL, PAIRS, st.just(()), PAIRS).map(
        lambda five: FilterDescription(*five)
    ),
)
ACTIONS = st.none() | st.tuples(SQL, PAIRS).map(lambda two: ActionDescription(*two))


@given(FILTERS, ACTIONS)
@example(
    FilterDescription("CorrelationFilter", properties=(("k", TypedValue("dateTime", "0001-01-01T00:00:00+10:00")),)),
    None,
)
def test_rules(condition: FilterDescription | None, action: ActionDescription | None) -> None:
    try:
        rule = rule_of("r", RuleDescription("", condition, action))
        text = text_of([rule])
    except BusError:
        return
    # What was accepted is described, read again, and stored without loss.
    again = rule_of("r", description_of(rule))
    assert again == rule
    assert rules_of(text, "azure") == [rule]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1).map(Int32),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9),
    st.text(max_size=10),
    st.binary(max_size=10),
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(min_value=timedelta(days=-10_000), max_value=timedelta(days=10_000)),
)


@given(VALUES)
@example(Decimal("1e999999"))
@example(datetime(1, 1, 1, tzinfo=UTC))
def test_a_value_keeps_its_type(value: HeaderValue) -> None:
    written = typed(value)
    assert written.text is None or len(written.text) < 200
    if isinstance(value, Decimal) and abs(value.adjusted()) > 40:
        return
    found = value_of("k", written)
    assert found == value
    assert type(found) is type(value)
