"""POST entities/declare: declare a file of entities, or plan it. POST entities/delete: delete an entity with its
messages."""

from functools import partial
from typing import Final

import msgspec

from unibus.bus.management.settings.declaring import DeclareRequest, declare
from unibus.endpoints.http.management.forms import body_as, entity_of
from unibus.endpoints.http.management.settings.turns import Turns
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service

_decode: Final = msgspec.json.Decoder(DeclareRequest).decode


async def declare_file(service: Service, request: Request) -> Response:
    given = await body_as(request, _decode)
    broker = service.broker
    plan = await service.shared(Turns).run(partial(declare, broker.store, given))
    if not given.dry_run:
        for step in plan.steps:
            broker.recount(step.name)
    return json_response(plan)


async def delete_named(service: Service, request: Request) -> Response:
    await service.broker.delete(entity_of(request))
    return json_response({})
