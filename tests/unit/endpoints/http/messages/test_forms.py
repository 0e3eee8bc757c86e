"""Texts of headers and paths, for any input whatever: what we write we read back, and what is wrong has a name."""

import string
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime, parsedate_to_datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.core.envelope.message_properties import HeaderValue, Int32
from unibus.endpoints.http.dates import http_date, http_text, instant, iso_date
from unibus.endpoints.http.messages.broker_properties import fields_of_header
from unibus.endpoints.http.messages.lock_tokens import token_bytes, token_text
from unibus.endpoints.http.messages.property_headers import (
    HEADER,
    headers_of_properties,
    json_of_properties,
    properties_of_headers,
    properties_of_json,
)
from unibus.endpoints.http.messages.standard_headers import is_standard
from unibus.endpoints.http.routing import place_of
from unibus.endpoints.http.unknown_names import UnknownNames
from unibus.errors import DecodeError, HeaderInvalid, UsageError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = st.one_of(st.text(string.ascii_letters + "-_", min_size=1, max_size=20), TEXTS.filter(bool))
VALUES: st.SearchStrategy[HeaderValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1).map(Int32),
    st.floats(allow_nan=False),
    TEXTS,
    st.binary(max_size=20),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
    st.datetimes(datetime(1901, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
)


def alike(one: object, other: object) -> bool:
    return type(one) is type(other) and str(one) == str(other) and one == other


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_properties_come_back_through_headers(properties: dict[str, HeaderValue]) -> None:
    written = headers_of_properties(properties)
    for name, text in written:
        assert name.isascii()
        assert text.isascii()
        assert text.isprintable()
        assert name == HEADER or not is_standard(name.lower())
    lower = {name.lower(): text for name, text in written}
    read = properties_of_headers(lower)
    if len({name.lower() for name in properties}) < len(properties):
        return  # Names that differ by case only cannot be distinguished as headers.
    by_lower = {name.lower(): value for name, value in read.items()}
    assert by_lower.keys() == {name.lower() for name in properties}
    for name, value in properties.items():
        assert alike(by_lower[name.lower()], value), name


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_properties_come_back_through_json(properties: dict[str, HeaderValue]) -> None:
    read = properties_of_json(json_of_properties(properties), "here")
    assert read.keys() == properties.keys()
    assert all(alike(read[name], value) for name, value in properties.items())


@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_any_text_of_a_header_has_a_value_or_a_named_error(text: str) -> None:
    for headers in ({"p": text}, {HEADER: text}):
        try:
            properties_of_headers(headers)
        except (HeaderInvalid, DecodeError):
            pass


@given(st.text(st.characters(max_codepoint=255), max_size=60) | st.from_regex(r'\{"TimeToLive": ?-?[0-9.eE+-]{1,9}\}'))
def test_any_broker_properties_have_a_meaning_or_a_named_error(text: str) -> None:
    try:
        fields_of_header(text, UnknownNames(), "q")
    except (DecodeError, UsageError):
        pass


@given(st.binary(max_size=60))
def test_any_path_has_a_place_or_a_named_error(path: bytes) -> None:
    try:
        place_of(b"/" + path)
    except DecodeError:
        pass


@given(st.binary(min_size=16, max_size=16))
def test_tokens(token: bytes) -> None:
    text = token_text(token)
    assert text == str(UUID(bytes_le=token))
    assert token_bytes(text) == token


@pytest.mark.parametrize("text", ["", "x", "0" * 31, "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c54", "é" * 32])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(UsageError):
        token_bytes(text)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_dates_are_those_of_the_standard_library(at: datetime) -> None:
    ns = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000
    whole = at.replace(microsecond=0)
    assert http_date(ns) == format_datetime(whole, usegmt=True)
    assert parsedate_to_datetime(http_date(ns)) == instant(http_date(ns)) == whole
    assert datetime.fromisoformat(iso_date(ns)) == instant(iso_date(ns)) == at
    assert instant(http_text(at)) == at


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2030-01-31T08:00:00", datetime(2030, 1, 31, 8, tzinfo=UTC)),
        ("2030-01-31T08:00:00.1234567Z", datetime(2030, 1, 31, 8, 0, 0, 123_456, tzinfo=UTC)),
        ("2030-01-31 08:00", datetime(2030, 1, 31, 8, tzinfo=UTC)),
        ("2030-01-31T08:00:00+0200", datetime(2030, 1, 31, 6, tzinfo=UTC)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)),
        ("2030-02-30T08:00:00Z", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("2030", None),
        ("", None),
        ("٢٠٣٠-01-31T08:00:00Z", None),
    ],
)
def test_instants(text: str, expected: datetime | None) -> None:
    assert instant(text) == expected


def test_a_decimal_keeps_its_zeros() -> None:
    assert properties_of_headers(
        {name.lower(): text for name, text in headers_of_properties({"p": Decimal("1.10")})}
    ) == {"p": Decimal("1.10")}
