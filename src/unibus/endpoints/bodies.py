"""How a message body becomes bytes with a content type: one table for all protocols.

    body in the bus                   bytes on the wire            content type
    bytes, bytearray, memoryview      the same bytes               the sender's own, if any
    Serialized (JSON, msgpack, …)     its data as it is            the sender's own, else that of its format
    any other value, None too         JSON                         the sender's own if it is a JSON one, else JSON's

The other direction has one row: received bytes are stored unchanged, with their content type. A body from the network
is never decoded and encoded again, so a signature over it stays valid. For a Python handler with an annotation the bus
decodes JSON bytes.
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
    """The bytes of a body and their content type; an empty one for bytes that were sent without."""
    if isinstance(body, bytes):
        return body, content_type or ""
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body), content_type or ""
    if isinstance(body, Serialized):
        return bytes(body.data), content_type or _FORMAT_TYPES[body.format]
    return _json(body), content_type if content_type and "json" in content_type.lower() else JSON_TYPE


def _json(value: object) -> bytes:
    """Times, UUIDs and decimals become text, sets become lists, and NaN becomes null."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # What plain JSON lacks (keys that are no text, integers beyond 64 bits) is written with the tags of
        # core/codec/wire.py. Every stored message must be receivable, or it would block its queue.
        return _encode(tagged(value, False))
