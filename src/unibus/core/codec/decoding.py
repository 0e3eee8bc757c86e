"""Decodes a row (row.py) into a message. The row is untrusted.

msgspec has checked the types of the row's fixed fields. Ranges, names, kinds, and everything inside of bodies and
optional values are checked here. Raises DecodeError, or the ValueError, TypeError or ArithmeticError of a bad value,
which codec.py turns into a DecodeError.
"""

from typing import Final, cast

from mypy_extensions import i64

from unibus.core.codec.row import (
    BYTES,
    DELIVERIES,
    EXPIRES,
    FORMATS,
    KIND_MASK,
    KINDS,
    NEWER,
    PLAIN,
    PROPERTIES_FROM,
    RARE,
    SCHEDULED,
    SERIALIZED,
    TAGGED,
    TEXTS_FROM,
    TRACE,
    TTL,
    TYPED,
    Full,
    Headed,
    Hot,
    PlainHeader,
)
from unibus.core.codec.wire import base64_bytes, dict_of, is_plain, text_of, untagged
from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import TEXT_FIELDS, HeaderValue, MessageProperties
from unibus.core.envelope.payload import Serialized
from unibus.errors import DecodeError
from unibus.limits import HEADER_COUNT_MAX, PRIORITY_MAX

_COUNT_MAX: Final = 2**63 - 1

# What is known about the body of a row: the format has no bytes, it has bytes, or msgspec also checked the types.
TEXT: Final = 0
BINARY: Final = 1
CHECKED: Final = 2


def message_of_hot(row: Hot[object], trust: i64) -> Message:
    message = restored(row[2], row[3], _body_of(row[0], row[1], trust), row[6], None)
    _place(message, row[4], row[5])
    return message


def message_of_headed(row: Headed[object], trust: i64) -> Message:
    properties = MessageProperties(_checked_names(row[7]))
    properties.trust_headers()
    message = restored(row[2], row[3], _body_of(row[0], row[1], trust), row[6], properties)
    _place(message, row[4], row[5])
    return message


def message_of_full(row: Full[object, object], trust: i64) -> Message:
    message = restored(row[2], row[3], _body_of(row[0], row[1], trust), row[6], None)
    _place(message, row[4], row[5])
    _read_values(message, _checked_names(row[7]), row[8], row[9])
    return message


def _place(message: Message, sequence: i64, priority: i64) -> None:
    if not 0 <= sequence <= _COUNT_MAX or not 0 <= priority <= PRIORITY_MAX:
        raise DecodeError(f"sequence {sequence} or priority {priority} is out of range")
    message.sequence = sequence
    message.priority = priority


def _checked_names(headers: dict[str, PlainHeader]) -> dict[str, HeaderValue]:
    """msgspec checked the values. The length of a name is bounded by the size of the message."""
    if len(headers) > HEADER_COUNT_MAX or "" in headers:
        raise DecodeError(
            f"the message has {len(headers)} headers (at most {HEADER_COUNT_MAX}), or a header without a name"
        )
    return cast(dict[str, HeaderValue], headers)


def _body_of(form: i64, content: object, trust: i64) -> object:
    kind: i64 = form & KIND_MASK
    if kind == PLAIN:
        if trust == CHECKED or is_plain(content, trust == BINARY):
            return content
        raise DecodeError("the body nests too deeply, or has a value of a type that no body can have")
    if kind == TAGGED:
        return untagged(content)
    if kind >= len(KINDS):
        raise DecodeError(f"the body has an unknown kind {kind}", NEWER)
    data = base64_bytes(content) if trust == TEXT else content
    if not isinstance(data, bytes):
        raise DecodeError(f"the body is {type(data).__name__}, and its kind requires bytes")
    return data if kind == BYTES else Serialized(FORMATS[kind - SERIALIZED], data)


def _read_values(message: Message, headers: dict[str, HeaderValue], mask: i64, values: list[object]) -> None:
    if mask < 0 or mask >> len(RARE):
        raise DecodeError(f"the message has unknown fields (its field mask is {mask:#x})", NEWER)
    at = _read_counts(message, mask, values)
    if headers or mask >> PROPERTIES_FROM:
        message.properties = MessageProperties(headers)
        at = _read_rare(message.properties, mask, values, at)
        at = _read_texts(message.properties, mask >> TEXTS_FROM, values, at)
    if at != len(values):
        raise DecodeError(f"the message has {len(values)} values, but its field mask names {at}")


def _read_counts(message: Message, mask: i64, values: list[object]) -> i64:
    at: i64 = 0
    if mask & EXPIRES:
        message.expires_ns = _count_at(values, at)
        at += 1
    if mask & DELIVERIES:
        message.delivery_count = _count_at(values, at)
        at += 1
    return at


def _read_rare(properties: MessageProperties, mask: i64, values: list[object], at: i64) -> i64:
    if mask & TYPED:
        properties.headers = checked_headers(
            {name: untagged(item) for name, item in dict_of(_value_at(values, at)).items()}
        )
        at += 1
    if mask & TRACE:
        properties.trace = {text_of(key): text_of(text) for key, text in dict_of(_value_at(values, at)).items()}
        at += 1
    if mask & TTL:
        properties.ttl_ns = _count_at(values, at)
        at += 1
    if mask & SCHEDULED:
        properties.scheduled_at_ns = _count_at(values, at)
        at += 1
    return at


def _read_texts(properties: MessageProperties, mask: i64, values: list[object], at: i64) -> i64:
    for name in TEXT_FIELDS:
        if mask & 1:
            setattr(properties, name, text_of(_value_at(values, at)))
            at += 1
        mask >>= 1
    return at


def _value_at(values: list[object], at: i64) -> object:
    if at < len(values):
        return values[at]
    raise DecodeError(f"the message has only {len(values)} values, but its field mask names more")


def _count_at(values: list[object], at: i64) -> i64:
    value = _value_at(values, at)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX:
        return value
    raise DecodeError(f"a time or count in the message must be a whole number of 0 or more, got {value!r:.40}")
