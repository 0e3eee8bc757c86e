"""A whole bus as lines of JSON: what is exported, and what an import reads. One page on the format.

    {"unibus_export":1,"at":"…","entities":2,"messages":3,"sessions":1}      what was there when it began
    {"entity":"orders","kind":"queue","settings":{"max_delivery_count":3}}   settings that are not the default
    {"message":"orders","state":"active","priority":50,"envelope":{…},…}     by entity, and in the order of sequences
    {"session":"orders","id":"c1","state":"base64"}
    {"end":true,"entities":2,"messages":3,"sessions":1,"sha256":"…"}         what is there, and the sum over all above

The envelope is the JSON form of a message (core/codec/document.py), which loses nothing. A file without its last line
was cut, one with another sum was changed: neither is imported. The sum is also the name under which an import is known.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, BinaryIO, Final

import msgspec

from unibus.core.codec.wire import tagged, untagged
from unibus.core.lifecycle.state.changes import HeaderOverrides, Settings
from unibus.errors import DecodeError
from unibus.limits import BODY_BYTES_MAX, PRIORITY_MAX

VERSION: Final = 1
LINE_BYTES_MAX: Final = 8 * BODY_BYTES_MAX + 2**20
"""One byte of a body may be six letters in JSON."""

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Header(msgspec.Struct):
    unibus_export: int
    at: str = ""
    entities: int = 0
    messages: int = 0
    sessions: int = 0


class EntityLine(msgspec.Struct, forbid_unknown_fields=True):
    entity: str
    kind: str
    settings: Settings


class MessageLine(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Instants are nanoseconds since 1970. `enqueued_ns` and `first_delivered_ns` are for readers: an import stores
    the message anew. `sequence` is what it was, and only a message that was deferred is told about it."""

    message: str
    state: str
    sequence: Int64
    priority: Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_MAX)]
    envelope: msgspec.Raw
    delivery_count: Int64 = 0
    expires_ns: Int64 = 0
    visible_ns: Int64 = 0
    enqueued_ns: Int64 = 0
    first_delivered_ns: Int64 = 0
    overlay: HeaderOverrides | None = None


class SessionLine(msgspec.Struct, forbid_unknown_fields=True):
    session: str
    id: str
    state: str


class ExportEnd(msgspec.Struct):
    end: bool
    entities: int
    messages: int
    sessions: int
    sha256: str


Line = EntityLine | MessageLine | SessionLine

encode_line: Final = msgspec.json.Encoder().encode
_KINDS: Final[dict[bytes, Callable[[bytes], Line]]] = {
    b'{"entity"': msgspec.json.Decoder(EntityLine).decode,
    b'{"message"': msgspec.json.Decoder(MessageLine).decode,
    b'{"session"': msgspec.json.Decoder(SessionLine).decode,
}
_END: Final = b'{"end"'
_read_header: Final = msgspec.json.Decoder(Header).decode
_read_end: Final = msgspec.json.Decoder(ExportEnd).decode


def overlay_text(overlay: HeaderOverrides | None) -> HeaderOverrides | None:
    """Headers with the tags that JSON needs: it has no bytes."""
    return None if overlay is None else {name: tagged(untagged(value), False) for name, value in overlay.items()}


def overlay_of(text: HeaderOverrides | None) -> HeaderOverrides | None:
    """As a store keeps them."""
    try:
        return None if text is None else {name: tagged(untagged(value), True) for name, value in text.items()}
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DecodeError(f"the headers of a message cannot be read: {error!s:.200}", "the file was changed") from error


def text_of(state: bytes) -> str:
    return base64.b64encode(state).decode("ascii")


def bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise DecodeError(f"the state of a session is no base64: {error}", "the file was changed") from error


@dataclass
class Contents:
    """What an export holds. `digest` is its sum."""

    at: str = ""
    entities: list[EntityLine] = field(default_factory=list)
    messages: int = 0
    sessions: int = 0
    digest: str = ""

    @property
    def total(self) -> int:
        """The steps of an import, beside the entities."""
        return self.messages + self.sessions


def checked_contents(file: BinaryIO) -> Contents:
    """Read all of it once, from where the file stands. DecodeError says what is wrong with it."""
    contents = Contents()
    digest = hashlib.sha256()
    first = _line(file, 1)
    digest.update(first)
    contents.at = _header(first).at
    for number, raw in _lines(file):
        if raw.startswith(_END):
            _check_end(file, raw, contents, digest.hexdigest())
            return contents
        digest.update(raw)
        line = line_of(raw, number)
        if isinstance(line, EntityLine):
            contents.entities.append(line)
        elif isinstance(line, MessageLine):
            contents.messages += 1
        else:
            contents.sessions += 1
    raise DecodeError("the export was cut: its last line is missing", "export again, or copy the file again")


def steps_of(file: BinaryIO) -> Iterator[MessageLine | SessionLine]:
    """The messages and states of an export that was checked."""
    _line(file, 1)
    for number, raw in _lines(file):
        if raw.startswith(_END):
            return
        line = line_of(raw, number)
        if not isinstance(line, EntityLine):
            yield line


def line_of(raw: bytes, number: int) -> Line:
    for beginning, read in _KINDS.items():
        if raw.startswith(beginning):
            try:
                return read(raw)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise DecodeError(
                    f"line {number} of the export cannot be read: {error!s:.200}", "it was changed"
                ) from error
    raise DecodeError(f"line {number} of the export is of no kind that is known here", "it may be of a newer version")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 1
    while raw := _line(file, number := number + 1):
        yield number, raw


def _line(file: BinaryIO, number: int) -> bytes:
    raw = file.readline(LINE_BYTES_MAX)
    if raw and not raw.endswith(b"\n"):
        what = "is longer than any message" if len(raw) >= LINE_BYTES_MAX else "was cut"
        raise DecodeError(f"line {number} of the export {what}", "export again, or copy the file again")
    return raw


def _header(raw: bytes) -> Header:
    try:
        header = _read_header(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError("this is no export of unibus", "`unibus export` writes one") from error
    if header.unibus_export != VERSION:
        raise DecodeError(
            f"the export is of version {header.unibus_export}, this program reads {VERSION}", "upgrade unibus"
        )
    return header


def _check_end(file: BinaryIO, raw: bytes, contents: Contents, digest: str) -> None:
    try:
        end = _read_end(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError("the last line of the export cannot be read", "export again") from error
    if end.sha256 != digest:
        raise DecodeError("the export was changed: its sum is another one", "export again, or copy the file again")
    if (end.entities, end.messages, end.sessions) != (len(contents.entities), contents.messages, contents.sessions):
        raise DecodeError("the export does not hold what its last line says", "export again")
    if file.read(1):
        raise DecodeError("there is more after the last line of the export", "import one file at a time")
    contents.digest = digest
