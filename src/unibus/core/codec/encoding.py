"""Builds the row (row.py) of a message in as few steps as possible: this is half of the cost of an encoding.

The invariant: every row can be decoded again. A value for which this is not true is rejected with SerializationFailed
or HeaderInvalid.
"""

from mypy_extensions import i64

from unibus.core.codec.row import (
    BYTES,
    DELIVERIES,
    EXPIRES,
    FORMATS,
    KIND_BITS,
    PLAIN,
    SCHEDULED,
    SERIALIZED,
    TAGGED,
    TRACE,
    TTL,
    TYPED,
    VERSION,
)
from unibus.core.codec.wire import base64_text, exact_scalar, is_plain, record_fields, tagged
from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.fields import checked_headers, set_headers
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import NO_HEADERS, TEXT_FIELDS, MessageProperties
from unibus.core.envelope.payload import Serialized
from unibus.core.envelope.record_types import has_fields
from unibus.errors import SerializationFailed
from unibus.limits import PRIORITY_MAX


def row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """The input of the encoder: a Hot, Headed or Full row, the shortest that has all of the message.

    Subclasses of str and integers beyond 64 bits are not checked here: the encoder rejects them, and then
    `careful_row_of` builds another row.
    """
    kind = _kind_of(message.body, binary)
    if kind != TAGGED:
        return _filled(message, message.body, kind, binary)
    body = _writable(message.body)
    return _filled(message, body, _kind_of(body, binary), binary)


def careful_row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """The same with tags for everything that an encoder may reject. Slow; few messages need it."""
    body = _writable(message.body) if _kind_of(message.body, binary) == TAGGED else message.body
    kind = _kind_of(body, binary)
    return _filled(exact_message(message), body, TAGGED if kind == PLAIN else kind, binary)


def _writable(body: object) -> object:
    """The fields of a model or a dataclass: they are often plain, and then need no tags. Any other body unchanged."""
    return record_fields(body) if has_fields(body) else body


def exact_message(message: Message) -> Message:
    """The same message, with exact `str`, `int` and `float` in all fields outside of its body."""
    other = restored(exact_text(message.id), exact_text(message.channel), message.body, message.timestamp_ns, None)
    other.priority = message.priority
    other.sequence = message.sequence
    other.expires_ns = message.expires_ns
    other.delivery_count = message.delivery_count
    if message.properties is not None:
        other.properties = _careful_properties(message.properties)
    return other


def _careful_properties(properties: MessageProperties) -> MessageProperties:
    headers = {exact_text(name): exact_scalar(value) for name, value in properties.headers.items()}
    other = MessageProperties(
        checked_headers(headers), {exact_text(key): exact_text(text) for key, text in properties.trace.items()}
    )
    for name in TEXT_FIELDS:
        text = getattr(properties, name)
        setattr(other, name, None if text is None else exact_text(text))
    other.ttl_ns = properties.ttl_ns
    other.scheduled_at_ns = properties.scheduled_at_ns
    return other


def _filled(message: Message, body: object, kind: i64, binary: bool) -> tuple[object, ...]:
    if message.sequence < 0 or message.priority < 0 or message.priority > PRIORITY_MAX:
        raise SerializationFailed(f"sequence {message.sequence} or priority {message.priority} is out of range")
    form = VERSION << KIND_BITS | kind
    content = body if kind == PLAIN else _content_of(kind, body, binary)
    properties = message.properties
    if message.expires_ns | message.delivery_count == 0:
        # Each tuple is written out: appending to a common part would cost as much as everything else here.
        if properties is None:
            return (
                form,
                content,
                message.id,
                message.channel,
                message.sequence,
                message.priority,
                message._timestamp_ns,
            )
        if _has_headers_only(properties) and _are_plain(properties, binary):
            return (
                form,
                content,
                message.id,
                message.channel,
                message.sequence,
                message.priority,
                message._timestamp_ns,
                properties.headers,
            )
    values: list[object] = []
    mask = _write_counts(message, values)
    if properties is not None:
        mask |= _write_rare(properties, values, binary) | _write_texts(properties, values)
    headers = NO_HEADERS if properties is None or mask & TYPED else properties.headers
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
    # The cheapest test first: compiled, a test for bytes is one comparison, and the one for memoryview is a search.
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


def _are_plain(properties: MessageProperties, binary: bool) -> bool:
    if not properties.headers:
        return True
    if not properties.trusts_headers():
        checked = MessageProperties()
        set_headers(checked, properties.headers)
        if not checked.trusts_headers():
            return False
    return binary or all(is_plain(value, False) for value in properties.headers.values())


def _has_headers_only(properties: MessageProperties) -> bool:
    return (
        not properties.trace
        and properties.ttl_ns | properties.scheduled_at_ns == 0
        and properties.type is None
        and properties.subject is None
        and properties.content_type is None
        and properties.correlation_id is None
        and properties.reply_to is None
        and properties.reply_to_session_id is None
        and properties.to is None
        and properties.source is None
        and properties.target is None
        and properties.session_id is None
        and properties.partition_key is None
        and properties.routing_key is None
        and properties.dedup_key is None
        and properties.traceparent is None
        and properties.tracestate is None
        and properties.tx_id is None
        and properties.backend_id is None
    )


def _write_counts(message: Message, values: list[object]) -> i64:
    mask: i64 = 0
    if message.expires_ns | message.delivery_count < 0:
        raise SerializationFailed("expires_ns and delivery_count cannot be negative", f"see {message!r}")
    if message.expires_ns:
        mask |= EXPIRES
        values.append(message.expires_ns)
    if message.delivery_count:
        mask |= DELIVERIES
        values.append(message.delivery_count)
    return mask


def _write_rare(properties: MessageProperties, values: list[object], binary: bool) -> i64:
    mask: i64 = 0
    if not _are_plain(properties, binary):
        mask |= TYPED
        values.append({name: tagged(value, binary) for name, value in checked_headers(properties.headers).items()})
    if properties.trace:
        mask |= TRACE
        values.append(properties.trace)
    if properties.ttl_ns | properties.scheduled_at_ns < 0:
        raise SerializationFailed("ttl_ns and scheduled_at_ns cannot be negative")
    if properties.ttl_ns:
        mask |= TTL
        values.append(properties.ttl_ns)
    if properties.scheduled_at_ns:
        mask |= SCHEDULED
        values.append(properties.scheduled_at_ns)
    return mask


def _write_texts(properties: MessageProperties, values: list[object]) -> i64:
    """In the order of TEXT_FIELDS. Written out, because `getattr` by name costs twenty times as much."""
    return (
        _written(properties.type, 0x40, values)
        | _written(properties.subject, 0x80, values)
        | _written(properties.content_type, 0x100, values)
        | _written(properties.correlation_id, 0x200, values)
        | _written(properties.reply_to, 0x400, values)
        | _written(properties.reply_to_session_id, 0x800, values)
        | _written(properties.to, 0x1000, values)
        | _written(properties.source, 0x2000, values)
        | _written(properties.target, 0x4000, values)
        | _written(properties.session_id, 0x8000, values)
        | _written(properties.partition_key, 0x1_0000, values)
        | _written(properties.routing_key, 0x2_0000, values)
        | _written(properties.dedup_key, 0x4_0000, values)
        | _written(properties.traceparent, 0x8_0000, values)
        | _written(properties.tracestate, 0x10_0000, values)
        | _written(properties.tx_id, 0x20_0000, values)
        | _written(properties.backend_id, 0x40_0000, values)
    )


def _written(text: str | None, bit: i64, values: list[object]) -> i64:
    if text is None:
        return 0
    values.append(text)
    return bit
