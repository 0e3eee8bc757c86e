"""Peek: GET {entity}/messages?from=&count=&session=, messages in order of sequence without receiving them."""

from unibus.endpoints.http.messages.query_values import count_of, whole_number
from unibus.endpoints.http.messages.received import list_response
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError


async def peek(service: Service, request: Request) -> Response:
    """Messages in any state, without lock tokens: a token belongs to the receiver that holds the lock."""
    query = request.query
    from_sequence = whole_number("from", query.get("from", "0"))
    count = count_of(request, "count", 1)
    session_id = query.get("session")
    if session_id == "":
        raise UsageError("the query parameter session is empty", "send the id of a session, or omit session")
    broker = service.broker
    return list_response(broker, await broker.peek(request.entity, from_sequence, count, session_id))
