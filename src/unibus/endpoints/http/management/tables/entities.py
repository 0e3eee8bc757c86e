"""Entities as operators see them: the list, and its live form."""

from typing import Final

from unibus.bus.management.settings.entities import EntityRecord
from unibus.core.access.rights import Right
from unibus.endpoints.http.management import documentation as doc
from unibus.endpoints.http.management import entities
from unibus.endpoints.http.operation import Operation

_TEXTS: Final = ("name", "kind")
_RATES: Final = ("in_per_s", "out_per_s")
_ENTITY: Final[doc.Schema] = {
    "type": "object",
    "required": [name for name in EntityRecord.__struct_fields__ if name != "settings"],
    "properties": {
        name: doc.TEXT if name in _TEXTS else {"type": ["number", "null"]} if name in _RATES else doc.WHOLE
        for name in EntityRecord.__struct_fields__
        if name != "settings"
    }
    | {"settings": {"type": "object"}},
}

ENTITIES: Final[tuple[Operation, ...]] = (
    Operation(
        "entities",
        "GET",
        "/unibus/v1/entities",
        Right.LISTEN,
        entities.listed,
        "Queues, topics and subscriptions by name, with what they hold",
        ("/unibus/v1/entities",),
        tag="management: entities",
        parameters=(
            doc.query("after", "Names after this one.", doc.TEXT),
            doc.query("top", "So many at most.", doc.number(1, entities.TOP_MAX)),
            doc.query("kind", "Only these kinds; may be repeated.", {"type": "string", "enum": [*entities.ALL_KINDS]}),
            doc.query("prefix", "Only names that begin so; case does not matter.", doc.TEXT),
            doc.query("settings", "1: with their settings.", doc.FLAG),
        ),
        response_schema=doc.answered("entities next", entities=doc.listed(_ENTITY), next={"type": ["string", "null"]}),
        for_own_scope=True,
    ),
    Operation(
        "entities_live",
        "GET",
        "/unibus/v1/entities/live",
        Right.LISTEN,
        entities.live,
        "All of them, and what changes, with rates",
        ("/unibus/v1/entities/live",),
        tag="management: entities",
        parameters=(doc.query("every", "Seconds between two events.", doc.number(1, entities.EVERY_S_MAX)),),
        response_schema=doc.LIVE_ANSWER,
        for_own_scope=True,
    ),
)
