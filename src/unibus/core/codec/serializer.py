"""The encodings behind one interface, for parts that let their user choose one.

Both encodings are lossless, so a message can be read in one and written in the other. A serializer holds no state:
threads may share one.
"""

import enum
from typing import Protocol, final

from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Buffer
from unibus.errors import UsageError


class SerializerType(enum.Enum):
    """RKYV and BINCODE are formats that only Rust writes; they are named here to be refused with a hint."""

    MSGPACK = "msgpack"
    JSON = "json"
    RKYV = "rkyv"
    BINCODE = "bincode"


class MessageSerializer(Protocol):
    def serialize(self, message: Message) -> bytes:
        """Raises SerializationFailed for a body, HeaderInvalid for a header that the encoding cannot write."""
        ...

    def deserialize(self, data: Buffer) -> Message:
        """Raises DecodeError for any bytes that `serialize` did not return."""
        ...


@final
class MsgpackSerializer:
    """Compact and fast: for stores and network protocols."""

    def __repr__(self) -> str:
        return "<MsgpackSerializer>"

    def serialize(self, message: Message) -> bytes:
        return encode(message)

    def deserialize(self, data: Buffer) -> Message:
        return decode(data)


@final
class JsonSerializer:
    """For people, and for programs that do not use unibus."""

    def __repr__(self) -> str:
        return "<JsonSerializer>"

    def serialize(self, message: Message) -> bytes:
        return encode_json(message)

    def deserialize(self, data: Buffer) -> Message:
        return decode_json(data)


def create_serializer(type: SerializerType | str = SerializerType.MSGPACK) -> MessageSerializer:
    """A serializer by its type or by its name, in any case. Raises UsageError for a format that Python cannot write."""
    name = type.value if isinstance(type, SerializerType) else str(type).lower()
    if name == "msgpack":
        return MsgpackSerializer()
    if name == "json":
        return JsonSerializer()
    if name in ("rkyv", "bincode"):
        raise UsageError(f"{name!r} is a format that only Rust writes", "use 'msgpack', the fastest format in Python")
    raise UsageError(f"there is no serializer {name!r:.40}", "use 'msgpack' or 'json'")
