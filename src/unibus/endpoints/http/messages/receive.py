"""Receive: POST or DELETE {entity}/messages/head, POST {entity}/messages/receive, POST {entity}/messages/deferred.

    POST head       peek-lock: 201 with Location, the address that settles the message
    DELETE head     receive and delete: 200
    ?timeout=       seconds to wait for a message; 204 if there is none
    ?mode=          PeekLock or ReceiveAndDelete, for POST
    ?numofmessages= up to so many, as a JSON list; 200 with an empty list if there is none
    POST receive    {"max_count", "receive_mode"}: the same list, in the form of another emulator

At-least-once: the lock of a message whose client disconnected while it waited is released, and the message is
redelivered. When the server stops, waiting requests are answered as if their timeout had passed.
"""

from typing import Final

import msgspec

from unibus.bus.api.broker import Broker, Claimed, SessionLock
from unibus.core.lifecycle.commands import RELEASE
from unibus.endpoints.http.messages.query_values import (
    checked_count,
    count_of,
    locks,
    sequences_of,
    timeout_of,
)
from unibus.endpoints.http.messages.received import list_response, message_response
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.runner import while_connected
from unibus.endpoints.http.service import Service
from unibus.errors import BusError, UsageError

EMPTY: Final = 204


async def receive_head(service: Service, request: Request) -> Response:
    return await head_response(service, request, None)


async def head_response(service: Service, request: Request, session: SessionLock | None) -> Response:
    """POST locks, unless `mode` says otherwise; DELETE removes."""
    lock = request.method != "DELETE"
    if not request.scope.get("query_string"):
        # The hot path: nearly every request of a polling worker.
        return _one(service.broker, request, await service.broker.receive(request.entity, lock=lock, session=session))
    query = request.query
    if "mode" in query:
        wanted = locks(query["mode"])
        if wanted and not lock:
            raise UsageError(
                "mode=PeekLock is not possible with DELETE, which removes the message that it receives",
                "use POST for mode=PeekLock",
            )
        lock = wanted
    count = count_of(request, "numofmessages", 0)
    claimed = await wait_and_claim(service, request, max(1, count), lock, session)
    return list_response(service.broker, claimed) if count else _one(service.broker, request, claimed)


def _one(broker: Broker, request: Request, claimed: list[Claimed]) -> Response:
    if not claimed:
        return Response(EMPTY)
    return message_response(broker, request, claimed[0], 201 if claimed[0].until_ns else 200)


async def wait_and_claim(
    service: Service, request: Request, count: int, lock: bool, session: SessionLock | None
) -> list[Claimed]:
    broker = service.broker
    timeout_s = timeout_of(request)
    claiming = broker.receive(
        request.entity, count, lock=lock, timeout_s=timeout_s, session=session, interrupted=service.interrupted
    )
    if not timeout_s:
        return await claiming

    async def undo(claimed: list[Claimed]) -> None:
        await _release(broker, claimed)

    return await while_connected(request, claiming, undo)


async def _release(broker: Broker, claimed: list[Claimed]) -> None:
    for each in claimed:
        if each.until_ns:
            try:
                await broker.settle(RELEASE, each.token)
            except BusError:
                # The lock has expired, or the store is closing: the message is redelivered either way.
                return


class ReceiveParameters(msgspec.Struct):
    """The body of POST receive. Every field is optional."""

    max_count: int | float = 1
    receive_mode: str = "PeekLock"


_decode: Final = msgspec.json.Decoder(ReceiveParameters).decode


async def receive_list(service: Service, request: Request) -> Response:
    return await list_of_session(service, request, None)


async def list_of_session(service: Service, request: Request, session: SessionLock | None) -> Response:
    wanted = request.json_as(_decode) if request.body.strip() else ReceiveParameters()
    count = checked_count("max_count", wanted.max_count)
    lock = locks(wanted.receive_mode, "receive_mode")
    return list_response(service.broker, await wait_and_claim(service, request, count, lock, session))


async def receive_deferred(service: Service, request: Request) -> Response:
    return await deferred_of_session(service, request, None)


async def deferred_of_session(service: Service, request: Request, session: SessionLock | None) -> Response:
    """All messages with these sequence numbers, or none: 404 if one is missing, 413 if they are too large together."""
    lock = locks(request.query.get("mode", "PeekLock"))
    broker = service.broker
    claimed = await broker.receive_deferred(request.entity, sequences_of(request), lock=lock, session=session)
    return list_response(broker, claimed)
