"""GET position, POST import, POST relay: imports and outbox relays of other processes, each step exactly once.

GET positions and POST position/delete are for operators: positions of files and streams that do not exist any more.

A client sends the position that it continues from; the store commits the step together with the new position.
"""

import asyncio
from functools import partial
from typing import Final

import msgspec

from unibus.bus.management.messages.imports import (
    ImportRequest,
    PositionDeletion,
    PositionRecord,
    PositionsRecord,
    checked_position,
    import_piece,
)
from unibus.bus.management.messages.relays import RelayRequest, relay_answer, relay_row
from unibus.core.lifecycle.commands import DeletePosition
from unibus.endpoints.http.management.forms import body_as, required
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service

_importing: Final = msgspec.json.Decoder(ImportRequest).decode
_deleting: Final = msgspec.json.Decoder(PositionDeletion).decode
_relaying: Final = msgspec.json.Decoder(RelayRequest).decode


async def read_position(service: Service, request: Request) -> Response:
    return json_response(PositionRecord(await service.broker.store.position(required(request, "name"))))


async def list_positions(service: Service, request: Request) -> Response:
    return json_response(PositionsRecord(await service.broker.store.catalog.positions(request.query.get("prefix", ""))))


async def delete_position(service: Service, request: Request) -> Response:
    """412 if the position is not where the client believes: a writer uses it."""
    given = await body_as(request, _deleting)
    request.detail = given.name
    await service.broker.store.apply([DeletePosition(given.name, given.expected)])
    return json_response(PositionRecord(0))


async def import_lines(service: Service, request: Request) -> Response:
    """412 if another client has advanced the position meanwhile."""
    name = checked_position(required(request, "name"))
    request.detail = name
    given = await body_as(request, _importing)
    broker = service.broker
    answer = await asyncio.to_thread(partial(import_piece, broker.store, name, given))
    return json_response(answer)


async def relay_batch(service: Service, request: Request) -> Response:
    given = await body_as(request, _relaying)
    results = await relay_row(service.broker.store, given)
    return json_response(relay_answer(given, results))
