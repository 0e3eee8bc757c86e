"""Conversions between stored values and JSON that people can read, without loss.

An encoded message is written as its document (core/codec/document.py). If the document does not decode to exactly the
same bytes, they are written beside it as base64. The comparison takes place at every write, so a message can never be
changed by its form.
"""

import zlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.codec.wire import tagged, untagged
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef, SavedSession
from unibus.errors import BusError

_SECOND_NS: Final = 1_000_000_000
_SECOND_CHARS: Final = len("2026-01-31T12:00:00")

NO_DOCUMENT: Final = msgspec.Raw()
"""For a message that is written as bytes. The field is omitted only for this very object."""

pack: Final = msgspec.msgpack.Encoder().encode
_unpack_overlay: Final = msgspec.msgpack.Decoder(dict[str, object]).decode


class MessageRefForm(msgspec.Struct, omit_defaults=True):
    message_id: str
    size: int
    session_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None


class SessionForm(msgspec.Struct, omit_defaults=True):
    """`text` is the state if it is UTF-8, else `state` has it as base64."""

    session_id: str
    text: str | None = None
    state: bytes | None = None
    token: bytes | None = None
    until_ns: int = 0
    consumer: str = ""
    stated_ns: int = 0


def who_form(who: MessageRef) -> MessageRefForm:
    return MessageRefForm(who.message_id, who.size, who.session_id, who.correlation_id, who.trace_id)


def who_of(form: MessageRefForm) -> MessageRef:
    return MessageRef(form.message_id, form.size, form.session_id, form.correlation_id, form.trace_id)


def session_form(saved: SavedSession) -> SessionForm:
    text = None
    if saved.state is not None:
        try:
            text = saved.state.decode()
        except UnicodeDecodeError:
            text = None
    state = saved.state if text is None else None
    return SessionForm(saved.session_id, text, state, saved.token, saved.until_ns, saved.consumer, saved.stated_ns)


def session_of(form: SessionForm) -> SavedSession:
    state = form.state if form.text is None else form.text.encode()
    return SavedSession(form.session_id, state, form.token, form.until_ns, form.consumer, form.stated_ns)


# Messages


def message_form(data: bytes) -> tuple[msgspec.Raw, bytes]:
    """The message as JSON text; and its bytes, if the text would not decode to exactly the same bytes."""
    try:
        # The bytes of a sender are what counts, also if a newer version has written them: a document that would change
        # one byte of them is for people only.
        text = encode_json(decode(data))
    except BusError:
        return NO_DOCUMENT, data
    return msgspec.Raw(text), b"" if _is_read_as(text, data) else data


def _is_read_as(text: bytes, data: bytes) -> bool:
    try:
        return encode(decode_json(text)) == data
    except BusError:
        return False


def data_of(document: msgspec.Raw, data: bytes) -> bytes:
    """The encoded message. If there are bytes, they are valid and the document is for people only."""
    text = bytes(document)
    return encode(decode_json(text)) if text and not data else data


# Header overrides of a settlement


def overlay_form(overlay: HeaderOverrides | None) -> tuple[HeaderOverrides | None, bytes]:
    """As JSON, or packed if JSON would not decode to the same value."""
    if overlay is None:
        return None, b""
    packed = pack(overlay)
    try:
        form = {name: tagged(untagged(value), False) for name, value in overlay.items()}
        read = msgspec.json.decode(msgspec.json.encode(form), type=dict[str, object])
        return (form, b"") if pack(_overlay_of(read)) == packed else (None, packed)
    except BusError:
        return None, packed


def overlay_of(form: HeaderOverrides | None, packed: bytes) -> HeaderOverrides | None:
    if packed:
        return _unpack_overlay(packed)
    return None if form is None else _overlay_of(form)


def _overlay_of(form: HeaderOverrides) -> HeaderOverrides:
    return {name: tagged(untagged(value), True) for name, value in form.items()}


# Times


def instant_text(instant_ns: int) -> str:
    """UTC with nanoseconds: the text is the stored value, not only for display."""
    seconds, rest = divmod(instant_ns, _SECOND_NS)
    return f"{_second_text(seconds)}.{rest:09d}Z"


def instant_of(text: str) -> int:
    if len(text) != _SECOND_CHARS + 11 or text[_SECOND_CHARS] != "." or text[-1] != "Z":
        raise ValueError(f"{text!r} is not a time")
    return _second_of(text[:_SECOND_CHARS]) * _SECOND_NS + int(text[_SECOND_CHARS + 1 : -1])


@lru_cache(maxsize=64)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:_SECOND_CHARS]


@lru_cache(maxsize=64)
def _second_of(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


# Checksums


def checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
