"""From a message to its row (row.py), in as few steps as possible: this is half of what an encoding costs.

Nothing is written that could not be read again: what cannot is refused with SerializationFailed or HeaderInvalid.
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
from unibus.core.codec.wire import base64_text, exact_scalar, is_plain, tagged
from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.fields import checked_headers, set_headers
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import NO_HEADERS, TEXT_FIELDS, MessageProperties
from unibus.core.envelope.payload import Serialized
from unibus.errors import SerializationFailed
from unibus.limits import PRIORITY_MAX


def row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """What the encoder is handed: a Hot, Headed or Full, the shortest that holds the message.

    Text of subclasses and integers beyond 64 bits are let through: the encoder refuses them, see `careful_row_of`.
    """
    return _filled(message, message.body, _kind_of(message.body, binary), binary)


def careful_row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """The same with everything spelt out that an encoder may refuse. Slow, for the few messages that need it."""
    kind = _kind_of(message.body, binary)
    return _filled(exact_message(message), message.body, TAGGED if kind == PLAIN else kind, binary)


def exact_message(message: Message) -> Message:
    """The same message, with no text or number around its body that is of a subclass."""
    other = restored(exact_text(message.id), exact_text(message.channel), message.body, message.timestamp_ns, None)
    other.priority = message.priority
    other.sequence = message.sequence
    other.expires_ns = message.expires_ns
    other.delivery_count = message.delivery_count
    if message.cold is not None:
        other.cold = _careful_cold(message.cold)
    return other


def _careful_cold(cold: MessageProperties) -> MessageProperties:
    headers = {exact_text(name): exact_scalar(value) for name, value in cold.headers.items()}
    other = MessageProperties(
        checked_headers(headers), {exact_text(key): exact_text(text) for key, text in cold.trace.items()}
    )
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


def _are_plain(cold: MessageProperties, binary: bool) -> bool:
    if not cold.headers:
        return True
    if not cold.trusts_headers():
        checked = MessageProperties()
        set_headers(checked, cold.headers)
        if not checked.trusts_headers():
            return False
    return binary or all(is_plain(value, False) for value in cold.headers.values())


def _has_headers_only(cold: MessageProperties) -> bool:
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


def _write_rare(cold: MessageProperties, values: list[object], binary: bool) -> i64:
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


def _write_texts(cold: MessageProperties, values: list[object]) -> i64:
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
