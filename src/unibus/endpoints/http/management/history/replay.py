"""GET replay, GET replay/count, POST replay/send: messages that an entity stored before, as far as history reaches."""

from typing import Final

import msgspec

from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.bus.management.messages.replaying import Replays, ReplaySendRequest
from unibus.endpoints.http.management.forms import number_of, required
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.routing import named_entity
from unibus.endpoints.http.service import Service

TOP_DEFAULT: Final = 100
_decode: Final = msgspec.json.Decoder(ReplaySendRequest).decode


async def replay_page(service: Service, request: Request) -> Response:
    top = number_of(request, "top", TOP_DEFAULT, 1, PAGE_MAX)
    return json_response(await service.shared(Replays).page(*_beginning(request), top))


async def replay_count(service: Service, request: Request) -> Response:
    return json_response(await service.shared(Replays).count(*_beginning(request)))


def _beginning(request: Request) -> tuple[str, int, int]:
    entity = named_entity(required(request, "entity"))
    return entity, number_of(request, "after", 0), number_of(request, "since_ns", 0)


async def replay_send(service: Service, request: Request) -> Response:
    given = request.json_as(_decode)
    named = msgspec.structs.replace(given, source=named_entity(given.source), to=named_entity(given.to))
    request.entity, request.detail = named.to, f"from {named.source}"
    return json_response(await service.shared(Replays).send(named))
