"""The format of an export: a whole bus as lines of JSON.

    {"unibus_export":1,"at":"…","entities":2,"messages":3,"sessions":1}      header: the counts at the start
    {"entity":"orders","kind":"queue","settings":{"max_delivery_count":3}}   settings that differ from the default
    {"message":"orders","state":"active","priority":50,"envelope":{…},…}     by entity, in the order of sequences
    {"session":"orders","id":"c1","state":"base64"}                          the state of a session
    {"end":true,"entities":2,"messages":3,"sessions":1,"sha256":"…"}         counts, and the digest of all lines above

The envelope is the JSON form of a message (core/codec/document.py), which is lossless. A file without its last line is
truncated, and a file with another digest was changed: neither is imported. The digest also identifies an import, so
that the same file is imported once.
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
"""One byte of a body may take six characters in JSON."""

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
    """Instants are nanoseconds since 1970. `enqueued_ns` and `first_delivered_ns` are for information: an import
    enqueues the message again. `sequence` is that of the exported store; an import uses it only for deferred messages.
    """

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
# A line is recognised by its first bytes, so its kind is known before it is decoded. The writer keeps the field order.
_KINDS: Final[dict[bytes, Callable[[bytes], Line]]] = {
    b'{"entity"': msgspec.json.Decoder(EntityLine).decode,
    b'{"message"': msgspec.json.Decoder(MessageLine).decode,
    b'{"session"': msgspec.json.Decoder(SessionLine).decode,
}
_END: Final = b'{"end"'
_read_header: Final = msgspec.json.Decoder(Header).decode
_read_end: Final = msgspec.json.Decoder(ExportEnd).decode


def overlay_text(overlay: HeaderOverrides | None) -> HeaderOverrides | None:
    """The headers with type tags for JSON, which has no bytes."""
    return None if overlay is None else {name: tagged(untagged(value), False) for name, value in overlay.items()}


def overlay_of(text: HeaderOverrides | None) -> HeaderOverrides | None:
    """The headers with the type tags of a store."""
    try:
        return None if text is None else {name: tagged(untagged(value), True) for name, value in text.items()}
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DecodeError(
            f"the headers of a message cannot be decoded: {error!s:.200}", "the file was changed: export again"
        ) from error


def text_of(state: bytes) -> str:
    return base64.b64encode(state).decode("ascii")


def bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise DecodeError(
            f"the state of a session is not valid base64: {error}", "the file was changed: export again"
        ) from error


@dataclass
class Contents:
    """The contents of an export. `digest` is the SHA-256 of its lines without the last one."""

    at: str = ""
    entities: list[EntityLine] = field(default_factory=list)
    messages: int = 0
    sessions: int = 0
    digest: str = ""

    @property
    def total(self) -> int:
        """The number of import steps after the entities are created."""
        return self.messages + self.sessions


def checked_contents(file: BinaryIO) -> Contents:
    """Read the whole file from its current position and verify it. DecodeError says what is wrong."""
    # One pass over the file, without keeping a message in memory. Nothing is imported before it has ended well.
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
    raise DecodeError("the export is truncated: its last line is missing", "export again, or copy the file again")


def steps_of(file: BinaryIO) -> Iterator[MessageLine | SessionLine]:
    """The messages and session states of an export that was verified."""
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
                    f"line {number} of the export cannot be decoded: {error!s:.200}",
                    "the file was changed: export again",
                ) from error
    raise DecodeError(
        f"line {number} of the export has an unknown kind", "a newer version may have written it: upgrade unibus"
    )


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 1
    while raw := _line(file, number := number + 1):
        yield number, raw


def _line(file: BinaryIO, number: int) -> bytes:
    # Bounded: a file without line ends, or of another kind, must not be read into memory as one line.
    raw = file.readline(LINE_BYTES_MAX)
    if raw and not raw.endswith(b"\n"):
        what = "is longer than any message can be" if len(raw) >= LINE_BYTES_MAX else "is truncated"
        raise DecodeError(f"line {number} of the export {what}", "export again, or copy the file again")
    return raw


def _header(raw: bytes) -> Header:
    try:
        header = _read_header(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError("the file is not an export of unibus", "`unibus export` writes one") from error
    if header.unibus_export != VERSION:
        raise DecodeError(
            f"the export has format version {header.unibus_export}, this program reads version {VERSION}",
            "upgrade unibus",
        )
    return header


def _check_end(file: BinaryIO, raw: bytes, contents: Contents, digest: str) -> None:
    try:
        end = _read_end(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError("the last line of the export cannot be decoded", "export again") from error
    if end.sha256 != digest:
        raise DecodeError("the export was changed: its digest does not match", "export again, or copy the file again")
    if (end.entities, end.messages, end.sessions) != (len(contents.entities), contents.messages, contents.sessions):
        raise DecodeError("the counts in the last line of the export do not match its lines", "export again")
    if file.read(1):
        raise DecodeError("the export has data after its last line", "import one file at a time")
    contents.digest = digest
