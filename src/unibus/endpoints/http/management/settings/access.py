"""GET access, POST access/add, access/rotate, access/remove: authorization rules of the namespace or of an entity."""

import asyncio
from functools import partial
from typing import Final

import msgspec

from unibus.bus.management.settings.access import (
    AddRequest,
    RemoveRuleRequest,
    RotateRequest,
    add,
    all_rules,
    remove,
    rotate,
    rules_of,
)
from unibus.endpoints.http.management.settings.turns import Turns
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service

_adding: Final = msgspec.json.Decoder(AddRequest).decode
_rotating: Final = msgspec.json.Decoder(RotateRequest).decode
_removing: Final = msgspec.json.Decoder(RemoveRuleRequest).decode


async def list_access(service: Service, request: Request) -> Response:
    """Authorization rules without keys: of one entity, or of the namespace and all its entities."""
    store = service.broker.store
    if request.entity:
        return json_response(await asyncio.to_thread(rules_of, store, request.entity))
    return json_response(await asyncio.to_thread(all_rules, store, request.query.get("after", "")))


async def add_access(service: Service, request: Request) -> Response:
    given = request.json_as(_adding)
    made = partial(add, service.broker.store, request.entity, given)
    return json_response(await service.shared(Turns).run(made))


async def rotate_access(service: Service, request: Request) -> Response:
    given = request.json_as(_rotating)
    rotated = partial(rotate, service.broker.store, request.entity, given)
    return json_response(await service.shared(Turns).run(rotated))


async def remove_access(service: Service, request: Request) -> Response:
    given = request.json_as(_removing)
    removed = partial(remove, service.broker.store, request.entity, given)
    return json_response(await service.shared(Turns).run(removed))
