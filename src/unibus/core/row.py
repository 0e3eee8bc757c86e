"""One message as one row of plain values, which every encoding writes in its own manner.

    form body id channel sequence priority timestamp_ns      Hot: enough for most messages
    headers                                                  Headed: the same with headers
    mask values                                              Full: the same with anything else

`form` holds the version and the kind of the body (KINDS). The body comes next because a writer then learns early how
much memory it needs. `mask` says by its bits which of RARE stand in `values`, in that order. Headers stand in `headers`
when the format can write all of them as they are, else all of them are typed headers among the rare, with the
tags of wire.py. A format that is `binary` has bytes and every float; JSON has not.

The rule: what the writer accepts the reader gives back, and the reader accepts nothing that could not be an envelope.
"""

from typing import Annotated, Final, TypeAlias, TypeVar, cast

import msgspec
from mypy_extensions import i64

from unibus.core.cold import NO_HEADERS, TEXT_FIELDS, Cold, HeaderValue, Int32
from unibus.core.fields import checked_headers
from unibus.core.message import Message, restored
from unibus.core.payload import SerializationFormat, Serialized
from unibus.core.wire import (
    base64_bytes,
    base64_text,
    dict_of,
    exact_scalar,
    exact_text,
    is_plain,
    tagged,
    text_of,
    untagged,
)
from unibus.errors import DecodeError, SerializationFailed
from unibus.limits import HEADER_COUNT_MAX, PRIORITY_MAX

VERSION: Final = 1
KIND_BITS: Final = 4
KIND_MASK: Final = 15
NEWER: Final = "it may come from a newer version of unibus"

# The kinds of body by number. Only append: the numbers are on disks.
FORMATS: Final[tuple[SerializationFormat, ...]] = (
    SerializationFormat.RKYV,
    SerializationFormat.BINCODE,
    SerializationFormat.JSON,
    SerializationFormat.MESSAGE_PACK,
)
BYTES: Final = 0
PLAIN: Final = 1
TAGGED: Final = 2
SERIALIZED: Final = 3
KINDS: Final[tuple[str, ...]] = ("bytes", "json", "tagged", *[f"serialized/{format.value}" for format in FORMATS])

# The types that msgspec checks while it reads and that the compiler trusts afterwards. The other integers' ranges are
# checked in this module, which costs less.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PlainHeader: TypeAlias = str | Int64 | float | bool | None
_Body = TypeVar("_Body")  # To msgspec this is any type. `object` would be a class to look for, at 100 ns.

Hot: TypeAlias = tuple[int, _Body, str, str, int, int, Int64]
Headed: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, dict[str, PlainHeader]]
Full: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, dict[str, PlainHeader], int, list[_Body]]

# The fields by the bits of `mask`. Only append, here and to TEXT_FIELDS: the numbers are on disks.
RARE: Final[tuple[str, ...]] = (
    "expires_ns",
    "delivery_count",
    "headers",
    "trace",
    "ttl_ns",
    "scheduled_at_ns",
    *TEXT_FIELDS,
)
EXPIRES: Final = 0x1
DELIVERIES: Final = 0x2
TYPED: Final = 0x4
TRACE: Final = 0x8
TTL: Final = 0x10
SCHEDULED: Final = 0x20
COLD_FROM: Final = 2
TEXTS_FROM: Final = 6

_COUNT_MAX: Final = 2**63 - 1


def row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """What the encoder is handed: a Hot, Headed or Full, the shortest that holds the message.

    Text of subclasses and integers beyond 64 bits are let through: the encoder refuses them, see `careful_row_of`.
    """
    return _filled(message, message.body, _kind_of(message.body, binary), binary)


def careful_row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """The same with everything spelt out that an encoder may refuse. Slow, for the few messages that need it."""
    other = restored(exact_text(message.id), exact_text(message.channel), None, message.timestamp_ns, None)
    other.priority = message.priority
    other.sequence = message.sequence
    other.expires_ns = message.expires_ns
    other.delivery_count = message.delivery_count
    if message.cold is not None:
        other.cold = _careful_cold(message.cold)
    kind = _kind_of(message.body, binary)
    return _filled(other, message.body, TAGGED if kind == PLAIN else kind, binary)


def _careful_cold(cold: Cold) -> Cold:
    headers = {exact_text(name): exact_scalar(value) for name, value in cold.headers.items()}
    other = Cold(checked_headers(headers), {exact_text(key): exact_text(text) for key, text in cold.trace.items()})
    for name in TEXT_FIELDS:
        text = getattr(cold, name)
        setattr(other, name, None if text is None else exact_text(text))
    other.ttl_ns = cold.ttl_ns
    other.scheduled_at_ns = cold.scheduled_at_ns
    return other


def _filled(message: Message, body: object, kind: i64, binary: bool) -> tuple[object, ...]:
    if message.sequence < 0 or message.priority < 0 or message.priority > PRIORITY_MAX:
        raise SerializationFailed(f"sequence {message.sequence} or priority {message.priority} is out of range")
    form = VERSION << KIND_BITS | kind
    content = body if kind == PLAIN else _content_of(kind, body, binary)
    cold = message.cold
    if message.expires_ns | message.delivery_count == 0:
        # Each row is written out: joining a common part to it would cost as much as the rest.
        if cold is None:
            return (
                form,
                content,
                message.id,
                message.channel,
                message.sequence,
                message.priority,
                message._timestamp_ns,
            )
        if _has_headers_only(cold) and _are_plain(cold, binary):
            return (
                form,
                content,
                message.id,
                message.channel,
                message.sequence,
                message.priority,
                message._timestamp_ns,
                cold.headers,
            )
    values: list[object] = []
    mask = _write_counts(message, values)
    if cold is not None:
        mask |= _write_rare(cold, values, binary) | _write_texts(cold, values)
    headers = NO_HEADERS if cold is None or mask & TYPED else cold.headers
    return (
        form,
        content,
        message.id,
        message.channel,
        message.sequence,
        message.priority,
        message._timestamp_ns,
        headers,
        mask,
        values,
    )


def _kind_of(body: object, binary: bool) -> i64:
    # In the order of cost: a test for bytes is one comparison when compiled, the one for views a search.
    if isinstance(body, bytes):
        return BYTES
    if is_plain(body, binary):
        return PLAIN
    if isinstance(body, Serialized):
        return SERIALIZED + FORMATS.index(body.format)
    return BYTES if isinstance(body, (bytearray, memoryview)) else TAGGED


def _content_of(kind: i64, body: object, binary: bool) -> object:
    if kind == TAGGED:
        return tagged(body, binary)
    data = body.data if isinstance(body, Serialized) else body
    if type(data) is not bytes:
        assert isinstance(data, (bytes, bytearray, memoryview))
        data = bytes(data)
    return data if binary else base64_text(data)


def _are_plain(cold: Cold, binary: bool) -> bool:
    if binary and cold.trusts_headers():
        return True
    for value in cold.headers.values():
        kind = type(value)
        if kind is bytes or kind is Int32 or not is_plain(value, binary, 0):
            return False
    return True


def _has_headers_only(cold: Cold) -> bool:
    return (
        not cold.trace
        and cold.ttl_ns | cold.scheduled_at_ns == 0
        and cold.type is None
        and cold.subject is None
        and cold.content_type is None
        and cold.correlation_id is None
        and cold.reply_to is None
        and cold.reply_to_session_id is None
        and cold.to is None
        and cold.source is None
        and cold.target is None
        and cold.session_id is None
        and cold.partition_key is None
        and cold.routing_key is None
        and cold.dedup_key is None
        and cold.traceparent is None
        and cold.tracestate is None
        and cold.tx_id is None
        and cold.backend_id is None
    )


def _write_counts(message: Message, values: list[object]) -> i64:
    mask: i64 = 0
    if message.expires_ns | message.delivery_count < 0:
        raise SerializationFailed("expiry and delivery count cannot be negative", f"see {message!r}")
    if message.expires_ns:
        mask |= EXPIRES
        values.append(message.expires_ns)
    if message.delivery_count:
        mask |= DELIVERIES
        values.append(message.delivery_count)
    return mask


def _write_rare(cold: Cold, values: list[object], binary: bool) -> i64:
    mask: i64 = 0
    if not _are_plain(cold, binary):
        mask |= TYPED
        values.append({name: tagged(value, binary) for name, value in checked_headers(cold.headers).items()})
    if cold.trace:
        mask |= TRACE
        values.append(cold.trace)
    if cold.ttl_ns | cold.scheduled_at_ns < 0:
        raise SerializationFailed("ttl and schedule cannot be negative")
    if cold.ttl_ns:
        mask |= TTL
        values.append(cold.ttl_ns)
    if cold.scheduled_at_ns:
        mask |= SCHEDULED
        values.append(cold.scheduled_at_ns)
    return mask


def _write_texts(cold: Cold, values: list[object]) -> i64:
    """In the order of TEXT_FIELDS. Written out: reading a field by its name costs twenty times as much."""
    return (
        _written(cold.type, 0x40, values)
        | _written(cold.subject, 0x80, values)
        | _written(cold.content_type, 0x100, values)
        | _written(cold.correlation_id, 0x200, values)
        | _written(cold.reply_to, 0x400, values)
        | _written(cold.reply_to_session_id, 0x800, values)
        | _written(cold.to, 0x1000, values)
        | _written(cold.source, 0x2000, values)
        | _written(cold.target, 0x4000, values)
        | _written(cold.session_id, 0x8000, values)
        | _written(cold.partition_key, 0x1_0000, values)
        | _written(cold.routing_key, 0x2_0000, values)
        | _written(cold.dedup_key, 0x4_0000, values)
        | _written(cold.traceparent, 0x8_0000, values)
        | _written(cold.tracestate, 0x10_0000, values)
        | _written(cold.tx_id, 0x20_0000, values)
        | _written(cold.backend_id, 0x40_0000, values)
    )


def _written(text: str | None, bit: i64, values: list[object]) -> i64:
    if text is None:
        return 0
    values.append(text)
    return bit


def message_of_hot(row: Hot[object], binary: bool) -> Message:
    """Raises DecodeError, or what `untagged` raises, for a row that is no message."""
    message = restored(row[2], row[3], _body_of(row[0], row[1], binary), row[6], None)
    _place(message, row[4], row[5])
    return message


def message_of_headed(row: Headed[object], binary: bool) -> Message:
    cold = Cold(_checked_names(row[7]))
    cold.trust_headers()
    message = restored(row[2], row[3], _body_of(row[0], row[1], binary), row[6], cold)
    _place(message, row[4], row[5])
    return message


def message_of_full(row: Full[object], binary: bool) -> Message:
    message = restored(row[2], row[3], _body_of(row[0], row[1], binary), row[6], None)
    _place(message, row[4], row[5])
    _read_values(message, _checked_names(row[7]), row[8], row[9])
    return message


def _place(message: Message, sequence: i64, priority: i64) -> None:
    if not 0 <= sequence <= _COUNT_MAX or not 0 <= priority <= PRIORITY_MAX:
        raise DecodeError(f"sequence {sequence} or priority {priority} is out of range")
    message.sequence = sequence
    message.priority = priority


def _checked_names(headers: dict[str, PlainHeader]) -> dict[str, HeaderValue]:
    """msgspec checked the values. A name that is too long takes a long message, which is bounded elsewhere."""
    if len(headers) > HEADER_COUNT_MAX or "" in headers:
        raise DecodeError(f"{len(headers)} headers, or one without name", f"at most {HEADER_COUNT_MAX}, all named")
    return cast(dict[str, HeaderValue], headers)


def _body_of(form: i64, content: object, binary: bool) -> object:
    kind: i64 = form & KIND_MASK
    if kind == PLAIN:
        if is_plain(content, binary):
            return content
        raise DecodeError("the body nests too deep or holds what a body cannot hold")
    if kind == TAGGED:
        return untagged(content)
    if kind >= len(KINDS):
        raise DecodeError(f"the body has an unknown kind {kind}", NEWER)
    data = content if binary else base64_bytes(content)
    if not isinstance(data, bytes):
        raise DecodeError(f"the body is {type(data).__name__} where bytes belong")
    return data if kind == BYTES else Serialized(FORMATS[kind - SERIALIZED], data)


def _read_values(message: Message, headers: dict[str, HeaderValue], mask: i64, values: list[object]) -> None:
    if mask < 0 or mask >> len(RARE):
        raise DecodeError(f"unknown fields in mask {mask:#x}", NEWER)
    at = _read_counts(message, mask, values)
    if headers or mask >> COLD_FROM:
        message.cold = Cold(headers)
        at = _read_rare(message.cold, mask, values, at)
        at = _read_texts(message.cold, mask >> TEXTS_FROM, values, at)
    if at != len(values):
        raise DecodeError(f"{len(values)} values where {at} belong")


def _read_counts(message: Message, mask: i64, values: list[object]) -> i64:
    at: i64 = 0
    if mask & EXPIRES:
        message.expires_ns = _count_at(values, at)
        at += 1
    if mask & DELIVERIES:
        message.delivery_count = _count_at(values, at)
        at += 1
    return at


def _read_rare(cold: Cold, mask: i64, values: list[object], at: i64) -> i64:
    if mask & TYPED:
        cold.headers = checked_headers({name: untagged(item) for name, item in dict_of(_value_at(values, at)).items()})
        at += 1
    if mask & TRACE:
        cold.trace = {text_of(key): text_of(text) for key, text in dict_of(_value_at(values, at)).items()}
        at += 1
    if mask & TTL:
        cold.ttl_ns = _count_at(values, at)
        at += 1
    if mask & SCHEDULED:
        cold.scheduled_at_ns = _count_at(values, at)
        at += 1
    return at


def _read_texts(cold: Cold, mask: i64, values: list[object], at: i64) -> i64:
    for name in TEXT_FIELDS:
        if mask & 1:
            setattr(cold, name, text_of(_value_at(values, at)))
            at += 1
        mask >>= 1
    return at


def _value_at(values: list[object], at: i64) -> object:
    if at < len(values):
        return values[at]
    raise DecodeError(f"only {len(values)} values")


def _count_at(values: list[object], at: i64) -> i64:
    value = _value_at(values, at)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX:
        return value
    raise DecodeError(f"{value!r:.40} where a time or count belongs")
