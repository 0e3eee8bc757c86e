"""Messages as bytes and back, without loss: msgpack for stores and the network, JSON for people and other programs.

    msgpack   97 1k …, 98 1k …, 9a 1k …    an array: a Hot, Headed or Full of row.py; k is the kind of the body
    JSON      {"unibus": 1, "id": …}       the same by names (document.py)

Every version of the msgpack form begins with an array header of one byte and a byte whose upper half is the version.

The rule: decoding any bytes returns a Message or raises a DecodeError. Nothing is trusted: lengths are bounded by the
input, nesting by DECODE_DEPTH_MAX (and by the interpreter's recursion limit while parsing), types and ranges are
checked field by field, text is strict UTF-8, bytes after the end are rejected, and no input can name code to run.

    Message ──row_of──▶ row (row.py) ──msgspec──▶ bytes        encoding.py
    bytes ──msgspec──▶ row ──message_of_…──▶ Message           decoding.py
"""

from collections.abc import Callable
from typing import Final

import msgspec

from unibus.core.codec.decoding import BINARY, CHECKED, message_of_full, message_of_headed, message_of_hot
from unibus.core.codec.document import check_version, document_of, message_of_document, version_of_document
from unibus.core.codec.encoding import careful_row_of, row_of
from unibus.core.codec.row import KIND_BITS, PLAIN, VERSION, Full, Headed, Hot, ShallowHeaded, ShallowHot
from unibus.core.envelope.fields import LONE_SURROGATE_HINT
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Buffer
from unibus.errors import DecodeError, HeaderInvalid, SerializationFailed

# What decoding hostile bytes can raise below; any other error is a defect of this package.
_READ_ERRORS: Final = (msgspec.DecodeError, ValueError, TypeError, ArithmeticError, RecursionError)
# A module constant, because mypyc looks a name of another package up in a dictionary on every use.
_INVALID: Final = msgspec.ValidationError
# What an encoder raises for a subclass of str, an integer beyond 64 bits or a lone surrogate.
_WRITE_ERRORS: Final = (TypeError, ValueError, OverflowError)

# Types are written out where mypyc needs them: it does not read those of other packages.
_pack: Final[Callable[[object], bytes]] = msgspec.msgpack.Encoder().encode
_unpack_hot: Final = msgspec.msgpack.Decoder(Hot).decode
_unpack_headed: Final = msgspec.msgpack.Decoder(Headed).decode
_unpack_full: Final = msgspec.msgpack.Decoder(Full).decode
_unpack_shallow_hot: Final = msgspec.msgpack.Decoder(ShallowHot).decode
_unpack_shallow_headed: Final = msgspec.msgpack.Decoder(ShallowHeaded).decode
_to_json: Final[Callable[[object], bytes]] = msgspec.json.Encoder().encode

# An array header of msgpack, with the length.
_HOT_HEAD: Final = 0x97
_HEADED_HEAD: Final = 0x98
_FULL_HEAD: Final = 0x9A
_PLAIN_FORM: Final = VERSION << KIND_BITS | PLAIN


def encode(message: Message) -> bytes:
    """The message as msgpack. Raises SerializationFailed for a body, HeaderInvalid for a header that cannot be
    decoded again."""
    quick = encode_quick(message)
    if quick is not None:
        return quick
    try:
        return _pack(careful_row_of(message, True))
    except HeaderInvalid:
        raise
    except _WRITE_ERRORS as error:
        raise _unwritable(error) from error


def encode_quick(message: Message) -> bytes | None:
    """The same, or None if the encoder rejects a value as it is: a subclass of str, an integer beyond 64 bits."""
    try:
        return _pack(row_of(message, True))
    except _WRITE_ERRORS:
        return None


def decode(data: Buffer) -> Message:
    """The message that `encode` encoded. Raises DecodeError for any other bytes."""
    raw = data if isinstance(data, bytes) else _as_bytes(data)
    if len(raw) < 2 or raw[1] >> KIND_BITS != VERSION:
        raise _foreign(raw)
    try:
        message = _decode_shallow(raw) if raw[1] == _PLAIN_FORM else None
        return _decode_any(raw) if message is None else message
    except DecodeError:
        raise
    except _READ_ERRORS as error:
        raise _unreadable(error) from error


def _decode_shallow(raw: bytes) -> Message | None:
    """The fast path for common messages, with a plain body of few levels. None: use `_decode_any`, which also reports
    what is wrong."""
    try:
        if raw[0] == _HOT_HEAD:
            return message_of_hot(_unpack_shallow_hot(raw), CHECKED)
        if raw[0] == _HEADED_HEAD:
            return message_of_headed(_unpack_shallow_headed(raw), CHECKED)
    except _INVALID:
        pass
    return None


def _decode_any(raw: bytes) -> Message:
    if raw[0] == _HOT_HEAD:
        return message_of_hot(_unpack_hot(raw), BINARY)
    if raw[0] == _HEADED_HEAD:
        return message_of_headed(_unpack_headed(raw), BINARY)
    if raw[0] == _FULL_HEAD:
        return message_of_full(_unpack_full(raw), BINARY)
    raise _foreign(raw)


def encode_json(message: Message) -> bytes:
    """The message as one JSON object, with the same errors as `encode`."""
    try:
        return _to_json(document_of(row_of(message, False)))
    except _WRITE_ERRORS:
        pass
    try:
        return _to_json(document_of(careful_row_of(message, False)))
    except HeaderInvalid:
        raise
    except _WRITE_ERRORS as error:
        raise _unwritable(error) from error


def decode_json(data: Buffer | str) -> Message:
    """The message that `encode_json` encoded. Raises DecodeError for any other input."""
    raw = data if isinstance(data, bytes) else _as_bytes(data)
    try:
        return message_of_document(raw)
    except DecodeError:
        raise
    except _READ_ERRORS as error:
        _blame_version(raw)
        raise _unreadable(error) from error


def _as_bytes(data: object) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        # A lone surrogate becomes bytes that are not UTF-8, and decoding rejects those.
        return data.encode("utf-8", "surrogatepass")
    raise DecodeError(f"a message is decoded from bytes, not from {type(data).__name__}")


def _unreadable(error: Exception) -> DecodeError:
    return DecodeError(f"not a message: {error!s:.200}", "it was truncated or altered, or unibus did not write it")


def _unwritable(error: Exception) -> SerializationFailed:
    hint = LONE_SURROGATE_HINT if isinstance(error, UnicodeEncodeError) else "send the body as bytes"
    return SerializationFailed(f"the message cannot be written: {error!s:.200}", hint)


def _foreign(raw: bytes) -> DecodeError:
    if len(raw) > 1 and raw[0] & 0xF0 == 0x90 and raw[1] < 0x80:
        check_version(raw[1] >> KIND_BITS)
    hint = "decode_json reads the JSON form" if raw[:1] == b"{" else "unibus did not write it"
    return DecodeError(f"these {len(raw)} bytes are not a message in msgpack form", hint)


def _blame_version(raw: bytes) -> None:
    """A newer document may have fields that this version rejects: then the version is the better error."""
    try:
        version = version_of_document(raw)
    except _READ_ERRORS:
        return
    check_version(version)
