"""What happened: SQL, trace, replay, export and import."""

from typing import Final

from unibus.bus.management.history.queries import QueryAnswer, QueryRequest
from unibus.bus.management.messages.imports import ImportAnswer, ImportRequest, PositionRecord
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.bus.management.messages.relays import RelayAnswer, RelayRequest
from unibus.bus.management.messages.replaying import ReplayCount, ReplayedPage, ReplaySendRequest, ReplaySent
from unibus.core.access.rights import Right
from unibus.core.lifecycle.events import Event
from unibus.endpoints.http.management.forms import (
    ENTITY,
    SEQUENCE,
    Schema,
    answer_of,
    at,
    body_of,
    parameter,
    schema_of,
    whole,
)
from unibus.endpoints.http.management.history.export import LINES, NAMES_MAX, export_store
from unibus.endpoints.http.management.history.positions import import_lines, read_position, relay_batch
from unibus.endpoints.http.management.history.query import run_query
from unibus.endpoints.http.management.history.replay import replay_count, replay_page, replay_send
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

_BEGINNING: Final = (
    ENTITY,
    parameter("after", "Only higher sequences.", SEQUENCE),
    parameter("since_ns", "Only what was stored from this instant on.", SEQUENCE),
)

_POSITION: Final = parameter("name", "The name of a position.", {"type": "string", "minLength": 1}, True)

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
    Operation(
        name="replay_messages",
        method="GET",
        shape=at("replay"),
        right=Right.MANAGE,
        handler=replay_page,
        summary="What an entity has stored before, by sequence",
        documented=(at("replay"),),
        tag=_TAG,
        parameters=(*_BEGINNING, parameter("top", "So many at most.", whole(1, PAGE_MAX))),
        response_schema=answer_of(ReplayedPage),
    ),
    Operation(
        name="count_replay",
        method="GET",
        shape=at("replay/count"),
        right=Right.MANAGE,
        handler=replay_count,
        summary="How many messages a replay has",
        documented=(at("replay/count"),),
        tag=_TAG,
        parameters=_BEGINNING,
        response_schema=answer_of(ReplayCount),
    ),
    Operation(
        name="send_replay",
        method="POST",
        shape=at("replay/send"),
        right=Right.MANAGE,
        handler=replay_send,
        summary="Send messages of history again, one batch at a time",
        documented=(at("replay/send"),),
        statuses=(200, 409),
        has_body=True,
        tag=_TAG,
        request_schema=body_of(ReplaySendRequest),
        response_schema=answer_of(ReplaySent),
    ),
    Operation(
        name="export_store",
        method="GET",
        shape=at("export"),
        right=Right.MANAGE,
        handler=export_store,
        summary="Entities with their messages as JSON lines, all of one moment",
        documented=(at("export"),),
        tag=_TAG,
        parameters=(
            parameter(
                "queue",
                "Only this queue, topic or subscription, with what belongs to it. May be repeated.",
                {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": NAMES_MAX},
            ),
        ),
        response_schema={LINES: {"schema": {"type": "string"}}},
    ),
    Operation(
        name="read_position",
        method="GET",
        shape=at("position"),
        right=Right.MANAGE,
        handler=read_position,
        summary="How far an import or an outbox has come",
        documented=(at("position"),),
        tag=_TAG,
        parameters=(_POSITION,),
        response_schema=answer_of(PositionRecord),
    ),
    Operation(
        name="import_lines",
        method="POST",
        shape=at("import"),
        right=Right.MANAGE,
        handler=import_lines,
        summary="Import a piece of an export, once",
        documented=(at("import"),),
        statuses=(200, 409, 412),
        has_body=True,
        tag=_TAG,
        parameters=(_POSITION,),
        request_schema=body_of(ImportRequest),
        response_schema=answer_of(ImportAnswer),
    ),
    Operation(
        name="relay_batch",
        method="POST",
        shape=at("relay"),
        right=Right.MANAGE,
        handler=relay_batch,
        summary="Store a row of an application's outbox, once",
        documented=(at("relay"),),
        statuses=(200, 409, 412),
        has_body=True,
        tag=_TAG,
        request_schema=body_of(RelayRequest),
        response_schema=answer_of(RelayAnswer),
    ),
)
