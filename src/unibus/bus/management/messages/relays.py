"""The server side of a relay: rows of an application's outbox into the store, one row as one batch, exactly once.

The application's database is on the machine of the client, which reads it there (`bus/outbox/relay_route`). A row comes
with the position of its source, and both are stored, or neither. A row from a client is not trusted: its messages are
decoded and encoded again, so that nothing is stored that a receiver could not decode.
"""

import base64
import binascii
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from unibus.bus.management.messages.documents import Int64
from unibus.bus.management.messages.sending import SentMessage, sent_record
from unibus.bus.names import checked_name
from unibus.bus.outbox.outbox import OutboxRow, position_name, unpacked
from unibus.core.codec.codec import decode
from unibus.core.lifecycle.commands import Advance, Send, SendResult
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import QUEUE, TOPIC
from unibus.errors import DecodeError, UsageError
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import Store

_CREATED: Final = (0, QUEUE, TOPIC)


class RelayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of an outbox: `batch` is the column of the table in base64, with its CRC. Null advances only the position.

    PositionMoved, and nothing is stored, if the position of the source is not at `before`.
    """

    source: Annotated[str, Meta(min_length=1, max_length=200)]
    before: Int64
    to: Int64
    batch: str | None = None
    crc: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0


class RelayAnswer(msgspec.Struct, frozen=True):
    """`results` has one entry for each message of the row."""

    position: int
    results: list[SentMessage]


def relay_row(store: Store, request: RelayRequest) -> Pending[list[object]]:
    """Store one row. DecodeError for a row that is damaged or that unibus has not written."""
    name = position_name(_source(request.source))
    commands = [] if request.batch is None else _sends(request)
    # One batch: the messages and the position of the source, or neither. A repeated request finds the position moved,
    # and stores nothing twice.
    return store.apply([*commands, Advance(name, request.before, request.to)])


def relay_answer(request: RelayRequest, results: list[object]) -> RelayAnswer:
    return RelayAnswer(request.to, [sent_record(each) for each in results if isinstance(each, SendResult)])


def _source(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"{text!r:.60} is not the source of an outbox", "send the column unchanged")
    return text


def _sends(request: RelayRequest) -> list[Send]:
    try:
        batch = base64.b64decode(request.batch or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecodeError(f"the batch is not valid base64: {error}", "send the column unchanged, in base64") from error
    return [_reencoded(send) for send in unpacked(OutboxRow(request.to, request.source, batch, request.crc))]


def _reencoded(given: Send) -> Send:
    send = send_of(decode(given.data), checked_name(given.entity))
    # The CRC only shows that the row is intact: a client can compute it for any content.
    if send.who != given.who or given.creates not in _CREATED:
        raise DecodeError("the fields of the row do not match its message", "send only rows that unibus has written")
    send.creates = given.creates
    return send
