"""The history of a store: SQL, trace, replay, export and import."""

from typing import Final

from unibus.bus.management.history.queries import QueryAnswer, QueryRequest
from unibus.bus.management.messages.imports import (
    ImportAnswer,
    ImportRequest,
    PositionDeletion,
    PositionRecord,
    PositionsRecord,
)
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.bus.management.messages.relays import RelayAnswer, RelayRequest
from unibus.bus.management.messages.replaying import ReplayCount, ReplayedPage, ReplaySendRequest, ReplaySent
from unibus.core.lifecycle.events import Event
from unibus.endpoints.http.management.forms import (
    ENTITY,
    SEQUENCE,
    Schema,
    answer_of,
    body_of,
    parameter,
    schema_of,
    whole,
)
from unibus.endpoints.http.management.history.export import LINES, NAMES_MAX, export_store
from unibus.endpoints.http.management.history.positions import (
    delete_position,
    import_lines,
    list_positions,
    read_position,
    relay_batch,
)
from unibus.endpoints.http.management.history.query import run_query
from unibus.endpoints.http.management.history.replay import replay_count, replay_page, replay_send
from unibus.endpoints.http.management.history.trace import trace_message
from unibus.endpoints.http.management.tables.section import Section
from unibus.endpoints.http.operation import Operation

_SECTION: Final = Section("history")
_COPY: Final[Schema] = {
    "type": "object",
    "description": "The message in one entity; `children` are its copies in other entities, in the same form.",
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
    parameter("after", "Only sequence numbers above this one.", SEQUENCE),
    parameter("since_ns", "Only messages that were stored from this instant on.", SEQUENCE),
)

_POSITION: Final = parameter("name", "The name of a position.", {"type": "string", "minLength": 1}, True)

HISTORY: Final[tuple[Operation, ...]] = (
    _SECTION.post(
        *("query_store", "query", run_query),
        "Query the store and its history with SQL",
        answer_of(QueryAnswer),
        request_schema=body_of(QueryRequest),
        only_reads=True,
    ),
    _SECTION.get(
        *("trace_message", "trace", trace_message),
        "The history of one message, in all entities that it passed",
        {"application/json": {"schema": _TRACE}},
        parameters=(parameter("id", "The id of a message.", {"type": "string", "minLength": 1}, True),),
    ),
    _SECTION.get(
        *("replay_messages", "replay", replay_page),
        "Messages that an entity stored before, by sequence number",
        answer_of(ReplayedPage),
        parameters=(*_BEGINNING, parameter("top", "At most this many.", whole(1, PAGE_MAX))),
    ),
    _SECTION.get(
        *("count_replay", "replay/count", replay_count),
        "How many messages a replay has",
        answer_of(ReplayCount),
        parameters=_BEGINNING,
    ),
    _SECTION.post(
        *("send_replay", "replay/send", replay_send),
        "Send messages of history again, one batch at a time",
        answer_of(ReplaySent),
        statuses=(200, 409),
        request_schema=body_of(ReplaySendRequest),
    ),
    _SECTION.get(
        *("export_store", "export", export_store),
        "Entities with their messages as JSON lines, all at the same moment",
        {LINES: {"schema": {"type": "string"}}},
        parameters=(
            parameter(
                "queue",
                "Only this queue, topic or subscription, with what belongs to it. May be repeated.",
                {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": NAMES_MAX},
            ),
        ),
    ),
    _SECTION.get(
        *("read_position", "position", read_position),
        "The position of an import or an outbox",
        answer_of(PositionRecord),
        parameters=(_POSITION,),
    ),
    _SECTION.get(
        *("list_positions", "positions", list_positions),
        "The positions of imports, outboxes and sinks",
        answer_of(PositionsRecord),
        parameters=(parameter("prefix", "Only names that begin with this text.", {"type": "string"}),),
    ),
    _SECTION.post(
        *("delete_position", "position/delete", delete_position),
        "Delete a position that no writer uses any more",
        answer_of(PositionRecord),
        statuses=(200, 412),
        request_schema=body_of(PositionDeletion),
    ),
    _SECTION.post(
        *("import_lines", "import", import_lines),
        "Import a piece of an export, exactly once",
        answer_of(ImportAnswer),
        statuses=(200, 409, 412),
        parameters=(_POSITION,),
        request_schema=body_of(ImportRequest),
    ),
    _SECTION.post(
        *("relay_batch", "relay", relay_batch),
        "Store a row of an application's outbox, exactly once",
        answer_of(RelayAnswer),
        statuses=(200, 409, 412),
        request_schema=body_of(RelayRequest),
    ),
)
