"""POST messages/move, messages/remove: waiting messages by their sequence numbers, all or none in one call."""

import asyncio
from functools import partial
from typing import Final

import msgspec

from unibus.bus.management.messages.moving import MoveRequest, RemoveRequest, move, remove
from unibus.core.access.rights import Right
from unibus.endpoints.http.management.forms import entity_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.routing import named_entity
from unibus.endpoints.http.service import Service

_moving: Final = msgspec.json.Decoder(MoveRequest).decode
_removing: Final = msgspec.json.Decoder(RemoveRequest).decode


async def move_messages(service: Service, request: Request) -> Response:
    """Also needs the right Manage on the target."""
    entity, given = entity_of(request), request.json_as(_moving)
    given = msgspec.structs.replace(given, to=named_entity(given.to))
    request.detail = f"to {given.to}"
    service.authorization.check(request, Right.MANAGE, given.to)
    broker = service.broker
    answer = await asyncio.to_thread(partial(move, broker.store, broker.now_ns(), entity, given))
    broker.queues.renewals.settled(entity)  # Wakes publishers that are blocked by a full entity.
    return json_response(answer)


async def remove_messages(service: Service, request: Request) -> Response:
    entity, given = entity_of(request), request.json_as(_removing)
    broker = service.broker
    answer = await asyncio.to_thread(partial(remove, broker.store, entity, given))
    broker.queues.renewals.settled(entity)  # Wakes publishers that are blocked by a full entity.
    return json_response(answer)
