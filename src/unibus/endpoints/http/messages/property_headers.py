# mypyc: compiled
"""Custom properties as HTTP headers, with their types: `Priority: "High"`, `Retries: 3`, `Express: true`.

    text                a JSON string in double quotes         Customer: "12345,ABC"
    int, float, bool    bare, as JSON writes them              Retries: 3
    datetime            bare, an HTTP date or ISO 8601         Due: Wed, 02 Jul 2014 01:32:27 GMT
    bare other text     read as text, never written

Not every property fits into a header: its name is case-insensitive and must not be Content-Length, and bytes and
decimals have no form. So one more header, `unibus-properties`, holds a JSON object with the properties that plain
headers do not preserve exactly, with the tags of `core/codec/wire.py`. Senders may use it too; it wins over the others.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import msgspec

from unibus.core.codec.wire import tagged, untagged
from unibus.core.envelope.message_properties import HeaderValue, Int32
from unibus.endpoints.http.dates import has_offset, http_text, instant
from unibus.endpoints.http.messages.broker_properties import header_text
from unibus.endpoints.http.messages.standard_headers import is_standard
from unibus.errors import DecodeError, HeaderInvalid, MessageTooLarge

HEADER: Final = "unibus-properties"
HEADER_NAMES: Final = "unibus.header_names"
"""The key of the scope for the header names in their original case, a list of bytes: ASGI has them in lower case only.
Other ASGI servers do not set it, and properties then have lower-case names."""

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}", re.ASCII)
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_NUMBER_START: Final = frozenset("-0123456789")
_decode: Final = msgspec.json.decode


PROPERTIES_CHARS_MAX: Final = 60 * 1024
"""About Azure's limit, 64 KB, and the largest header that clients accept. A message with more could be sent in a JSON
document, but not be received as an answer with headers."""


def check_size(fields: dict[str, object]) -> None:
    """MessageTooLarge if the envelope of a message, its custom properties included, does not fit into headers."""
    size = 0
    for value in fields.values():
        size += _written(value)
    headers = fields.get("headers")
    if isinstance(headers, dict):
        for name, value in headers.items():
            size += _written(name) + _written(value)
    if size > PROPERTIES_CHARS_MAX:
        what = f"the properties of a message take {size} characters, more than {PROPERTIES_CHARS_MAX}"
        raise MessageTooLarge(what, "move large values into the body")


def _written(value: object) -> int:
    """The length in a header. A character beyond ASCII is an escape of six characters."""
    if isinstance(value, str):
        return len(value) if value.isascii() else 6 * len(value)
    return 2 * len(value) if isinstance(value, bytes) else 0


def properties_of_headers(headers: Mapping[str, str]) -> dict[str, object]:
    """The custom properties of a request, whose header names are in lower case."""
    found: dict[str, object] = {name: typed(name, text) for name, text in headers.items() if not is_standard(name)}
    rest = headers.get(HEADER)
    return found if rest is None else _with_rest(found, rest)


def as_spelled(properties: dict[str, object], names: object) -> dict[str, object]:
    """The same properties, with names in the case that the client has written."""
    if not isinstance(names, list):
        return properties
    spelled = {name.lower().decode("latin-1"): name.decode("latin-1") for name in names}
    return {spelled.get(name, name): value for name, value in properties.items()}


def _with_rest(found: dict[str, object], text: str) -> dict[str, object]:
    try:
        given = _decode(text.encode("latin-1"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{HEADER} is not JSON: {error!s:.200}", "send one JSON object") from error
    exact = properties_of_json(given, HEADER)
    for name in exact:
        found.pop(name.lower(), None)
    return found | exact


def properties_of_json(given: object, where: str) -> dict[str, object]:
    """Properties of a JSON document: plain values, or tagged values for types that JSON does not have."""
    if not isinstance(given, dict):
        raise DecodeError(f"{where} is not a JSON object", 'for instance {"Priority": "High"}')
    try:
        return {name: untagged(value) for name, value in given.items()}
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DecodeError(
            f"{where} has a value of an unknown type: {error!s:.200}", "use text, numbers or booleans"
        ) from error


def typed(name: str, text: str) -> HeaderValue:
    """The typed value of a header. HeaderInvalid for a quoted text that is not a JSON string."""
    if not text.isascii():
        text = _from_utf8(name, text)
    first = text[:1]
    if first == '"':
        return _quoted(name, text)
    if first in _NUMBER_START and _NUMBER.fullmatch(text):
        return _number(text)
    if text in ("true", "True"):
        return True
    if text in ("false", "False"):
        return False
    at = instant(text)
    # A time without an offset stays text: its zone is unknown.
    return text if at is None or not (text.endswith("GMT") or has_offset(text)) else at


def _from_utf8(name: str, text: str) -> str:
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError as error:
        raise HeaderInvalid(f"header {name!r:.80} is not UTF-8", "send UTF-8, or a JSON string with escapes") from error


def _quoted(name: str, text: str) -> str:
    try:
        value = _decode(text.encode())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise HeaderInvalid(
            f"header {name!r:.80} begins with a quote, but is not a JSON string",
            'write \\\\ for a backslash, \\" for a quote',
        ) from error
    assert isinstance(value, str)
    return value


def _number(text: str) -> HeaderValue:
    """An integer beyond 64 bits and a float beyond the range of floats stay text."""
    if text.lstrip("-").isdigit():
        # The length is checked first: converting a long one takes quadratic time.
        return int(text) if len(text) < 21 and -(2**63) <= int(text) < 2**63 else text
    number = float(text)
    return number if math.isfinite(number) else text


def headers_of_properties(properties: Mapping[str, HeaderValue]) -> list[tuple[str, str]]:
    """The headers of an answer that carry custom properties."""
    found: list[tuple[str, str]] = []
    rest: dict[str, object] = {}
    alike = _alike(properties)
    for name, value in properties.items():
        text, exact = _text(value)
        lower = name.lower()
        fits = text is not None and _TOKEN.fullmatch(name) and not is_standard(lower) and lower not in alike
        if fits:
            assert text is not None
            found.append((name, text))
        if not (fits and exact):
            rest[name] = tagged(value, False)
    if rest:
        found.append((HEADER, header_text(rest)))
    return found


def _alike(properties: Mapping[str, HeaderValue]) -> set[str]:
    """Lower-case names that several properties share: most clients merge two headers of the same name."""
    names = [name.lower() for name in properties]
    return set() if len(set(names)) == len(names) else {name for name in names if names.count(name) > 1}


def _text(value: HeaderValue) -> tuple[str | None, bool]:
    """The text of a value in a header, and whether parsing it gives the same value and type again."""
    if isinstance(value, str):
        return header_text(value), True
    if isinstance(value, bool):
        return ("true" if value else "false"), True
    if isinstance(value, int):
        return str(int(value)), not isinstance(value, Int32)
    if isinstance(value, float):
        return (repr(value), True) if math.isfinite(value) else (None, False)
    if isinstance(value, datetime):
        return _instant_text(value)
    if isinstance(value, Decimal):
        return (str(value), False) if value.is_finite() else (None, False)
    if isinstance(value, UUID):
        return f'"{value}"', False
    if isinstance(value, timedelta):
        return repr(value.total_seconds()), False
    return None, False


def _instant_text(at: datetime) -> tuple[str | None, bool]:
    """Near both ends of the calendar an instant has a date in its own zone, but none in UTC: no text then."""
    try:
        return http_text(at), True
    except OverflowError:
        return None, False


def json_of_properties(properties: Mapping[str, HeaderValue]) -> dict[str, object]:
    """Properties for a JSON document: plain values unchanged, others with a tag."""
    return {name: tagged(value, False) for name, value in properties.items()}
