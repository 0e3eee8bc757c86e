"""Sessions: {entity}/$sessions, where the token proves that the caller holds the session lock.

    POST   $sessions                    accept the next session that has messages (?timeout=): 201, or 204 for none
    POST   $sessions/{id}               accept this session: 201, or 409 while another receiver holds it
    GET    $sessions                    ids (?skip=&top=&updated_after=)
    POST   $sessions/{id}/{token}       renew          DELETE  release
    GET    $sessions/{id}/{token}/state                PUT, DELETE
    POST   $sessions/{id}/{token}/messages/head        DELETE; also messages/receive and messages/deferred

Messages of a session are settled like all others, at {entity}/messages/{id}/{token}. Azure has no REST form for
sessions; these paths are our own.
"""

from urllib.parse import quote

from unibus.bus.api.broker import Broker, SessionLock
from unibus.endpoints.http.dates import http_date, instant, iso_date
from unibus.endpoints.http.messages.broker_properties import HEADER, header_text
from unibus.endpoints.http.messages.lock_tokens import token_bytes, token_text
from unibus.endpoints.http.messages.query_values import count_of, timeout_of, whole_number
from unibus.endpoints.http.messages.receive import deferred_of_session, head_response, list_of_session
from unibus.endpoints.http.messages.received import BYTES_TYPE, entity_path
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.runner import while_connected
from unibus.endpoints.http.service import Service
from unibus.errors import BusError, SessionNotFound, UsageError


async def accept_next(service: Service, request: Request) -> Response:
    try:
        return await _accepted(service, request, None)
    except SessionNotFound:
        return Response(204)


async def accept_session(service: Service, request: Request) -> Response:
    return await _accepted(service, request, request.params["session"])


async def _accepted(service: Service, request: Request, session_id: str | None) -> Response:
    broker = service.broker
    timeout_s = timeout_of(request)
    accepting = broker.accept_session(request.entity, session_id, timeout_s=timeout_s, interrupted=service.interrupted)

    async def undo(lock: SessionLock) -> None:
        await _released(broker, lock)

    lock = await while_connected(request, accepting, undo) if timeout_s else await accepting
    token = token_text(lock.token)
    entity = f"{request.root}{entity_path(request.place.family, request.entity)}"
    path = f"{entity}/$sessions/{quote(lock.session_id, safe='')}"
    document = {"SessionId": lock.session_id, "LockToken": token, "LockedUntilUtc": iso_date(lock.until_ns)}
    return json_response(document, 201, [("Location", f"{request.base_url}{path}/{token}")])


async def _released(broker: Broker, lock: SessionLock) -> None:
    try:
        await broker.release_session(lock)
    except BusError:
        # The lock has expired, or the store is closing: the session becomes free either way.
        return


async def list_sessions(service: Service, request: Request) -> Response:
    query = request.query
    updated = query.get("updated_after")
    at = None if updated is None else instant(updated)
    if updated is not None and at is None:
        raise UsageError(
            f"updated_after is {updated!r:.60}, which is no date and time", "for instance 2030-01-31T08:00:00Z"
        )
    ids = await service.broker.sessions(
        request.entity,
        updated_after_ns=0 if at is None else min(max(0, int(at.timestamp() * 1_000_000)) * 1_000, 2**63 - 1),
        skip=whole_number("skip", query.get("skip", "0")),
        top=count_of(request, "top", 100),
    )
    return json_response(ids)


def held_session(request: Request) -> SessionLock:
    """The session lock that the path names. The broker checks whether it is valid."""
    params = request.params
    return SessionLock(request.entity, params["session"], token_bytes(params["token"]), 0)


async def renew_session(service: Service, request: Request) -> Response:
    until_ns = await service.broker.renew_session(held_session(request))
    headers = [(HEADER, header_text({"LockedUntilUtc": http_date(until_ns)}))]
    return json_response({"LockedUntilUtc": iso_date(until_ns)}, 200, headers)


async def release_session(service: Service, request: Request) -> Response:
    await service.broker.release_session(held_session(request))
    return Response(200)


async def get_state(service: Service, request: Request) -> Response:
    state = await service.broker.session_state(held_session(request))
    return Response(204) if state is None else Response(200, state, BYTES_TYPE)


async def put_state(service: Service, request: Request) -> Response:
    await service.broker.set_session_state(held_session(request), request.body)
    return Response(200)


async def delete_state(service: Service, request: Request) -> Response:
    await service.broker.set_session_state(held_session(request), None)
    return Response(200)


async def receive_in_session(service: Service, request: Request) -> Response:
    return await head_response(service, request, held_session(request))


async def receive_list_in_session(service: Service, request: Request) -> Response:
    return await list_of_session(service, request, held_session(request))


async def receive_deferred_in_session(service: Service, request: Request) -> Response:
    return await deferred_of_session(service, request, held_session(request))
