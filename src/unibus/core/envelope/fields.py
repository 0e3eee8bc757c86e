"""Sets message properties by name, and checks every value.

This is the boundary between the arguments of a caller and the envelope: behind it the types of all properties are
known. The aliases of a property (`label` for `subject`) are accepted here and nowhere else.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, cast
from uuid import UUID

from mypy_extensions import i64

from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.message_properties import TEXT_FIELDS, HeaderValue, MessageProperties
from unibus.errors import HeaderInvalid, UsageError
from unibus.limits import HEADER_COUNT_MAX, HEADER_NAME_CHARS_MAX
from unibus.near_names import hint_for_name
from unibus.other_words import meant_among

# Other names of a field, as other message buses have them.
ALIASES: Final = {
    "label": "subject",
    "metadata": "headers",
    "properties": "headers",
    "custom": "headers",
    "tracing": "trace",
    "transaction_id": "tx_id",
}
NAMES: Final = (*TEXT_FIELDS, "headers", "trace", "trace_id", "ttl", "scheduled_at", *ALIASES)
# Arguments of their own, not fields: `send` takes all of these, `publish` the first.
BESIDE: Final = ("priority", "message_id", "delay", "durability", "on_duplicate")
_TEXT_NAMES: Final = frozenset(TEXT_FIELDS)

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

SECONDS_MAX: Final = 6e9
"""190 years. Added to any date of this century, the instant still fits into 64 bits of nanoseconds."""

LONE_SURROGATE_HINT: Final = "replace it: text.encode('utf-8', 'replace').decode()"


def set_fields(properties: MessageProperties, fields: Mapping[str, object]) -> None:
    """Set every given field, or raise. None leaves a field unchanged."""
    for given, value in fields.items():
        if value is not None:
            _set_field(properties, ALIASES.get(given, given), value)


def _set_field(properties: MessageProperties, name: str, value: object) -> None:
    if name in _TEXT_NAMES:
        setattr(properties, name, _text(name, value))
    elif name == "headers":
        set_headers(properties, value)
    elif name == "trace":
        properties.trace = _texts(value)
    elif name == "trace_id":
        properties.trace = {**properties.trace, "trace_id": _text(name, value)}
    elif name == "ttl":
        properties.ttl_ns = seconds_ns("ttl", value)
    elif name == "scheduled_at":
        properties.scheduled_at_ns = _instant_ns(value)
    elif name in BESIDE:
        takers = "send and publish take" if name == "priority" else "send takes"
        raise UsageError(f"{name!r} is not a field of a message", f"{takers} it as a separate argument")
    else:
        known = (*NAMES, *BESIDE, "payload")
        hint = hint_for_name(name, known, "see Message", meant_among(known))
        raise UsageError(f"a message has no field {name!r}", hint)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {type(value).__name__}")
    return value


def plain_text(what: str, value: object) -> str:
    """Text that every journal can write: an exact `str` without a lone surrogate.

    The text in a message is checked when the message is encoded. This is for text that reaches a store outside of a
    message, such as the name of an entity.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, not {type(value).__name__}")
    text = exact_text(value)
    if not is_writable(text):
        raise UsageError(f"{what} has a lone surrogate, which UTF-8 cannot encode", LONE_SURROGATE_HINT)
    return text


def is_writable(text: str) -> bool:
    try:
        return text.isascii() or len(text.encode()) > 0
    except UnicodeEncodeError:
        return False


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UsageError(f"trace must be a mapping of text to text, not {type(value).__name__}")
    return {_text("trace key", key): _text(f"trace[{key!r}]", text) for key, text in value.items()}


def checked_headers(value: object) -> dict[str, HeaderValue]:
    """A copy of the headers, each value of a type that every encoding preserves. Raises HeaderInvalid."""
    properties = MessageProperties()
    set_headers(properties, value)
    return properties.headers


def set_headers(properties: MessageProperties, value: object) -> None:
    """Check the headers and set a copy of them. If all values are plain, the properties remember that."""
    given = value if isinstance(value, dict) else _as_dict(value)
    if len(given) > HEADER_COUNT_MAX:
        raise HeaderInvalid(f"the message has {len(given)} headers, at most {HEADER_COUNT_MAX} are allowed")
    headers: dict[str, HeaderValue] = {}
    plain = True
    for name, content in given.items():
        headers[_header_name(name)] = checked_header(name, content)
        kind = type(content)
        plain = plain and (kind is str or kind is int or kind is bool or kind is float or content is None)
    properties.headers = headers
    if plain:
        properties.trust_headers()


def _as_dict(value: object) -> dict[object, object]:
    if isinstance(value, Mapping):
        return dict(value)
    raise HeaderInvalid(f"headers must be a mapping, not {type(value).__name__}")


def _header_name(name: object) -> str:
    if not isinstance(name, str) or not name or len(name) > HEADER_NAME_CHARS_MAX:
        raise HeaderInvalid(f"header name {name!r:.80} must be text of 1 to {HEADER_NAME_CHARS_MAX} characters")
    return name


def checked_header(name: object, value: object) -> HeaderValue:
    """The same object, checked. The result is not typed as int, because compiled code would turn a bool into 1."""
    # The most common types first. Compiled, a test for several types at once costs ten times as much.
    if isinstance(value, str) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        _check_range(name, value)
    elif isinstance(value, datetime):
        if value.utcoffset() is None:
            raise HeaderInvalid(f"header {name!r} is a datetime without a time zone", "add one, for instance UTC")
    elif not isinstance(value, (Decimal, bytes, UUID, timedelta)):
        raise HeaderInvalid(
            f"header {name!r} has the unsupported type {type(value).__name__}",
            "use bool, int, float, Decimal, str, bytes, UUID, datetime or timedelta; put structures into the body",
        )
    return cast(HeaderValue, value)


def _check_range(name: object, value: int) -> None:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise HeaderInvalid(f"the number in header {name!r} does not fit into 64 bits", "send it as Decimal or text")


def seconds_ns(name: str, value: object) -> i64:
    """Seconds (a number or a timedelta) as nanoseconds. Raises UsageError for 0, negative, infinite or absurd times."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds <= SECONDS_MAX:
        # At least 1: rounded to 0 it would mean "no limit".
        nanoseconds: i64 = max(round(seconds * 1e9), 1)
        return nanoseconds
    raise UsageError(f"{name} {value!r} is not a positive number of seconds", "a timedelta works too")


def _instant_ns(value: object) -> i64:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise UsageError(
            f"scheduled_at must be a datetime with a time zone, got {value!r:.80}", "for instance datetime.now(UTC)"
        )
    elapsed = value - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000_000 + elapsed.microseconds * 1_000
    if 0 < nanoseconds <= _INT64_MAX:
        return nanoseconds
    raise UsageError(f"scheduled_at {value} is out of range", "from 1970 to 2262")
