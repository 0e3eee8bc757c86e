"""Receives, settles and renews for the command line and the tools of operators: by lock tokens, many in one call.

A lock token is base64 text. `settle` is atomic as `complete_many`: it settles all messages, or raises LockLost and
settles none.
"""

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from unibus.bus.management.messages.documents import Document, document_of_claimed
from unibus.bus.management.messages.peeking import PAGE_MAX, size_of
from unibus.bus.management.threads import encode_in_thread
from unibus.bus.queues.operations import Queues, notify_settled
from unibus.core.lifecycle.commands import BY_TOKEN, RELEASE, SETTLEMENTS, Command, Renew, Settle
from unibus.errors import BusError, LockLost, StoreFailed, UsageError
from unibus.limits import MESSAGE_ID_CHARS_MAX

if TYPE_CHECKING:
    from unibus.bus.api.broker import Broker, Claimed, Pending, SessionLock

WAIT_S_MAX: Final = 60.0
"""How long one request may wait for messages. A client that wants to wait longer repeats it."""

Token = Annotated[str, Meta(pattern="^[A-Za-z0-9+/]{22}==$")]
"""Sixteen bytes in base64."""

SessionId = Annotated[str, Meta(min_length=1, max_length=MESSAGE_ID_CHARS_MAX)]
Consumer = Annotated[str, Meta(max_length=256)]


class HeldSessionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id and lock token of an accepted session."""

    id: SessionId
    token: Token


class ReceiveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`lock` false deletes the messages when they are received. `session` is an accepted session."""

    count: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 1
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    lock: bool = True
    session: HeldSessionRecord | None = None
    consumer: Consumer = ""


class ReceivedMessage(msgspec.Struct, frozen=True):
    """`entity` is the exact name of the entity that it was received from. `token` and `locked_until_ns` are null if it
    was deleted when it was received."""

    entity: str
    sequence: int
    enqueued_ns: int
    token: str | None
    locked_until_ns: int | None
    delivery_count: int
    document: Document


async def receive(
    broker: "Broker", entity: str, request: ReceiveRequest, interrupted: asyncio.Event | None = None
) -> "list[Claimed]":
    """Receive messages. A cancellation releases the messages that are already locked."""
    held = request.session
    session = None if held is None else session_lock(entity, SessionRequest(held.id, held.token))
    return await broker.receive(
        entity,
        request.count,
        lock=request.lock,
        timeout_s=request.wait_s,
        consumer=request.consumer,
        session=session,
        interrupted=interrupted,
    )


async def received_records(claimed: "list[Claimed]") -> list[ReceivedMessage]:
    return await encode_in_thread(size_of(claimed), len(claimed), lambda: [_received(each) for each in claimed])


def _received(claimed: "Claimed") -> ReceivedMessage:
    return ReceivedMessage(
        claimed.entity,
        int(claimed.sequence),
        int(claimed.enqueued_ns),
        token_text(claimed.token) if claimed.until_ns else None,
        int(claimed.until_ns) or None,
        int(claimed.delivery_count),
        document_of_claimed(claimed),
    )


async def release(broker: "Broker", claimed: "Sequence[Claimed]") -> None:
    """Release messages whose response did not reach the client, without counting a delivery."""
    pending = []
    for each in claimed:
        if each.until_ns:
            try:
                # All are applied before the first wait, so that they share one group commit.
                pending.append(broker.settle(RELEASE, each.token))
            except BusError:
                continue  # The lock has expired: the message is redelivered either way.
    for answer in pending:
        with contextlib.suppress(LockLost):  # As above, for a store whose refusal arrives with the answer.
            await answer


# Settling


class SettleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settle all messages or none. With `each`, every message is settled separately, and failures have an error."""

    verb: Literal["complete", "abandon", "release", "defer", "dead_letter"]
    tokens: Annotated[list[Token], Meta(min_length=1, max_length=PAGE_MAX)]
    reason: str = ""
    description: str = ""
    each: bool = False


class ErrorRecord(msgspec.Struct, frozen=True):
    """An error of the bus: its code, what was wrong, and what to do."""

    code: str
    message: str
    details: str = ""


class SettledMessage(msgspec.Struct, frozen=True):
    """`error` is null if the message was settled."""

    token: str
    error: ErrorRecord | None = None


class RenewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Renew all locks or none."""

    tokens: Annotated[list[Token], Meta(min_length=1, max_length=PAGE_MAX)]


class RenewedLock(msgspec.Struct, frozen=True):
    token: str
    locked_until_ns: int


async def settle(broker: "Broker", entity: str, request: SettleRequest) -> list[SettledMessage]:
    """LockLost, and none is settled, if a lock has expired; MessageNotFound if a message is in another entity."""
    tokens = [token_bytes(text) for text in request.tokens]
    if not request.each:
        await _settle_all(broker.queues, entity, request, tokens)
        return [SettledMessage(text) for text in request.tokens]
    found: list[tuple[SettledMessage, Pending[None] | None]] = []
    for text, token in zip(request.tokens, tokens, strict=True):
        try:
            pending = broker.settle(
                request.verb, token, entity=entity, reason=request.reason, description=request.description
            )
        except BusError as error:
            found.append((SettledMessage(text, error_record(error)), None))
        else:
            found.append((SettledMessage(text), pending))
    # All are applied before the first wait, so that they share one group commit.
    return [await _settled(record, settling) for record, settling in found]


async def _settled(record: SettledMessage, settling: "Pending[None] | None") -> SettledMessage:
    """The record, with the error of a refusal that arrives with the answer. A failed store ends the whole call."""
    try:
        if settling is not None:
            await settling
    except StoreFailed:
        raise
    except BusError as error:
        return SettledMessage(record.token, error_record(error))
    return record


def _settle_all(queues: "Queues", entity: str, request: SettleRequest, tokens: list[bytes]) -> "Pending[list[object]]":
    """Settle in one batch. Every command names the entity, so that a lock of another entity is refused."""
    verb = next(number for number, name in SETTLEMENTS.items() if name == request.verb)
    commands: list[Command] = []
    for token in tokens:
        command = Settle(verb, entity, BY_TOKEN, token)
        command.reason = request.reason
        command.description = request.description
        commands.append(command)
    if queues.watcher is None:
        pending = queues.store.apply(commands)
    else:
        pending = queues.watcher.watch_settle(verb, entity, "", lambda: queues.store.apply(commands))
    return notify_settled(queues, entity, pending)


def error_record(error: BusError) -> ErrorRecord:
    return ErrorRecord(error.code, error.what, error.hint)


async def renew(broker: "Broker", entity: str, request: RenewRequest) -> list[RenewedLock]:
    commands = [Renew(entity, BY_TOKEN, token_bytes(text)) for text in request.tokens]
    ends = await broker.store.apply(commands)
    return [RenewedLock(text, end) for text, end in zip(request.tokens, ends, strict=True) if isinstance(end, int)]


# Sessions


class AcceptRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`session_id` null accepts the next session that has messages and is not locked."""

    session_id: SessionId | None = None
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    consumer: Consumer = ""


class AcceptedSession(msgspec.Struct, frozen=True):
    """`lock_duration_s` is that of the entity: a client renews after a third of it."""

    entity: str
    session_id: str
    token: str
    locked_until_ns: int
    lock_duration_s: float


class SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    token: Token


class RenewedSession(msgspec.Struct, frozen=True):
    locked_until_ns: int


def session_record(broker: "Broker", lock: "SessionLock") -> AcceptedSession:
    duration_s = int(broker.find(lock.entity).settings.lock_ns) / 1e9
    return AcceptedSession(lock.entity, lock.session_id, token_text(lock.token), int(lock.until_ns), duration_s)


def session_lock(entity: str, request: SessionRequest) -> "SessionLock":
    # The expiry is 0: the store compares entity, id and token only.
    from unibus.stores.seam.store import SessionLock  # Here, because clients need only the records.

    return SessionLock(entity, request.session_id, token_bytes(request.token), 0)


# Tokens


def token_text(token: bytes) -> str:
    return base64.b64encode(token).decode("ascii")


def token_bytes(text: str) -> bytes:
    """UsageError for invalid base64, not LockLost: it never was a token of a lock."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{text!r:.60} is not a lock token", "use the token unchanged, in base64") from error
