"""Entities with their counts: a list, and live updates."""

from typing import Final

from unibus.bus.management.settings.entities import EntityRecord
from unibus.core.access.rights import Right
from unibus.endpoints.http.management import documentation as doc
from unibus.endpoints.http.management import entities
from unibus.endpoints.http.management.tables.section import Section
from unibus.endpoints.http.operation import Operation

_SECTION: Final = Section("entities")
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
    _SECTION.get(
        *("entities", "entities", entities.listed),
        "Queues, topics and subscriptions by name, with their counts",
        doc.answered("entities next", entities=doc.listed(_ENTITY), next={"type": ["string", "null"]}),
        right=Right.LISTEN,
        parameters=(
            doc.query("after", "Only names after this one.", doc.TEXT),
            doc.query("top", "At most this many.", doc.number(1, entities.TOP_MAX)),
            doc.query("kind", "Only these kinds; may be repeated.", {"type": "string", "enum": [*entities.ALL_KINDS]}),
            doc.query("prefix", "Only names with this prefix, case-insensitive.", doc.TEXT),
            doc.query("settings", "1: with their settings.", doc.FLAG),
        ),
        for_own_scope=True,
    ),
    _SECTION.get(
        *("entities_live", "entities/live", entities.live),
        "All entities, then their changes, with rates, as server-sent events",
        doc.LIVE_ANSWER,
        right=Right.LISTEN,
        parameters=(doc.query("every", "Seconds between two events.", doc.number(1, entities.EVERY_S_MAX)),),
        for_own_scope=True,
    ),
)
