"""Events of history: pages, the last ones, and those that come."""

from typing import Final

from unibus.bus.management.history.events import ATTRIBUTES, FIELDS
from unibus.core.access.rights import Right
from unibus.core.lifecycle.events import KINDS
from unibus.endpoints.http.management import documentation as doc
from unibus.endpoints.http.management import events
from unibus.endpoints.http.operation import Handler, Operation

_EVENT: Final[doc.Schema] = {
    "type": "object",
    "required": ["seq", "at", "domain", "channel", "kind", "sequence"],
    "properties": {"seq": doc.WHOLE, "at": doc.TEXT, "channel": doc.TEXT, "kind": doc.TEXT, "sequence": doc.WHOLE},
}
_AFTER: Final = doc.query("after", "Events after this number.", doc.WHOLE)
_SINCE: Final = doc.query("since_ns", "Not before this instant.", doc.WHOLE)
_FILTER: Final = (
    doc.query("channel", "A name, a pattern such as orders.*, or * for all.", doc.TEXT),
    doc.query("kind", "Only these kinds; may be repeated.", {"type": "string", "enum": list(KINDS)}),
    doc.query(
        "where",
        "FIELD=VALUE, for instance message_id=a1; may be repeated.",
        {"type": "string", "pattern": f"^({'|'.join((*FIELDS, *ATTRIBUTES))})="},
    ),
)


def _row(
    name: str, path: str, handler: Handler, summary: str, parameters: tuple[doc.Schema, ...], answer: doc.Schema
) -> Operation:
    shape = f"/unibus/v1/{path}"
    return Operation(
        name,
        "GET",
        shape,
        Right.MANAGE,
        handler,
        summary,
        (shape,),
        tag="management: history",
        parameters=(*parameters, *_FILTER),
        response_schema=answer,
    )


EVENTS: Final[tuple[Operation, ...]] = (
    _row(
        "events",
        "events",
        events.page,
        "Events of history, page by page",
        (_AFTER, doc.query("limit", "So many at most.", doc.number(1, events.EVENTS_MAX)), _SINCE),
        doc.answered("events next last", events=doc.listed(_EVENT), next=doc.WHOLE, last=doc.WHOLE),
    ),
    _row(
        "events_last",
        "events/last",
        events.last,
        "The newest events, in order",
        (doc.query("count", "So many at most.", doc.number(1, events.EVENTS_MAX)), _SINCE),
        doc.answered("events next complete", events=doc.listed(_EVENT), next=doc.WHOLE, complete={"type": "boolean"}),
    ),
    _row("events_live", "events/live", events.live, "Events as they happen", (_AFTER,), doc.LIVE_ANSWER),
)
