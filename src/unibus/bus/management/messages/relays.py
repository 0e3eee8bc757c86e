"""Rows of an application's outbox into a store that a server owns: one row, one batch, exactly once.

The application's database is on the machine of the client, which reads it there (`bus/outbox/relay_route`). A row comes
with the position of its source, and both are stored, or neither. A row of another machine is not trusted: its messages
are decoded and encoded again, so that nothing is stored that no receiver could read.
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
    """A row of an outbox: `batch` as it is in the table, in base64, with its sum. Null: only the position goes on.

    PositionMoved, and nothing stored, if the position of the source is not at `before`.
    """

    source: Annotated[str, Meta(min_length=1, max_length=200)]
    before: Int64
    to: Int64
    batch: str | None = None
    crc: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0


class RelayAnswer(msgspec.Struct, frozen=True):
    """`results` has one for each message of the row."""

    position: int
    results: list[SentMessage]


def relay_row(store: Store, request: RelayRequest) -> Pending[list[object]]:
    """DecodeError for a row that is damaged, or that no bus has written."""
    name = position_name(_source(request.source))
    commands = [] if request.batch is None else _sends(request)
    return store.apply([*commands, Advance(name, request.before, request.to)])


def relay_answer(request: RelayRequest, results: list[object]) -> RelayAnswer:
    return RelayAnswer(request.to, [sent_record(each) for each in results if isinstance(each, SendResult)])


def _source(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"{text!r:.60} is no source of an outbox", "use it as it is in the table")
    return text


def _sends(request: RelayRequest) -> list[Send]:
    try:
        batch = base64.b64decode(request.batch or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecodeError(f"the batch is no base64: {error}", "send the column as it is") from error
    return [_again(send) for send in unpacked(OutboxRow(request.to, request.source, batch, request.crc))]


def _again(given: Send) -> Send:
    send = send_of(decode(given.data), checked_name(given.entity))
    if send.who != given.who or given.makes not in _CREATED:
        raise DecodeError("the row does not fit the message in it", "no bus has written it")
    send.makes = given.makes
    return send
