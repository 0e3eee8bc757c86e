"""Messages as bytes and back, without loss: msgpack for stores and wires, JSON for people and other programs.

    msgpack   99 1k …  or  9b 1k …     an array of 9 values, or of 11 with a cold part (row.py); k is the body's kind
    JSON      {"unibus": 1, "id": …}   the same by name; what is at its default is left out

Every version of the msgpack form begins with an array header of one byte and a byte whose upper half is the version.

The rule: any bytes whatever give a Message or a DecodeError. Nothing is trusted: lengths are bounded by the input,
nesting by DECODE_DEPTH_MAX (and by the interpreter's recursion limit while parsing), types and ranges are checked
field by field, text is strict UTF-8, bytes after the end are refused, and no input can name code to run.
"""

from typing import Final, cast

import msgspec

from unibus.core.cold import TEXT_FIELDS
from unibus.core.message import Message
from unibus.core.payload import Buffer
from unibus.core.priority import Priority
from unibus.core.row import (
    KIND_BITS,
    KIND_MASK,
    KINDS,
    PLAIN,
    VERSION,
    Full,
    Hot,
    Int64,
    careful_row_of,
    message_of,
    message_of_hot,
    row_of,
)
from unibus.errors import DecodeError, HeaderInvalid, SerializationFailed

# What reading hostile bytes can raise below; anything else would be a defect of ours.
_READ_ERRORS: Final = (msgspec.DecodeError, ValueError, TypeError, ArithmeticError, RecursionError)
# What an encoder raises for text of a subclass, an integer beyond 64 bits or a lone surrogate.
_WRITE_ERRORS: Final = (TypeError, ValueError, OverflowError)

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack_hot: Final = msgspec.msgpack.Decoder(Hot).decode
_unpack_full: Final = msgspec.msgpack.Decoder(Full).decode

_HOT_HEAD: Final = 0x99
_FULL_HEAD: Final = 0x9B


def encode(message: Message) -> bytes:
    """The message as msgpack. Raises SerializationFailed for a body, HeaderInvalid for a header nobody could read."""
    try:
        return _pack(row_of(message, True))
    except _WRITE_ERRORS:
        pass
    try:
        return _pack(careful_row_of(message, True))
    except HeaderInvalid:
        raise
    except _WRITE_ERRORS as error:
        raise _unwritable(error) from error


def decode(data: Buffer) -> Message:
    """The message that `encode` was given; DecodeError for anything else."""
    raw = _as_bytes(data)
    head = raw[0] if len(raw) > 1 and raw[1] >> KIND_BITS == VERSION else 0
    try:
        if head == _HOT_HEAD:
            return message_of_hot(_unpack_hot(raw), True)
        if head == _FULL_HEAD:
            return message_of(_unpack_full(raw), True)
    except DecodeError:
        raise
    except _READ_ERRORS as error:
        raise _unreadable(error) from error
    raise _foreign(raw)


def encode_json(message: Message) -> bytes:
    """The message as one JSON object, with the same errors as `encode`."""
    try:
        return _write_json(_document_of(row_of(message, False)))
    except _WRITE_ERRORS:
        pass
    try:
        return _write_json(_document_of(careful_row_of(message, False)))
    except HeaderInvalid:
        raise
    except _WRITE_ERRORS as error:
        raise _unwritable(error) from error


def decode_json(data: Buffer | str) -> Message:
    """The message that `encode_json` was given; DecodeError for anything else."""
    try:
        raw = data.encode() if isinstance(data, str) else _as_bytes(data)
        return _message_of_document(_read_json(raw))
    except DecodeError:
        raise
    except _READ_ERRORS as error:
        _check_json_version(data)
        raise _unreadable(error) from error


# The JSON form: a struct whose fields are the row's. What is absent or at its default is not written.

_FIELDS: Final[list[tuple[str, object, object]]] = [
    ("sequence", int, 0),
    ("priority", int, Priority.NORMAL),
    ("timestamp_ns", Int64, 0),
    ("expires_ns", int, 0),
    ("delivery_count", int, 0),
    ("kind", str, KINDS[PLAIN]),
    ("body", object, None),
    ("headers", dict[str, object], {}),
    ("trace", dict[str, str], {}),
    ("ttl_ns", int, 0),
    ("scheduled_at_ns", int, 0),
    *[(name, str | None, None) for name in TEXT_FIELDS],
]
_Document: Final = msgspec.defstruct(
    "Document",
    [("unibus", int), ("id", str), ("channel", str), *_FIELDS],
    omit_defaults=True,
    forbid_unknown_fields=True,
)
_Version: Final = msgspec.defstruct("Version", [("unibus", int)])

_write_json: Final = msgspec.json.Encoder().encode
_read_json: Final = msgspec.json.Decoder(_Document).decode
_read_json_version: Final = msgspec.json.Decoder(_Version).decode

_HEADERS_AT: Final = 10


def _document_of(row: tuple[object, ...]) -> msgspec.Struct:
    form = row[0]
    assert isinstance(form, int)
    hot = (form >> KIND_BITS, *row[2:9], KINDS[form & KIND_MASK], row[1])
    if len(row) == len(hot) - 1:
        return _Document(*hot)
    headers, extras = row[9:]
    if extras is None:
        return _Document(*hot, headers)
    typed, *rest = cast(tuple[object, ...], extras)
    return _Document(*hot, headers if typed is None else typed, *rest)


def _message_of_document(document: msgspec.Struct) -> Message:
    version, *hot, kind, body = msgspec.structs.astuple(document)[:_HEADERS_AT]
    extras = msgspec.structs.astuple(document)[_HEADERS_AT:]
    if version != VERSION:
        raise _other_version(version)
    if kind not in KINDS:
        raise DecodeError(f"unknown kind of body {kind!r:.40}", f"one of {', '.join(KINDS)}")
    row = (KINDS.index(kind), body, *hot)
    if any(extras):
        return message_of(cast(Full[object], (*row, {}, extras)), False)
    return message_of_hot(cast(Hot[object], row), False)


# What is told about bytes that are no message


def _as_bytes(data: Buffer) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise DecodeError(f"a {type(data).__name__} is not bytes")


def _unreadable(error: Exception) -> DecodeError:
    return DecodeError(f"not a message: {error!s:.200}", "it was cut or altered, or unibus did not write it")


def _unwritable(error: Exception) -> SerializationFailed:
    return SerializationFailed(f"the message cannot be written: {error!s:.200}", "send the body as bytes")


def _foreign(raw: bytes) -> DecodeError:
    if len(raw) > 1 and raw[0] & 0xF0 == 0x90 and VERSION < raw[1] >> KIND_BITS < 8:
        return _other_version(raw[1] >> KIND_BITS)
    hint = "decode_json reads the JSON form" if raw[:1] == b"{" else "unibus did not write it"
    return DecodeError(f"{len(raw)} bytes that are no message in msgpack form", hint)


def _other_version(version: object) -> DecodeError:
    return DecodeError(f"encoded in version {version!r:.20}, and this program reads {VERSION}", "upgrade unibus")


def _check_json_version(data: Buffer | str) -> None:
    """A newer document may have fields that are refused here; the version is the better reason then."""
    try:
        version = msgspec.structs.astuple(_read_json_version(data))[0]
    except _READ_ERRORS:
        return
    if version != VERSION:
        raise _other_version(version)
