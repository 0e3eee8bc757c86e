"""Messages one by one: peek, send, receive, settle, sessions, move, remove."""

from typing import Final, Unpack

from unibus.bus.management.messages.moving import MoveAnswer, MoveRequest, RemoveAnswer, RemoveRequest
from unibus.bus.management.messages.peeking import PAGE_MAX, PREVIEW_CHARS_MAX, PeekedPage
from unibus.bus.management.messages.receiving import (
    AcceptedSession,
    AcceptRequest,
    ReceivedMessage,
    ReceiveRequest,
    RenewedLock,
    RenewedSession,
    RenewRequest,
    SessionRequest,
    SettledMessage,
    SettleRequest,
)
from unibus.bus.management.messages.sending import SendRequest, SentMessage
from unibus.core.access.rights import Right
from unibus.endpoints.http.management.forms import (
    ENTITY,
    SEQUENCE,
    Schema,
    answer_of,
    body_of,
    parameter,
    whole,
)
from unibus.endpoints.http.management.messages.move import move_messages, remove_messages
from unibus.endpoints.http.management.messages.peek import peek_messages
from unibus.endpoints.http.management.messages.receive import receive_messages, renew_messages, settle_messages
from unibus.endpoints.http.management.messages.send import send_messages
from unibus.endpoints.http.management.messages.sessions import accept_session, release_session, renew_session
from unibus.endpoints.http.management.tables.section import RowOptions, Section
from unibus.endpoints.http.operation import Handler, Operation

_SECTION: Final = Section("messages")
_NON_EMPTY: Final[Schema] = {"type": "string", "minLength": 1}
_CREATE: Final = parameter("create", "Create a missing queue.", {"type": "string", "enum": ["true", "false"]})


def _post(
    name: str,
    path: str,
    handler: Handler,
    summary: str,
    request: object,
    answer: object,
    **options: Unpack[RowOptions],
) -> Operation:
    """An operation on the entity that the query names."""
    given: RowOptions = {
        "parameters": (ENTITY,),
        "request_schema": body_of(request),
        "names_entity": True,
        **options,
    }
    return _SECTION.post(name, path, handler, summary, answer_of(answer), **given)


MESSAGES: Final[tuple[Operation, ...]] = (
    _SECTION.get(
        *("peek_messages", "messages", peek_messages),
        "Messages by sequence number, in any state, without receiving them",
        answer_of(PeekedPage),
        right=Right.LISTEN,
        parameters=(
            ENTITY,
            parameter("from", "The first sequence number.", SEQUENCE),
            parameter("top", "At most this many.", whole(1, PAGE_MAX)),
            parameter("session", "Only messages of this session.", _NON_EMPTY),
            parameter(
                "preview", "This many characters of each body, without the documents.", whole(1, PREVIEW_CHARS_MAX)
            ),
        ),
        names_entity=True,
    ),
    _post(
        *("send_messages", "messages/send", send_messages),
        "Send messages, all or none",
        *(SendRequest, list[SentMessage]),
        right=Right.SEND,
        statuses=(200, 409),
        parameters=(ENTITY, _CREATE),
    ),
    _post(
        *("receive_messages", "messages/receive", receive_messages),
        "Receive messages, with locks or deleting them",
        *(ReceiveRequest, list[ReceivedMessage]),
        right=Right.LISTEN,
        statuses=(200, 410),
    ),
    _post(
        *("settle_messages", "messages/settle", settle_messages),
        "Complete, abandon, release, defer or dead-letter locked messages",
        *(SettleRequest, list[SettledMessage]),
        right=Right.LISTEN,
        statuses=(200, 410),
    ),
    _post(
        *("renew_messages", "messages/renew", renew_messages),
        "Renew the locks of messages",
        *(RenewRequest, list[RenewedLock]),
        right=Right.LISTEN,
        statuses=(200, 410),
    ),
    _post(
        *("accept_session_lock", "sessions/accept", accept_session),
        "Lock a session: one by its id, or the next that is free",
        *(AcceptRequest, AcceptedSession),
        right=Right.LISTEN,
        statuses=(200, 409),
    ),
    _post(
        *("renew_session_lock", "sessions/renew", renew_session),
        "Renew the lock of a session",
        *(SessionRequest, RenewedSession),
        right=Right.LISTEN,
        statuses=(200, 410),
    ),
    _post(
        *("release_session_lock", "sessions/release", release_session),
        "Release a session",
        *(SessionRequest, dict[str, str]),
        right=Right.LISTEN,
        statuses=(200, 410),
    ),
    _post(
        *("move_messages", "messages/move", move_messages),
        "Move waiting messages to another entity, all or none",
        *(MoveRequest, MoveAnswer),
        statuses=(200, 409),
    ),
    _post(
        *("remove_messages", "messages/remove", remove_messages),
        "Remove waiting messages, all or none",
        *(RemoveRequest, RemoveAnswer),
    ),
)
