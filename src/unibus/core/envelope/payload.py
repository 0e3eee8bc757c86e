"""The payload of a message, of three kinds: raw bytes, a JSON value, or data that is serialized already.

In memory the body is the object that was published, and the bus never inspects it. The kinds matter where a message is
encoded: for a store or for the network. Reading a payload never decodes it.
"""

import enum
from typing import Final, TypeAlias, final

import msgspec
from mypy_extensions import i64

from unibus.core.envelope.record_types import fields_of, has_fields, struct_fields
from unibus.display import guarded
from unibus.errors import SerializationFailed
from unibus.limits import DECODE_DEPTH_MAX


class SerializationFormat(enum.Enum):
    """The format of serialized data. RKYV and BINCODE are formats of Rust: forwarded, never decoded."""

    RKYV = "rkyv"
    BINCODE = "bincode"
    JSON = "json"
    MESSAGE_PACK = "msgpack"


@final
class Serialized:
    """Data that is already serialized, and is forwarded unchanged."""

    def __init__(self, format: SerializationFormat, data: bytes) -> None:
        self.format = format
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Serialized) and other.format is self.format and other.data == self.data

    def __hash__(self) -> int:
        return hash((self.format, self.data))

    def __repr__(self) -> str:
        return guarded(self, lambda: f"Serialized({self.format.value}, {len(self.data)} bytes)")


# Named here because inside of Payload the name "bytes" is a constructor.
Buffer: TypeAlias = bytes | bytearray | memoryview
Bytes: TypeAlias = bytes

KIND_BYTES: Final = "bytes"
KIND_JSON: Final = "json"
KIND_SERIALIZED: Final = "serialized"

_to_builtins: Final = msgspec.to_builtins


@final
class Payload:
    """A body together with its kind. Create one with `json`, `bytes` or `serialized`."""

    def __init__(self, value: object) -> None:
        self.value = value

    @staticmethod
    def json(value: object) -> "Payload":
        """A value that JSON can express. Raises SerializationFailed for anything else."""
        try:
            return Payload(_to_builtins(_with_fields(value), str_keys=True, enc_hook=_refuse))
        except (TypeError, ValueError, RuntimeError) as error:
            raise SerializationFailed(f"payload cannot be written as JSON: {error}") from error

    @staticmethod
    def bytes(data: Buffer) -> "Payload":
        return Payload(data)

    @staticmethod
    def serialized(format: SerializationFormat, data: Bytes) -> "Payload":
        return Payload(Serialized(format, data))

    @property
    def kind(self) -> str:
        return payload_kind(self.value)

    def as_json(self) -> object:
        """The value itself, or None if the payload is bytes or serialized data."""
        return self.value if self.kind == KIND_JSON else None

    def as_bytes(self) -> Buffer | None:
        """The raw or serialized bytes without copying them, or None for a JSON value."""
        value = self.value
        if isinstance(value, Serialized):
            return value.data
        if isinstance(value, (bytes, bytearray, memoryview)):
            return value
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Payload) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return guarded(self, lambda: f"Payload({self.kind})")


def payload_kind(body: object) -> str:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return KIND_BYTES
    return KIND_SERIALIZED if isinstance(body, Serialized) else KIND_JSON


def _with_fields(value: object, levels: i64 = DECODE_DEPTH_MAX) -> object:
    """The value with the fields of every object in it. Not left to msgspec, which omits the private attributes of an
    attrs class. `levels` is how many levels of nesting may still follow."""
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if has_fields(value):
        value = fields_of(value)
    elif isinstance(value, msgspec.Struct):
        value = struct_fields(value)
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        return value
    if levels <= 0:
        raise ValueError(f"it nests deeper than {DECODE_DEPTH_MAX}")
    if isinstance(value, dict):
        return {key: _with_fields(item, levels - 1) for key, item in value.items()}
    items = [_with_fields(item, levels - 1) for item in value]
    return tuple(items) if isinstance(value, tuple) else items


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is unsupported")
