"""POST query: SQL over the store and its history. A disconnect of the client ends the query."""

from typing import Final

import msgspec

from unibus.bus.management.history.queries import Queries, QueryRequest, pieces_of
from unibus.endpoints.http.management.forms import body_as
from unibus.endpoints.http.management.streams import JSON_TYPE, drawn
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.runner import while_connected
from unibus.endpoints.http.service import Service

_decode: Final = msgspec.json.Decoder(QueryRequest).decode


async def run_query(service: Service, request: Request) -> Response:
    given = await body_as(request, _decode)
    queries = service.shared(Queries)
    result = await while_connected(request, queries.run(given))
    return Response(content_type=JSON_TYPE, stream=drawn(pieces_of(result)))
