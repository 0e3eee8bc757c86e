"""The operations of this package: sending, receiving, settling, peeking, sessions.

Rights are Azure's: Send to send, schedule and cancel, Listen for everything else.
"""

from dataclasses import replace
from typing import Final

from unibus.core.access.rights import Right
from unibus.endpoints.http.messages import documentation as doc
from unibus.endpoints.http.messages.peek import peek
from unibus.endpoints.http.messages.receive import receive_deferred, receive_head, receive_list
from unibus.endpoints.http.messages.scheduled import cancel_scheduled
from unibus.endpoints.http.messages.send import send
from unibus.endpoints.http.messages.sessions import (
    accept_next,
    accept_session,
    delete_state,
    get_state,
    list_sessions,
    put_state,
    receive_deferred_in_session,
    receive_in_session,
    receive_list_in_session,
    release_session,
    renew_session,
)
from unibus.endpoints.http.messages.settle import (
    abandon,
    complete,
    complete_by_token,
    dead_letter,
    defer,
    renew,
    renew_lock,
)
from unibus.endpoints.http.operation import Handler, Operation

_LOCKED: Final = "entity/messages/*/*"
_LOCKED_PATH: Final = "/messages/{message}/{token}"
_HEAD_PARAMETERS: Final = (doc.TIMEOUT, doc.MODE, doc.NUMBER_OF_MESSAGES)

_SENDING: Final = (
    Operation(
        name="send",
        method="POST",
        shape="entity/messages",
        right=Right.SEND,
        handler=send,
        summary="Send a message, or a batch of messages",
        documented=doc.sending("/messages"),
        statuses=(201, 409),
        has_body=True,
        hot=True,
        parameters=(doc.BROKER_PROPERTIES, doc.ENVELOPE),
        request_schema=doc.SEND_BODY,
    ),
    Operation(
        name="cancel_scheduled",
        method="DELETE",
        shape="entity/$scheduled/*",
        right=Right.SEND,
        handler=cancel_scheduled,
        summary="Cancel a scheduled message",
        documented=doc.sending("/$scheduled/{sequence}"),
        statuses=(200,),
    ),
)

_RECEIVING: Final = (
    Operation(
        name="receive",
        method="POST",
        shape="entity/messages/head",
        right=Right.LISTEN,
        handler=receive_head,
        summary="Receive and lock a message",
        documented=doc.receiving("/messages/head"),
        statuses=(201, 200, 204),
        hot=True,
        parameters=_HEAD_PARAMETERS,
        response_schema=doc.ANY_BODY,
    ),
    Operation(
        name="receive_and_delete",
        method="DELETE",
        shape="entity/messages/head",
        right=Right.LISTEN,
        handler=receive_head,
        summary="Receive and delete a message",
        documented=doc.receiving("/messages/head"),
        statuses=(200, 204),
        hot=True,
        parameters=(doc.TIMEOUT, doc.NUMBER_OF_MESSAGES),
        response_schema=doc.ANY_BODY,
    ),
    Operation(
        name="receive_list",
        method="POST",
        shape="entity/messages/receive",
        right=Right.LISTEN,
        handler=receive_list,
        summary="Receive several messages",
        documented=doc.receiving("/messages/receive"),
        has_body=True,
        parameters=(doc.TIMEOUT,),
        request_schema=doc.RECEIVE_BODY,
        response_schema=doc.MESSAGES,
    ),
    Operation(
        name="receive_deferred",
        method="POST",
        shape="entity/messages/deferred",
        right=Right.LISTEN,
        handler=receive_deferred,
        summary="Receive deferred messages",
        documented=doc.receiving("/messages/deferred"),
        parameters=(doc.SEQUENCES, doc.MODE),
        response_schema=doc.MESSAGES,
    ),
    Operation(
        name="peek",
        method="GET",
        shape="entity/messages",
        right=Right.LISTEN,
        handler=peek,
        summary="Peek at messages without receiving them",
        documented=(*doc.receiving("/messages"), f"{doc.TOPIC}/messages"),
        parameters=(doc.FROM, doc.COUNT, doc.SESSION),
        response_schema=doc.MESSAGES,
    ),
)


def _settling(method: str, name: str, handler: Handler, summary: str, word: str = "", hot: bool = False) -> Operation:
    has_body = word in ("/abandon", "/defer", "/deadletter")
    return Operation(
        name=name,
        method=method,
        shape=f"{_LOCKED}{word}",
        right=Right.LISTEN,
        handler=handler,
        summary=summary,
        documented=doc.receiving(f"{_LOCKED_PATH}{word}"),
        statuses=(200, 410),
        has_body=has_body,
        hot=hot,
        parameters=(doc.REASON, doc.DESCRIPTION) if word == "/deadletter" else (),
        request_schema=doc.SETTLEMENT_BODY if has_body else {},
        response_schema=doc.LOCKED_UNTIL if word == "/renewlock" else {},
    )


_SETTLING: Final = (
    _settling("DELETE", "complete", complete, "Complete a locked message", hot=True),
    _settling("PUT", "abandon", abandon, "Abandon a locked message", hot=True),
    _settling("POST", "renew", renew, "Renew the lock of a message", hot=True),
    _settling("POST", "complete_locked", complete, "Complete a locked message", "/complete"),
    _settling("POST", "abandon_locked", abandon, "Abandon a locked message", "/abandon"),
    _settling("PUT", "abandon_put", abandon, "Abandon a locked message", "/abandon"),
    _settling("POST", "dead_letter", dead_letter, "Dead-letter a locked message", "/deadletter"),
    _settling("PUT", "dead_letter_put", dead_letter, "Dead-letter a locked message", "/deadletter"),
    _settling("POST", "defer", defer, "Defer a locked message", "/defer"),
    _settling("PUT", "defer_put", defer, "Defer a locked message", "/defer"),
    _settling("POST", "renew_lock", renew_lock, "Renew the lock of a message, with the new end as JSON", "/renewlock"),
    Operation(
        name="complete_by_token",
        method="POST",
        shape="entity/messages/complete",
        right=Right.LISTEN,
        handler=complete_by_token,
        summary="Complete a locked message by its lock token alone",
        documented=doc.receiving("/messages/complete"),
        statuses=(200, 410),
        has_body=True,
        request_schema=doc.TOKEN_BODY,
    ),
)


def _session(
    method: str,
    tail: str,
    name: str,
    handler: Handler,
    summary: str,
    statuses: tuple[int, ...] = (200, 410),
    parameters: tuple[doc.Schema, ...] = (),
    response_schema: doc.Schema | None = None,
) -> Operation:
    return Operation(
        name=name,
        method=method,
        shape="entity/$sessions" + tail.replace("{session}", "*").replace("{token}", "*"),
        right=Right.LISTEN,
        handler=handler,
        summary=summary,
        documented=doc.sessions(f"/$sessions{tail}"),
        statuses=statuses,
        tag="sessions",
        parameters=parameters,
        response_schema=response_schema or {},
    )


_HELD: Final = "/{session}/{token}"
_SESSIONS: Final = (
    _session(
        "POST",
        "",
        "accept_next_session",
        accept_next,
        "Accept the next session that has messages",
        (201, 204),
        (doc.TIMEOUT,),
        response_schema=doc.SESSION_LOCK,
    ),
    _session(
        "GET",
        "",
        "list_sessions",
        list_sessions,
        "List sessions that have messages or a state",
        (200,),
        (doc.SKIP, doc.TOP, doc.UPDATED_AFTER),
        response_schema=doc.TEXTS,
    ),
    _session(
        "POST",
        "/{session}",
        "accept_session",
        accept_session,
        "Accept a session",
        (201, 409),
        (doc.TIMEOUT,),
        response_schema=doc.SESSION_LOCK,
    ),
    _session(
        "POST", _HELD, "renew_session", renew_session, "Renew the lock of a session", response_schema=doc.LOCKED_UNTIL
    ),
    _session("DELETE", _HELD, "release_session", release_session, "Release a session"),
    _session(
        "GET",
        f"{_HELD}/state",
        "get_session_state",
        get_state,
        "Read the state of a session",
        (200, 204, 410),
        response_schema=doc.ANY_BODY,
    ),
    replace(
        _session("PUT", f"{_HELD}/state", "set_session_state", put_state, "Set the state of a session"),
        has_body=True,
        request_schema=doc.STATE_BODY,
    ),
    _session("DELETE", f"{_HELD}/state", "delete_session_state", delete_state, "Remove the state of a session"),
    _session(
        "POST",
        f"{_HELD}/messages/head",
        "receive_in_session",
        receive_in_session,
        "Receive and lock a message of a session",
        (201, 200, 204, 410),
        _HEAD_PARAMETERS,
        response_schema=doc.ANY_BODY,
    ),
    _session(
        "DELETE",
        f"{_HELD}/messages/head",
        "receive_and_delete_in_session",
        receive_in_session,
        "Receive and delete a message of a session",
        (200, 204, 410),
        (doc.TIMEOUT, doc.NUMBER_OF_MESSAGES),
        response_schema=doc.ANY_BODY,
    ),
    replace(
        _session(
            "POST",
            f"{_HELD}/messages/receive",
            "receive_list_in_session",
            receive_list_in_session,
            "Receive several messages of a session",
            (200, 410),
            (doc.TIMEOUT,),
            doc.MESSAGES,
        ),
        has_body=True,
        request_schema=doc.RECEIVE_BODY,
    ),
    _session(
        "POST",
        f"{_HELD}/messages/deferred",
        "receive_deferred_in_session",
        receive_deferred_in_session,
        "Receive deferred messages of a session",
        (200, 410),
        (doc.SEQUENCES, doc.MODE),
        response_schema=doc.MESSAGES,
    ),
)

MESSAGES: Final[tuple[Operation, ...]] = (*_SENDING, *_RECEIVING, *_SETTLING, *_SESSIONS)
