"""Messages one by one: peek, send, receive, settle, sessions, move, remove."""

from typing import Final

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
    at,
    body_of,
    parameter,
    whole,
)
from unibus.endpoints.http.management.messages.move import move_messages, remove_messages
from unibus.endpoints.http.management.messages.peek import peek_messages
from unibus.endpoints.http.management.messages.receive import receive_messages, renew_messages, settle_messages
from unibus.endpoints.http.management.messages.send import send_messages
from unibus.endpoints.http.management.messages.sessions import accept_session, release_session, renew_session
from unibus.endpoints.http.operation import Handler, Operation

_TAG: Final = "management: messages"
_NON_EMPTY: Final[Schema] = {"type": "string", "minLength": 1}


def _post(
    name: str,
    tail: str,
    right: Right,
    handler: Handler,
    summary: str,
    request: object,
    answer: object,
    statuses: tuple[int, ...],
) -> Operation:
    return Operation(
        name=name,
        method="POST",
        shape=at(tail),
        right=right,
        handler=handler,
        summary=summary,
        documented=(at(tail),),
        statuses=statuses,
        has_body=True,
        tag=_TAG,
        parameters=(ENTITY, _CREATE) if tail == "messages/send" else (ENTITY,),
        request_schema=body_of(request),
        response_schema=answer_of(answer),
        names_entity=True,
    )


_CREATE: Final = parameter("create", "Create a missing queue.", {"type": "string", "enum": ["true", "false"]})

MESSAGES: Final[tuple[Operation, ...]] = (
    Operation(
        name="peek_messages",
        method="GET",
        shape=at("messages"),
        right=Right.LISTEN,
        handler=peek_messages,
        summary="Messages by sequence, in whatever state, without receiving them",
        documented=(at("messages"),),
        tag=_TAG,
        parameters=(
            ENTITY,
            parameter("from", "The first sequence.", SEQUENCE),
            parameter("top", "So many at most.", whole(1, PAGE_MAX)),
            parameter("session", "Only messages of this session.", _NON_EMPTY),
            parameter("preview", "So many characters of each body, not the documents.", whole(1, PREVIEW_CHARS_MAX)),
        ),
        response_schema=answer_of(PeekedPage),
        names_entity=True,
    ),
    _post(
        *("send_messages", "messages/send", Right.SEND, send_messages),
        "Send messages, all or none",
        *(SendRequest, list[SentMessage], (200, 409)),
    ),
    _post(
        *("receive_messages", "messages/receive", Right.LISTEN, receive_messages),
        "Receive messages, with locks or for good",
        *(ReceiveRequest, list[ReceivedMessage], (200, 410)),
    ),
    _post(
        *("settle_messages", "messages/settle", Right.LISTEN, settle_messages),
        "Complete, abandon, release, defer or dead-letter locked messages",
        *(SettleRequest, list[SettledMessage], (200, 410)),
    ),
    _post(
        *("renew_messages", "messages/renew", Right.LISTEN, renew_messages),
        "Renew the locks of messages",
        *(RenewRequest, list[RenewedLock], (200, 410)),
    ),
    _post(
        *("accept_session_lock", "sessions/accept", Right.LISTEN, accept_session),
        "Lock a session: one by its id, or the next that is free",
        *(AcceptRequest, AcceptedSession, (200, 409)),
    ),
    _post(
        *("renew_session_lock", "sessions/renew", Right.LISTEN, renew_session),
        "Renew the lock of a session",
        *(SessionRequest, RenewedSession, (200, 410)),
    ),
    _post(
        *("release_session_lock", "sessions/release", Right.LISTEN, release_session),
        "Release a session",
        *(SessionRequest, dict[str, str], (200, 410)),
    ),
    _post(
        *("move_messages", "messages/move", Right.MANAGE, move_messages),
        "Move messages that wait to another entity, all or none",
        *(MoveRequest, MoveAnswer, (200, 409)),
    ),
    _post(
        *("remove_messages", "messages/remove", Right.MANAGE, remove_messages),
        "Remove messages that wait, all or none",
        *(RemoveRequest, RemoveAnswer, (200,)),
    ),
)
