"""Values of parameters: every type there and back, and what is refused."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from unibus.codecs.atom.descriptions import TypedValue
from unibus.core.envelope.message_properties import HeaderValue, Int32
from unibus.endpoints.http.administration.typed_values import typed, value_of
from unibus.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "", ""),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("int", "-5", Int32(-5)),
        ("long", "1099511627776", 2**40),
        ("long", "5", 5),
        ("double", "1.5", 1.5),
        ("double", "INF", float("inf")),
        ("decimal", "1.10", Decimal("1.10")),
        ("dateTime", "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("dateTime", "2026-01-02T03:04:05.123456Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("duration", "P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("duration", "-PT1S", timedelta(seconds=-1)),
        ("guid", "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        ("base64Binary", "AAE=", b"\x00\x01"),
        ("string", None, None),
    ],
)
def test_there_and_back(kind: str, text: str | None, value: HeaderValue) -> None:
    found = value_of("k", TypedValue(kind, text))
    assert found == value
    assert type(found) is type(value)
    assert typed(value) == TypedValue(kind, text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("dateTime", "2026-01-02T03:04:05.1234567+01:00", datetime(2026, 1, 2, 2, 4, 5, 123456, tzinfo=UTC)),
        ("dateTime", "2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("short", "7", Int32(7)),
        ("float", "0.5", 0.5),
        ("char", "x", "x"),
        ("boolean", "1", True),
    ],
)
def test_other_forms(kind: str, text: str, value: HeaderValue) -> None:
    assert value_of("k", TypedValue(kind, text)) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "1.5"),
        ("int", str(2**31)),
        ("long", str(2**63)),
        ("int", "1_000"),
        ("int", ""),
        ("double", "one"),
        ("boolean", "yes"),
        ("dateTime", "yesterday"),
        ("duration", "1 day"),
        ("guid", "x"),
        ("base64Binary", "A"),
        ("decimal", "NaN"),
        ("decimal", "1e999999999"),
        ("duration", "P999999999999D"),
        ("picture", "x"),
    ],
)
def test_what_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ConfigInvalid, match="'k'"):
        value_of("k", TypedValue(kind, text))
