"""GET messages: by sequence number, in any state, complete or as previews."""

from unibus.bus.management.messages.peeking import PAGE_MAX, PREVIEW_CHARS_MAX, peek
from unibus.endpoints.http.management.forms import entity_of, number_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError

TOP_DEFAULT = 100


async def peek_messages(service: Service, request: Request) -> Response:
    session_id = request.query.get("session")
    if session_id == "":
        raise UsageError("the query parameter session is empty", "send the id of a session, or omit session")
    page = await peek(
        service.broker,
        entity_of(request),
        number_of(request, "from", 0),
        number_of(request, "top", TOP_DEFAULT, 1, PAGE_MAX),
        session_id,
        number_of(request, "preview", 0, 1, PREVIEW_CHARS_MAX),
    )
    return json_response(page)
