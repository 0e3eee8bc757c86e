"""The OpenAPI description of the administration API: paths, parameters, bodies."""

from typing import Final, TypeAlias

from unibus.endpoints.http.administration.paging import SKIP_MAX, TOP_MAX

Schema: TypeAlias = dict[str, object]

ENTITY_PATHS: Final = (
    "/{entity}",
    "/servicebus/queues/{queue}",
    "/servicebus/topics/{topic}",
    "/{topic}/subscriptions/{subscription}",
    "/servicebus/topics/{topic}/subscriptions/{subscription}",
)
QUEUES_PATHS: Final = ("/$Resources/queues", "/servicebus/queues")
TOPICS_PATHS: Final = ("/$Resources/topics", "/servicebus/topics")
SUBSCRIPTIONS_PATHS: Final = ("/{topic}/subscriptions", "/servicebus/topics/{topic}/subscriptions")
RULES_PATHS: Final = (
    "/{topic}/subscriptions/{subscription}/rules",
    "/servicebus/topics/{topic}/subscriptions/{subscription}/rules",
)
RULE_PATHS: Final = tuple([f"{path}/{{rule}}" for path in RULES_PATHS])


def _parameter(name: str, where: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": where, "required": False, "description": description, "schema": schema}


IF_MATCH: Final = _parameter(
    "If-Match",
    "header",
    "`*` updates an existing entity; without it the entity is created",
    {"type": "string", "enum": ["*"]},
)
API_VERSION: Final = _parameter(
    "api-version", "query", "Sent by Azure's clients; every version is accepted", {"type": "string"}
)
ENRICH: Final = _parameter(
    "enrich", "query", "Sent by Azure's clients and ignored: answers are always complete", {"type": "string"}
)
SKIP: Final = _parameter(
    "$skip", "query", "How many entries to skip", {"type": "integer", "minimum": 0, "maximum": SKIP_MAX}
)
TOP: Final = _parameter(
    "$top",
    "query",
    f"How many entries to return; more than {TOP_MAX} need several pages",
    {"type": "integer", "minimum": 1, "maximum": SKIP_MAX},
)

READ: Final = (API_VERSION, ENRICH)
WRITTEN: Final = (IF_MATCH, API_VERSION)
LISTED: Final = (SKIP, TOP, API_VERSION)

_ATOM: Final[Schema] = {"schema": {"type": "string", "description": "An Atom entry in the form of Azure Service Bus"}}
_OBJECT: Final[Schema] = {"type": "object"}
_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_FILTER: Final[Schema] = {
    "description": "true, false, SQL, SQL with parameters, or the properties of a correlation filter",
    "anyOf": [{"type": "boolean"}, _TEXT, _OBJECT],
}
_RULE: Final[Schema] = {
    "type": "object",
    "required": ["name", "filter"],
    "properties": {
        "name": _TEXT,
        "filter": _FILTER,
        "action": {"anyOf": [_TEXT, _OBJECT]},
        "created_at": _TEXT,
    },
}
_ENTITY: Final[Schema] = {
    "type": "object",
    "required": ["name", "kind", "settings", "counts"],
    "properties": {
        "name": _TEXT,
        "kind": _TEXT,
        "settings": _OBJECT,
        "counts": {
            "type": "object",
            "properties": dict.fromkeys(("active", "locked", "deferred", "scheduled", "dead"), _COUNT),
        },
        "size_bytes": _COUNT,
        "created_at": _TEXT,
        "updated_at": _TEXT,
        "accessed_at": _TEXT,
    },
}


def _list_of(item: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next": {"anyOf": [_TEXT, {"type": "null"}], "description": "The address of the next page"},
        },
    }


def _both(json: Schema) -> Schema:
    return {"application/atom+xml": _ATOM, "application/json": {"schema": json}}


_ENTITY_GIVEN: Final[Schema] = {
    "type": "object",
    "description": "Settings by their unibus names, and `kind` if the path does not name it",
}
_RULE_GIVEN: Final[Schema] = {
    "type": "object",
    "properties": {"filter": _FILTER, "action": {"anyOf": [_TEXT, _OBJECT, {"type": "null"}]}},
}

ENTITY_BODY: Final[Schema] = {"required": False, "content": _both(_ENTITY_GIVEN)}
RULE_BODY: Final[Schema] = {"required": False, "content": _both(_RULE_GIVEN)}
ENTITY_ANSWER: Final[Schema] = _both(_ENTITY)
ENTITIES_ANSWER: Final[Schema] = _both(_list_of(_ENTITY))
RULE_ANSWER: Final[Schema] = _both(_RULE)
RULES_ANSWER: Final[Schema] = _both(_list_of(_RULE))
NAMESPACE_ANSWER: Final[Schema] = _both({"type": "object", "properties": {"Name": _TEXT}})
