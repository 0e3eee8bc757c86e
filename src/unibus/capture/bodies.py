"""Message bodies as Parquet rows, in files of their own: they are larger and more private than events, and are usually
kept for a shorter time.

A body is stored in a form that any program can read, described by `content_type`: bytes as they were sent; a Python
value as JSON, with the tags of `core/codec/wire.py` where JSON lacks a type. Headers are text. A message that cannot
be decoded is stored as its encoded envelope.

The redaction rules (`redaction.py`) are applied here, in memory: what they remove never reaches a disk.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa

from unibus.capture.columns import Found, NamesOf, name_of
from unibus.capture.schema import BODIES, channel_key
from unibus.core.codec.codec import decode
from unibus.core.codec.row import KIND_BITS, PLAIN, VERSION, ShallowHeaded, ShallowHot
from unibus.core.codec.wire import is_plain, tagged
from unibus.core.envelope.payload import Serialized
from unibus.core.lifecycle.state.changes import Passed, Sent
from unibus.errors import BusError

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
ENVELOPE: Final = "application/vnd.unibus.envelope"

Headers = dict[str, str]


class Body(msgspec.Struct, gc=False):
    content_type: str
    headers: Headers | None
    body: bytes | None
    redacted: bool = False


Redact = Callable[[str, Body], None]
"""Removes from a body, by the name of its channel, what must not be stored."""

_unpack_hot: Final = msgspec.msgpack.Decoder(ShallowHot).decode
_unpack_headed: Final = msgspec.msgpack.Decoder(ShallowHeaded).decode
_json: Final = msgspec.json.Encoder().encode
_HOT: Final = bytes((0x97, VERSION << KIND_BITS | PLAIN))
_HEADED: Final = bytes((0x98, VERSION << KIND_BITS | PLAIN))
"""How the bytes of the most common messages begin: see core/codec/codec.py."""


def bodies_of(sorted_out: dict[type, Found], domain: str, names_of: NamesOf, redact: Redact | None = None) -> pa.Table:
    """One row for each change of a page that carries a message body."""
    found = _with_data(sorted_out)
    brought = [change for _, change in found]
    names = names_of({change.entity for change in brought})
    channel = {entity: name_of(entity, names) for entity in {change.entity for change in brought}}
    channels = [channel[change.entity] for change in brought]
    bodies = [body_of(change.data) for change in brought]
    if redact is not None:
        for name, body in zip(channels, bodies, strict=True):
            # Before the table is made: the removed content is in no buffer that could be written.
            redact(name, body)
    keys = {name: channel_key(domain, name) for name in channel.values()}
    columns: dict[str, list[Any]] = {
        "seq": [seq for seq, _ in found],
        "channel": channels,
        "channel_key": [keys[name] for name in channels],
        "sequence": [change.sequence for change in brought],
        "message_id": [change.who.message_id for change in brought],
        "content_type": [body.content_type for body in bodies],
        "body": [body.body for body in bodies],
        "redacted": [body.redacted for body in bodies],
    }
    arrays = {name: pa.array(values, BODIES.field(name).type) for name, values in columns.items()}
    arrays["domain"] = pa.repeat(domain, len(found))
    arrays["headers"] = _headers([body.headers for body in bodies])
    return pa.table([arrays[field.name] for field in BODIES], schema=BODIES)


def _headers(found: list[Headers | None]) -> pa.Array:
    """A map of each message's headers. Most pages have no headers at all, so that case skips the conversion."""
    kind = BODIES.field("headers").type
    if not any(found):
        return pa.nulls(len(found), kind)
    return pa.array([list(headers.items()) if headers else None for headers in found], kind)


def _with_data(sorted_out: dict[type, Found]) -> list[tuple[int, Any]]:
    """The changes with a body, by seq. A forwarded message has none: its body is in the row of its source entity."""
    lists = [sorted_out[kind] for kind in (Sent, Passed) if kind in sorted_out]
    found = [each for seqs, some in lists for each in zip(seqs, some, strict=True) if each[1].data]
    return found if len(lists) < 2 else sorted(found, key=lambda each: each[0])


def body_of(data: bytes) -> Body:
    """The body of an encoded message."""
    begin = data[:2]
    try:
        # Two bytes identify the most common encodings, which are decoded without building a Message.
        if begin == _HOT:
            return Body(JSON, None, _hot_json(_unpack_hot(data)[1]))
        if begin == _HEADED:
            row = _unpack_headed(data)
            return Body(JSON, {name: _text(value) for name, value in row[7].items()}, _hot_json(row[1]))
    except msgspec.MsgspecError:
        pass  # It only looks like a common message: decode it completely.
    return _decode_body(data)


def _decode_body(data: bytes) -> Body:
    """The body by way of the whole message: slower, for every form that the codec knows."""
    try:
        message = decode(data)
        body = message.body
        headers = {name: _text(value) for name, value in message.headers.items()}
        if isinstance(body, Serialized):
            kind, content = f"application/x-{body.format.value}", bytes(body.data)
        elif isinstance(body, (bytes, bytearray, memoryview)):
            kind, content = BYTES, bytes(body)
        else:
            kind, content = JSON, _json_of(body)
        return Body(message.content_type or kind, headers or None, content)
    except (BusError, msgspec.MsgspecError, TypeError, ValueError) as error:
        return Body(ENVELOPE, {"unibus-unreadable": str(error)[:200]}, data)


def _hot_json(body: object) -> bytes:
    """JSON of a plain value. msgspec writes NaN and infinity as null, so only JSON with a null has to be checked."""
    content = _json(body)
    return content if b"null" not in content else _json_of(body)


def _json_of(body: object) -> bytes:
    return _json(body if is_plain(body, False) else tagged(body, False))


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)
