"""One message as one row of plain values, which every encoding writes in its own manner.

    form body id channel sequence priority timestamp_ns expires_ns delivery_count    every message
    headers extras                                                                   with a cold part
    typed_headers trace ttl_ns scheduled_at_ns, then the TEXT_FIELDS                 the extras, None when all are absent

`form` holds the version and the kind of the body (KINDS). The body comes next because a writer then learns early how
much memory it needs. Headers stand in `headers` when the format can write all of them as they are, else all of
them in `typed_headers`, with tags (wire.py). A format that is `binary` has bytes and every float; JSON has not.

The rule: what the writer accepts the reader gives back, and the reader accepts nothing that could not be an envelope.
"""

from typing import Annotated, Final, TypeAlias, TypeVar, cast

import msgspec
from mypy_extensions import i64

from unibus.core.cold import NO_HEADERS, TEXT_FIELDS, Cold, HeaderValue
from unibus.core.fields import checked_headers
from unibus.core.message import Message, restored
from unibus.core.payload import SerializationFormat, Serialized
from unibus.core.wire import base64_bytes, base64_text, exact_text, is_plain, tagged, untagged
from unibus.errors import DecodeError, SerializationFailed
from unibus.limits import HEADER_COUNT_MAX, PRIORITY_MAX

VERSION: Final = 1
KIND_BITS: Final = 4
KIND_MASK: Final = 15

# The kinds of body by number. Only append: the numbers are on disks.
FORMATS: Final = (
    SerializationFormat.RKYV,
    SerializationFormat.BINCODE,
    SerializationFormat.JSON,
    SerializationFormat.MESSAGE_PACK,
)
BYTES: Final = 0
PLAIN: Final = 1
TAGGED: Final = 2
SERIALIZED: Final = 3
KINDS: Final = ("bytes", "json", "tagged", *[f"serialized/{format.value}" for format in FORMATS])

# The types that msgspec checks while it reads and that the compiler trusts afterwards. The ranges of the other
# integers are checked here, in one comparison for all.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PlainHeader: TypeAlias = str | Int64 | float | bool | None
_Body = TypeVar("_Body")  # To msgspec this is any type. `object` would be a class to look for, at 100 ns.
_T: TypeAlias = str | None

Hot: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, int, int]
Extras: TypeAlias = tuple[
    dict[str, _Body] | None,
    dict[str, str],
    int,
    int,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
    _T,
]
Full: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, int, int, dict[str, PlainHeader], Extras[_Body] | None]

_COUNT_MAX: Final = 2**63 - 1


def row_of(message: Message, binary: bool) -> tuple[object, ...]:
    """What the encoder is handed: a Hot, or a Full when there is a cold part.

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
    headers = {exact_text(name): value for name, value in checked_headers(cold.headers).items()}
    other = Cold(headers, {exact_text(key): exact_text(text) for key, text in cold.trace.items()})
    for name in TEXT_FIELDS:
        text = getattr(cold, name)
        setattr(other, name, None if text is None else exact_text(text))
    other.ttl_ns = cold.ttl_ns
    other.scheduled_at_ns = cold.scheduled_at_ns
    return other


def _filled(message: Message, body: object, kind: i64, binary: bool) -> tuple[object, ...]:
    if message.sequence | message.expires_ns | message.delivery_count < 0:
        raise SerializationFailed("sequence, expiry and delivery count cannot be negative", f"see {message!r}")
    if message.priority < 0 or message.priority > PRIORITY_MAX:
        raise SerializationFailed(f"priority {message.priority} is not 0 to {PRIORITY_MAX}", f"see {message!r}")
    content = body if kind == PLAIN else _content_of(kind, body, binary)
    cold = message.cold
    if cold is None:
        return (
            VERSION << KIND_BITS | kind,
            content,
            message.id,
            message.channel,
            message.sequence,
            message.priority,
            message._timestamp_ns,
            message.expires_ns,
            message.delivery_count,
        )
    headers: object = cold.headers
    typed: object = None
    if not _are_plain(cold.headers, binary):
        headers = NO_HEADERS
        typed = {name: tagged(value, binary) for name, value in checked_headers(cold.headers).items()}
    return (
        VERSION << KIND_BITS | kind,
        content,
        message.id,
        message.channel,
        message.sequence,
        message.priority,
        message._timestamp_ns,
        message.expires_ns,
        message.delivery_count,
        headers,
        _extras_of(cold, typed),
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


def _are_plain(headers: dict[str, HeaderValue], binary: bool) -> bool:
    # A list first: compiled, walking it costs a third of walking the dict.
    for value in list(headers.values()):
        kind = type(value)
        if not (kind is str or kind is int or kind is bool or (kind is not bytes and is_plain(value, binary, 0))):
            return False
    return True


def _extras_of(cold: Cold, typed: object) -> tuple[object, ...] | None:
    """None when there is nothing. Written out, because reading a field by its name costs twenty times as much."""
    if cold.ttl_ns | cold.scheduled_at_ns < 0:
        raise SerializationFailed("ttl and schedule cannot be negative")
    if typed is None and cold.ttl_ns | cold.scheduled_at_ns == 0 and not cold.trace and _has_no_text(cold):
        return None
    return (
        typed,
        cold.trace,
        cold.ttl_ns,
        cold.scheduled_at_ns,
        cold.type,
        cold.subject,
        cold.content_type,
        cold.correlation_id,
        cold.reply_to,
        cold.reply_to_session_id,
        cold.to,
        cold.source,
        cold.target,
        cold.session_id,
        cold.partition_key,
        cold.routing_key,
        cold.dedup_key,
        cold.traceparent,
        cold.tracestate,
        cold.tx_id,
        cold.backend_id,
    )


def _has_no_text(cold: Cold) -> bool:
    return (
        cold.type is None
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


def message_of_hot(row: Hot[object], binary: bool) -> Message:
    """Raises DecodeError, or what `untagged` raises, for a row that is no message."""
    message = restored(row[2], row[3], _body_of(row[0], row[1], binary), row[6], None)
    _place(message, row[4], row[5], row[7], row[8])
    return message


def message_of(row: Full[object], binary: bool) -> Message:
    """The same with a cold part."""
    headers = row[9]
    if len(headers) > HEADER_COUNT_MAX or "" in headers:
        raise DecodeError(f"{len(headers)} headers, or one without name", f"at most {HEADER_COUNT_MAX}, all named")
    cold = Cold(cast(dict[str, HeaderValue], headers))
    extras = row[10]
    if extras is not None:
        _set_extras(cold, extras)
    message = restored(row[2], row[3], _body_of(row[0], row[1], binary), row[6], cold)
    _place(message, row[4], row[5], row[7], row[8])
    return message


def _place(message: Message, sequence: i64, priority: i64, expires_ns: i64, delivery_count: i64) -> None:
    _check_counts(sequence | expires_ns | delivery_count)
    if not 0 <= priority <= PRIORITY_MAX:
        raise DecodeError(f"priority {priority} is not 0 to {PRIORITY_MAX}")
    message.sequence = sequence
    message.priority = priority
    message.expires_ns = expires_ns
    message.delivery_count = delivery_count


def _check_counts(joined: i64) -> None:
    """All numbers at once, joined by `|`: a negative one or one beyond 63 bits shows in the result.

    Compiled, a number that is no i64 was refused with OverflowError before.
    """
    if not 0 <= joined <= _COUNT_MAX:
        raise DecodeError(f"a count or time is not in the range 0 to {_COUNT_MAX}")


def _body_of(form: i64, content: object, binary: bool) -> object:
    kind: i64 = form & KIND_MASK
    if kind == PLAIN:
        if is_plain(content, binary):
            return content
        raise DecodeError("the body nests too deep or holds what a body cannot hold")
    if kind == TAGGED:
        return untagged(content)
    if kind >= len(KINDS):
        raise DecodeError(f"the body has an unknown kind {kind}", "it may come from a newer version of unibus")
    data = content if binary else base64_bytes(content)
    if not isinstance(data, bytes):
        raise DecodeError(f"the body is {type(data).__name__} where bytes belong")
    return data if kind == BYTES else Serialized(FORMATS[kind - SERIALIZED], data)


def _set_extras(cold: Cold, extras: Extras[object]) -> None:
    typed = extras[0]
    if typed is not None:
        cold.headers = checked_headers({name: untagged(value) for name, value in typed.items()})
    cold.trace = extras[1]
    _check_counts(extras[2] | extras[3])
    cold.ttl_ns = extras[2]
    cold.scheduled_at_ns = extras[3]
    cold.type = extras[4]
    cold.subject = extras[5]
    cold.content_type = extras[6]
    cold.correlation_id = extras[7]
    cold.reply_to = extras[8]
    cold.reply_to_session_id = extras[9]
    cold.to = extras[10]
    cold.source = extras[11]
    cold.target = extras[12]
    cold.session_id = extras[13]
    cold.partition_key = extras[14]
    cold.routing_key = extras[15]
    cold.dedup_key = extras[16]
    cold.traceparent = extras[17]
    cold.tracestate = extras[18]
    cold.tx_id = extras[19]
    cold.backend_id = extras[20]
