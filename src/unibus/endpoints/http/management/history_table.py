"""What happened: SQL, trace, replay, export and import."""

from typing import Final

from unibus.bus.management.queries import QueryAnswer, QueryRequest
from unibus.core.access.rights import Right
from unibus.core.life.events import Event
from unibus.endpoints.http.management.forms import Schema, answer_of, at, body_of, parameter, schema_of
from unibus.endpoints.http.management.history.query import run_query
from unibus.endpoints.http.management.history.trace import trace_message
from unibus.endpoints.http.operation import Operation

_TAG: Final = "management: history"
_COPY: Final[Schema] = {
    "type": "object",
    "description": "The message in one place; `children` are places of the same form that it went on to.",
    "required": ["channel", "sequence", "outcome", "reason", "steps", "children", "declined"],
    "properties": {
        **{name: {"type": "string"} for name in ("channel", "outcome", "reason")},
        "sequence": {"type": "integer"},
        "steps": {"type": "array", "items": {"type": "object", "required": ["seq", "text"]}},
        "children": {"type": "array", "items": {"type": "object"}},
        "declined": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    },
}
_TRACE: Final[Schema] = {
    "type": "object",
    "required": ["message_id", "status", "events", "roots"],
    "properties": {
        "message_id": {"type": "string"},
        "status": {"type": "string"},
        "events": {"type": "array", "items": schema_of(Event)},
        "roots": {"type": "array", "items": _COPY},
    },
}

HISTORY: Final[tuple[Operation, ...]] = (
    Operation(
        name="query_store",
        method="POST",
        shape=at("query"),
        right=Right.MANAGE,
        handler=run_query,
        summary="Ask with SQL what the store holds, and what happened in it",
        documented=(at("query"),),
        has_body=True,
        tag=_TAG,
        request_schema=body_of(QueryRequest),
        response_schema=answer_of(QueryAnswer),
        only_reads=True,
    ),
    Operation(
        name="trace_message",
        method="GET",
        shape=at("trace"),
        right=Right.MANAGE,
        handler=trace_message,
        summary="What happened to a message, in all the places where it was",
        documented=(at("trace"),),
        tag=_TAG,
        parameters=(parameter("id", "The id of a message.", {"type": "string", "minLength": 1}, True),),
        response_schema={"application/json": {"schema": _TRACE}},
    ),
)
