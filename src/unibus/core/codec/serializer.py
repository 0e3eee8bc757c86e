"""The encodings behind one interface and the first design's names, for parts that let their user choose.

Both keep everything, so one may write what the other reads back after a change of mind. They hold no state and may
be shared by threads.
"""

import enum
from typing import Protocol, final

from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Buffer
from unibus.errors import UsageError


class SerializerType(enum.Enum):
    """RKYV and BINCODE are names of the first design, for formats that only Rust writes."""

    MSGPACK = "msgpack"
    JSON = "json"
    RKYV = "rkyv"
    BINCODE = "bincode"


class MessageSerializer(Protocol):
    def serialize(self, message: Message) -> bytes:
        """Raises SerializationFailed or HeaderInvalid."""
        ...

    def deserialize(self, data: Buffer) -> Message:
        """Raises DecodeError for anything but what `serialize` gave."""
        ...


@final
class MsgpackSerializer:
    """Compact and fast: for stores and wires."""

    def serialize(self, message: Message) -> bytes:
        return encode(message)

    def deserialize(self, data: Buffer) -> Message:
        return decode(data)


@final
class JsonSerializer:
    """For people and for programs that are not ours."""

    def serialize(self, message: Message) -> bytes:
        return encode_json(message)

    def deserialize(self, data: Buffer) -> Message:
        return decode_json(data)


def create_serializer(type: SerializerType | str = SerializerType.MSGPACK) -> MessageSerializer:
    """By type or by name. UsageError for names that are not written here."""
    name = type.value if isinstance(type, SerializerType) else str(type).lower()
    if name == "msgpack":
        return MsgpackSerializer()
    if name == "json":
        return JsonSerializer()
    if name in ("rkyv", "bincode"):
        raise UsageError(f"{name} is written by Rust only", "use SerializerType.MSGPACK, the fast one here")
    raise UsageError(f"there is no serializer {name!r:.40}", "use SerializerType.MSGPACK or JSON")
