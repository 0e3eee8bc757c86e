"""The one table for bodies, shared by all protocols: how a body of the bus becomes bytes with a content type.

    body in the bus                   bytes on the wire            content type
    bytes, bytearray, memoryview      the same bytes               the sender's own, if any
    Serialized (JSON, msgpack, …)     its data as it is            the sender's own, else that of its format
    any other value, None too         JSON                         the sender's own if it is a JSON one, else JSON's

The other direction has one row: what arrives is stored as the very bytes, beside its content type. A body from the
network is never decoded and encoded again, so a signature over it stays valid; a Python handler with an annotation
decodes JSON bytes by itself.
"""

from typing import Final

import msgspec

from unibus.core.codec.wire import tagged
from unibus.core.envelope.payload import SerializationFormat, Serialized

JSON_TYPE: Final = "application/json"
_FORMAT_TYPES: Final = {
    SerializationFormat.JSON: JSON_TYPE,
    SerializationFormat.MESSAGE_PACK: "application/msgpack",
    SerializationFormat.RKYV: "application/octet-stream",
    SerializationFormat.BINCODE: "application/octet-stream",
}
_encode: Final = msgspec.json.Encoder().encode


def wire_body(body: object, content_type: str | None) -> tuple[bytes, str]:
    """The bytes of a body and their content type, which is empty where bytes were sent without one."""
    if isinstance(body, bytes):
        return body, content_type or ""
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body), content_type or ""
    if isinstance(body, Serialized):
        return bytes(body.data), content_type or _FORMAT_TYPES[body.format]
    return _json(body), content_type if content_type and "json" in content_type.lower() else JSON_TYPE


def _json(value: object) -> bytes:
    """Times, UUIDs and decimals become text, and sets become lists. A number that is none (nan) becomes null."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # What plain JSON cannot say (keys of other types, integers beyond 64 bits) is written with the tags of
        # core/codec/wire.py. A stored message must always be receivable, or it would block its queue.
        return _encode(tagged(value, False))
