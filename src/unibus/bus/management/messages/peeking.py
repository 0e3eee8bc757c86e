"""Peeks at stored messages, by sequence and in any state: whole, or as a preview for a table.

A server and its clients exchange these records. Instants are nanoseconds since 1970, messages are documents
(documents.py). A record never has a lock token: only the receiver that holds the lock may know it.
"""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from unibus.bus.management.messages.documents import Document, document_of_claimed
from unibus.bus.management.threads import encode_in_thread
from unibus.core.codec.codec import encode_json
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.envelope import message_of
from unibus.core.lifecycle.state.states import STATE_NAMES

if TYPE_CHECKING:
    from unibus.bus.api.broker import Broker, Claimed

PAGE_MAX: Final = 1_000
"""Messages in one request or response: it bounds the memory of a client and the time of encoding."""

PREVIEW_CHARS_MAX: Final = 4_096


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table of messages. `text` is the beginning of the body, `is_cut` whether there is more.

    A str is shown unchanged, bytes as text if they are UTF-8 and else as base64, any other body as JSON.
    """

    id: str
    type: str | None
    subject: str | None
    content_type: str | None
    correlation_id: str | None
    headers: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
    priority: int
    session_id: str | None
    kind: str
    text: str
    is_cut: bool


class PeekedMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stored message. `locked_until_ns` is null unless it is locked. It has a document or a preview."""

    sequence: int
    state: Literal["active", "locked", "scheduled", "deferred", "gone"]
    enqueued_ns: int
    locked_until_ns: int | None
    delivery_count: int
    size_bytes: int
    document: Document | UnsetType = UNSET
    preview: Preview | UnsetType = UNSET


class PeekedPage(msgspec.Struct, frozen=True):
    """Messages by sequence. `next` is the `from` of the next page, null at the end."""

    messages: list[PeekedMessage]
    next: int | None


async def peek(
    broker: "Broker", entity: str, from_sequence: int, top: int, session_id: str | None = None, preview: int = 0
) -> PeekedPage:
    """Up to `top` messages from a sequence on, in any state. Fewer if they are large."""
    found = await broker.peek(entity, from_sequence, top, session_id)
    messages = await encode_in_thread(size_of(found), len(found), lambda: [_peeked(each, preview) for each in found])
    # Fewer than asked for has two causes: the end of the entity, or the limit of bytes. Only the first one is the end.
    is_last = len(found) < top and size_of(found) < broker.answer_bytes_max
    return PeekedPage(messages, None if is_last or not found else int(found[-1].sequence) + 1)


def _peeked(claimed: "Claimed", preview: int) -> PeekedMessage:
    return PeekedMessage(
        sequence=int(claimed.sequence),
        state=STATE_NAMES[claimed.state],  # type: ignore[arg-type]
        enqueued_ns=int(claimed.enqueued_ns),
        locked_until_ns=int(claimed.until_ns) or None,
        delivery_count=int(claimed.delivery_count),
        size_bytes=int(claimed.who.size),
        document=UNSET if preview else document_of_claimed(claimed),
        preview=preview_of(message_of(claimed), preview) if preview else UNSET,
    )


class _Shown(msgspec.Struct):
    kind: str
    body: Raw
    headers: Raw = Raw(b"{}")


_read_shown: Final = msgspec.json.Decoder(_Shown).decode
_read_text: Final = msgspec.json.Decoder(str).decode


def preview_of(message: Message, chars: int) -> Preview:
    # By the encoder of documents, so that a preview shows what the document has.
    shown = _read_shown(encode_json(message))
    text, is_cut = _beginning(message.body, shown, chars)
    return Preview(
        id=message.id,
        type=message.type,
        subject=message.subject,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        headers=shown.headers,
        priority=int(message.priority),
        session_id=message.session_id,
        kind=shown.kind,
        text=text,
        is_cut=is_cut,
    )


def _beginning(body: object, shown: _Shown, chars: int) -> tuple[str, bool]:
    if isinstance(body, (bytes, bytearray, memoryview)):
        data = bytes(body)
        some = data[: 4 * chars]  # A character has at most four bytes.
        try:
            text = some.decode("utf-8")
        except UnicodeDecodeError as error:
            # The cut at 4 * chars bytes may fall inside of a character: then the text before it is valid.
            is_split = error.start > len(some) - 4 and len(some) < len(data)
            text = some[: error.start].decode("utf-8") if is_split else base64.b64encode(some).decode("ascii")
        return text[:chars], len(text) > chars or len(some) < len(data)
    raw = bytes(shown.body)
    # A text without its quotation marks and escapes; every other body as JSON.
    text = _read_text(raw) if raw.startswith(b'"') else raw.decode("utf-8")
    return text[:chars], len(text) > chars


def size_of(claimed: "Sequence[Claimed]") -> int:
    return sum(int(each.who.size) for each in claimed)
