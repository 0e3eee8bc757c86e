"""POST sessions/accept, sessions/renew, sessions/release: session locks, proved by their tokens."""

from typing import Final

import msgspec

from unibus.bus.api.broker import SessionLock
from unibus.bus.management.messages.receiving import (
    AcceptRequest,
    RenewedSession,
    SessionRequest,
    session_lock,
    session_record,
)
from unibus.endpoints.http.management.forms import entity_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.runner import while_connected
from unibus.endpoints.http.service import Service
from unibus.errors import BusError

_accepting: Final = msgspec.json.Decoder(AcceptRequest).decode
_held: Final = msgspec.json.Decoder(SessionRequest).decode


async def accept_session(service: Service, request: Request) -> Response:
    """404 session_not_found if no id was given and no session is free, 409 if the given session is locked."""
    broker = service.broker
    given = request.json_as(_accepting)

    async def undo(lock: SessionLock) -> None:
        try:
            await broker.release_session(lock)
        except BusError:
            return  # The lock has expired, or the store is closing: the session becomes free either way.

    accepting = broker.accept_session(
        entity_of(request),
        given.session_id,
        timeout_s=given.wait_s,
        consumer=given.consumer,
        interrupted=service.interrupted,
    )
    return json_response(session_record(broker, await while_connected(request, accepting, undo)))


async def renew_session(service: Service, request: Request) -> Response:
    lock = session_lock(entity_of(request), request.json_as(_held))
    return json_response(RenewedSession(await service.broker.renew_session(lock)))


async def release_session(service: Service, request: Request) -> Response:
    """Messages of the session that were received and not settled become available again."""
    lock = session_lock(entity_of(request), request.json_as(_held))
    await service.broker.release_session(lock)
    return json_response({})
