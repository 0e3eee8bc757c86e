"""The layout of one message as a row of plain values, which every encoding writes in its own form.

    form body id channel sequence priority timestamp_ns      Hot: enough for most messages
    headers                                                  Headed: Hot, then the headers
    mask values                                              Full: Headed, then all other fields

`form` is the version and the kind of the body (KINDS). The body comes second, so that an encoder learns early how much
memory it needs. Each bit of `mask` says whether that field of RARE is in `values`, in this order. Headers are in
`headers` if the format can write all of them unchanged; else all of them are in `values`, with the tags of wire.py. A
`binary` format has bytes and every float; JSON does not.

The rule for encoding.py and decoding.py: decoding returns exactly what encoding accepted, and accepts nothing that
could not be an envelope.
"""

from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from unibus.core.envelope.message_properties import TEXT_FIELDS
from unibus.core.envelope.payload import SerializationFormat

VERSION: Final = 1
KIND_BITS: Final = 4
KIND_MASK: Final = 15
NEWER: Final = "it may come from a newer version of unibus"

# The kinds of body by number. Only append: the numbers are on disk.
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

# The types that msgspec checks while it decodes, and that compiled code relies on afterwards. decoding.py checks the
# ranges of the other integers, which costs less.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PlainHeader: TypeAlias = str | Int64 | float | bool | None
# To msgspec an unbound type variable means any type. `object` would be a class to check for, which costs 100 ns.
_Body = TypeVar("_Body")
_Value = TypeVar("_Value")

Hot: TypeAlias = tuple[int, _Body, str, str, int, int, Int64]
Headed: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, dict[str, PlainHeader]]
Full: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, dict[str, PlainHeader], int, list[_Value]]

# A plain body of up to five levels: msgspec checks it while it decodes, which saves a second pass. Deeper bodies get
# that pass: msgspec has no recursive types, and each level here doubles the work at import.
_Json0: TypeAlias = str | int | float | bool | None
_Json1: TypeAlias = _Json0 | list[_Json0] | dict[str, _Json0]
_Json2: TypeAlias = _Json0 | list[_Json1] | dict[str, _Json1]
_Json3: TypeAlias = _Json0 | list[_Json2] | dict[str, _Json2]
_Json4: TypeAlias = _Json0 | list[_Json3] | dict[str, _Json3]
_Json5: TypeAlias = _Json0 | list[_Json4] | dict[str, _Json4]
ShallowHot: TypeAlias = Hot[_Json5]
ShallowHeaded: TypeAlias = Headed[_Json5]

# The fields by the bits of `mask`. Only append, here and to TEXT_FIELDS: the numbers are on disk.
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
PROPERTIES_FROM: Final = 2
TEXTS_FROM: Final = 6
