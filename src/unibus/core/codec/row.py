"""The layout of one message as a row of plain values, which every encoding writes in its own manner.

    form body id channel sequence priority timestamp_ns      Hot: enough for most messages
    headers                                                  Headed: the same with headers
    mask values                                              Full: the same with anything else

`form` holds the version and the kind of the body (KINDS). The body comes next because a writer then learns early how
much memory it needs. `mask` says by its bits which of RARE stand in `values`, in that order. Headers stand in `headers`
when the format can write all of them as they are, else all of them are typed headers among the rare, with the
tags of wire.py. A format that is `binary` has bytes and every float; JSON has not.

The rule for writing.py and reading.py: what the writer accepts the reader gives back, and the reader accepts nothing
that could not be an envelope.
"""

from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from unibus.core.envelope.message_properties import TEXT_FIELDS
from unibus.core.envelope.payload import SerializationFormat

VERSION: Final = 1
KIND_BITS: Final = 4
KIND_MASK: Final = 15
NEWER: Final = "it may come from a newer version of unibus"

# The kinds of body by number. Only append: the numbers are on disks.
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

# The types that msgspec checks while it reads and that the compiler trusts afterwards. The other integers' ranges are
# checked in this module, which costs less.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PlainHeader: TypeAlias = str | Int64 | float | bool | None
# To msgspec an open type variable is any type. `object` would be a class to look for, at 100 ns.
_Body = TypeVar("_Body")
_Value = TypeVar("_Value")

Hot: TypeAlias = tuple[int, _Body, str, str, int, int, Int64]
Headed: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, dict[str, PlainHeader]]
Full: TypeAlias = tuple[int, _Body, str, str, int, int, Int64, dict[str, PlainHeader], int, list[_Value]]

# A plain body of up to five levels. msgspec checks one while it reads, which saves the walk over what was read. Deeper
# ones are walked: msgspec has no recursive types, and each level here doubles the work at import.
_Json0: TypeAlias = str | int | float | bool | None
_Json1: TypeAlias = _Json0 | list[_Json0] | dict[str, _Json0]
_Json2: TypeAlias = _Json0 | list[_Json1] | dict[str, _Json1]
_Json3: TypeAlias = _Json0 | list[_Json2] | dict[str, _Json2]
_Json4: TypeAlias = _Json0 | list[_Json3] | dict[str, _Json3]
_Json5: TypeAlias = _Json0 | list[_Json4] | dict[str, _Json4]
ShallowHot: TypeAlias = Hot[_Json5]
ShallowHeaded: TypeAlias = Headed[_Json5]

# The fields by the bits of `mask`. Only append, here and to TEXT_FIELDS: the numbers are on disks.
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
