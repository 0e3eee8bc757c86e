"""The JSON form of a message: its row (row.py) with names, for people and for programs that do not use unibus.

    {"unibus":1,"id":"…","channel":"orders","priority":50,"timestamp_ns":1760000000000000000,"kind":"json","body":{"n":1}}

Fields that are absent or zero are omitted. `kind` says how to read the body: "json" unchanged, "tagged" with the tags
of wire.py, "bytes" and "serialized/…" as base64. Headers are tagged if JSON lacks their type. A document with an
unknown field is rejected: ignoring the field would silently lose a part of the message.
"""

from collections.abc import Callable
from typing import Final, cast

import msgspec

from unibus.core.codec.decoding import TEXT, message_of_full, message_of_hot
from unibus.core.codec.row import KIND_MASK, KINDS, PLAIN, RARE, VERSION, Full, Hot, Int64
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import TEXT_FIELDS
from unibus.core.envelope.priority import Priority
from unibus.errors import DecodeError

_HOT_FIELDS: Final[list[tuple[str, object, object]]] = [
    ("sequence", int, 0),
    ("priority", int, Priority.NORMAL),
    ("timestamp_ns", Int64, 0),
    ("kind", str, KINDS[PLAIN]),
    ("body", object, None),
]
# In the order of row.RARE.
_RARE_FIELDS: Final[list[tuple[str, object, object]]] = [
    ("expires_ns", int | None, None),
    ("delivery_count", int | None, None),
    ("headers", dict | None, None),
    ("trace", dict | None, None),
    ("ttl_ns", int | None, None),
    ("scheduled_at_ns", int | None, None),
    *[(name, str | None, None) for name in TEXT_FIELDS],
]
_Document: Final = msgspec.defstruct(
    "Document",
    [("unibus", int), ("id", str), ("channel", str), *_HOT_FIELDS, *_RARE_FIELDS],
    forbid_unknown_fields=True,
)
_Version: Final = msgspec.defstruct("Version", [("unibus", int)])

_read: Final = msgspec.json.Decoder(_Document).decode
_read_version: Final = msgspec.json.Decoder(_Version).decode
_values_of: Final[Callable[[msgspec.Struct], tuple[object, ...]]] = msgspec.structs.astuple


def document_of(row: tuple[object, ...]) -> dict[str, object]:
    """The document of a Hot, Headed or Full row that was built for a format without bytes."""
    form = row[0]
    assert isinstance(form, int)
    document: dict[str, object] = {"unibus": VERSION, "id": row[2], "channel": row[3]}
    if row[4]:
        document["sequence"] = row[4]
    document["priority"] = row[5]
    document["timestamp_ns"] = row[6]
    document["kind"] = KINDS[form & KIND_MASK]
    document["body"] = row[1]
    if len(row) > 7 and row[7]:
        document["headers"] = row[7]
    if len(row) > 8:
        mask, values = cast(int, row[8]), cast(list[object], row[9])
        names = [name for number, name in enumerate(RARE) if mask >> number & 1]
        document.update(zip(names, values, strict=True))
    return document


def message_of_document(raw: bytes) -> Message:
    """Raises DecodeError, or what msgspec and `untagged` raise, for anything but a document."""
    fields = _values_of(_read(raw))
    version, id, channel, sequence, priority, timestamp_ns, kind, body = fields[:8]
    check_version(cast(int, version))
    if kind not in KINDS:
        raise DecodeError(f"the body has an unknown kind {kind!r:.40}", f"known are {', '.join(KINDS)}")
    hot = (KINDS.index(kind), body, id, channel, sequence, priority, timestamp_ns)
    rare = fields[8:]
    mask = sum([1 << number for number, value in enumerate(rare) if value is not None])
    if not mask:
        return message_of_hot(cast(Hot[object], hot), TEXT)
    return message_of_full(
        cast(Full[object, object], (*hot, {}, mask, [value for value in rare if value is not None])), TEXT
    )


def version_of_document(raw: bytes) -> int:
    """The version alone, whatever else the document has. Raises if even that cannot be read."""
    version = _values_of(_read_version(raw))[0]
    assert isinstance(version, int)
    return version


def check_version(version: int) -> None:
    if version != VERSION:
        raise DecodeError(
            f"the message is encoded in version {version!r:.20}, and this program reads version {VERSION}",
            "upgrade unibus",
        )
