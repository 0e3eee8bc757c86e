"""Events of history: pages, the newest ones, and new ones live."""

from typing import Final

from unibus.bus.management.history.events import ATTRIBUTES, FIELDS
from unibus.core.lifecycle.events import KINDS
from unibus.endpoints.http.management import documentation as doc
from unibus.endpoints.http.management import events
from unibus.endpoints.http.management.tables.section import Section
from unibus.endpoints.http.operation import Operation

_SECTION: Final = Section("history")
_EVENT: Final[doc.Schema] = {
    "type": "object",
    "required": ["seq", "at", "domain", "channel", "kind", "sequence"],
    "properties": {"seq": doc.WHOLE, "at": doc.TEXT, "channel": doc.TEXT, "kind": doc.TEXT, "sequence": doc.WHOLE},
}
_AFTER: Final = doc.query("after", "Only events after this number.", doc.WHOLE)
_SINCE: Final = doc.query("since_ns", "Only events from this instant on.", doc.WHOLE)
_FILTER: Final = (
    doc.query("channel", "A name, a pattern such as orders.*, or * for all.", doc.TEXT),
    doc.query("kind", "Only these kinds; may be repeated.", {"type": "string", "enum": list(KINDS)}),
    doc.query(
        "where",
        "FIELD=VALUE, for instance message_id=a1; may be repeated.",
        {"type": "string", "pattern": f"^({'|'.join((*FIELDS, *ATTRIBUTES))})="},
    ),
)
_COUNT: Final = doc.number(1, events.EVENTS_MAX)

EVENTS: Final[tuple[Operation, ...]] = (
    _SECTION.get(
        *("events", "events", events.page),
        "Events of history, page by page",
        doc.answered("events next last", events=doc.listed(_EVENT), next=doc.WHOLE, last=doc.WHOLE),
        parameters=(_AFTER, doc.query("limit", "At most this many.", _COUNT), _SINCE, *_FILTER),
    ),
    _SECTION.get(
        *("events_last", "events/last", events.last),
        "The newest events, in order",
        doc.answered("events next complete", events=doc.listed(_EVENT), next=doc.WHOLE, complete={"type": "boolean"}),
        parameters=(doc.query("count", "At most this many.", _COUNT), _SINCE, *_FILTER),
    ),
    _SECTION.get(
        *("events_live", "events/live", events.live),
        "Events as they happen, as server-sent events",
        doc.LIVE_ANSWER,
        parameters=(_AFTER, *_FILTER),
    ),
)
