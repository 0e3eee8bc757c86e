"""GET trace?id=: the history of one message."""

import asyncio

from unibus.bus.management.history.traces import trace
from unibus.core.envelope.fields import plain_text
from unibus.endpoints.http.management.forms import required
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service


async def trace_message(service: Service, request: Request) -> Response:
    message_id = plain_text("id", required(request, "id"))
    store = service.broker.store
    return json_response(await asyncio.to_thread(trace, store, message_id))
