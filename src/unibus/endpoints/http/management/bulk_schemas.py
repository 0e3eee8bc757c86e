"""The OpenAPI description of dead-lettered messages and of jobs."""

from typing import Final

from unibus.bus.management.jobs.dead_letters import PAGE_MAX
from unibus.bus.management.jobs.job_records import ERRORS_MAX, JOBS_MAX, RATE_PER_S_MIN
from unibus.endpoints.http.management.dead_letters import AGE_S_MIN
from unibus.limits import BATCH_COMMANDS_MAX, RATE_PER_S_MAX

Schema = dict[str, object]

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_FLAG: Final[Schema] = {"type": "boolean"}
_KEY: Final[Schema] = {"type": "string", "pattern": r"^[0-9]{1,19}:[0-9]{1,19}:[\s\S]+$"}
_SECONDS: Final[Schema] = {"type": "number", "minimum": AGE_S_MIN, "maximum": 999_999_999}
_TEXTS: Final = {
    "queue": "The dead-letter queue, by name; * and ? are wildcards.",
    "source": "The entity that dead-lettered them; * and ? are wildcards.",
    "reason": "Text that the reason contains.",
    "error": "Text that the type or the message of the error contains.",
    "description": "Text that the description contains.",
}
_AGES: Final = {
    "older_than": "Dead-lettered more than this many seconds ago.",
    "newer_than": "Dead-lettered less than this many seconds ago.",
}
_COUNTS: Final = {
    "attempts_below": "Delivered fewer times than this.",
    "attempts_from": "Delivered at least this many times.",
    "recoveries_below": "Recovered fewer times than this.",
    "recoveries_from": "Recovered at least this many times.",
}


def _query(name: str, description: str, schema: Schema, required: bool = False) -> Schema:
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _object(required: str, properties: Schema, is_closed: bool = False) -> Schema:
    found: Schema = {"type": "object", "required": required.split(), "properties": properties}
    return {**found, "additionalProperties": False} if is_closed else found


FILTER_PARAMETERS: Final[tuple[Schema, ...]] = (
    *[_query(name, text, _TEXT) for name, text in _TEXTS.items()],
    *[_query(name, text, _SECONDS) for name, text in _AGES.items()],
    *[_query(name, text, _NUMBER) for name, text in _COUNTS.items()],
    _query("id", "The id of a message; may be given several times.", {"type": "array", "items": _TEXT, "minItems": 1}),
)
PAGE_PARAMETERS: Final[tuple[Schema, ...]] = (
    *FILTER_PARAMETERS,
    _query("after", "The `next` of the former page.", _KEY),
    _query("top", "At most this many.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
    _query("bodies", "1: with the messages themselves.", {"type": "string", "enum": ["0", "1"]}),
)
JOB_PARAMETERS: Final[tuple[Schema, ...]] = (_query("id", "The number of a job.", _NUMBER, required=True),)

_DEAD_MESSAGE: Final = _object(
    "key id entity sequence source reason description error_type last_error died_ns attempts recoveries state size",
    {
        **dict.fromkeys(("id", "entity", "source", "reason", "description"), _TEXT),
        **dict.fromkeys(("error_type", "last_error", "consumer", "state", "traceback"), _TEXT),
        **dict.fromkeys(("sequence", "died_ns", "attempts", "recoveries", "size"), _COUNT),
        "key": _KEY,
        "session_id": {"type": ["string", "null"]},
        "message": {"type": ["object", "null"]},
    },
)
PAGE: Final = _json(
    _object(
        "items next",
        {
            "items": {"type": "array", "items": _DEAD_MESSAGE, "maxItems": PAGE_MAX},
            "next": {"type": ["string", "null"]},
        },
    )
)
_GROUP: Final = _object(
    "entity reason count oldest_ns", {"entity": _TEXT, "reason": _TEXT, "count": _COUNT, "oldest_ns": _NUMBER}
)
GROUPS: Final = _json(
    _object(
        "groups total left_off",
        {"groups": {"type": "array", "items": _GROUP}, "total": _COUNT, "left_off": _COUNT},
    )
)

_FILTER: Final = _object(
    "",
    {
        # Null is the same as omitted.
        **{name: {"type": ["string", "null"]} for name in _TEXTS},
        **{name: {"type": ["number", "null"], "exclusiveMinimum": 0} for name in _AGES},
        **{name: {"type": ["integer", "null"], "minimum": 0} for name in _COUNTS},
        "ids": {"type": ["array", "null"], "items": _TEXT, "minItems": 1},
    },
    is_closed=True,
)
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_HOW: Final[Schema] = {
    "dry_run": _FLAG,
    "rate": {"type": ["number", "null"], "minimum": RATE_PER_S_MIN, "maximum": RATE_PER_S_MAX},
    "batch_size": {"type": "integer", "minimum": 1, "maximum": BATCH_COMMANDS_MAX},
    "max_recoveries": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
}


def _kind(name: str, required: str, **properties: object) -> Schema:
    fields: Schema = {"kind": {"type": "string", "enum": [name]}, **properties, **_HOW}
    return _object(f"kind {required}", fields, is_closed=True)


REQUEST: Final[Schema] = {
    "required": True,
    "content": _json(
        {
            "oneOf": [
                _kind("retry", "filter", filter=_FILTER, force=_FLAG),
                _kind("redirect", "filter target", filter=_FILTER, target=_NAME),
                _kind("discard", "filter", filter=_FILTER),
                _kind("rules", "filter", filter=_FILTER, rules={"type": ["string", "null"]}),
                _kind("purge", "entity", entity=_NAME),
            ]
        }
    ),
}

_STATES: Final = ["queued", "running", "paused", "done", "failed", "cancelled", "interrupted"]
_COUNTED: Final = ("retried", "redirected", "discarded", "purged", "manual_review", "skipped", "errors", "gone")
_RECORD: Final = _object(
    "id kind state request by created_ns done total counts errors started_ns ended_ns reason hint",
    {
        **dict.fromkeys(("id", "created_ns", "started_ns", "ended_ns", "done", "total"), _COUNT),
        **dict.fromkeys(("by", "reason", "hint"), _TEXT),
        "kind": {"type": "string", "enum": ["retry", "redirect", "discard", "rules", "purge"]},
        "state": {"type": "string", "enum": _STATES},
        "request": {"type": "object"},
        "counts": _object(" ".join(_COUNTED), dict.fromkeys(_COUNTED, _COUNT)),
        "errors": {
            "type": "array",
            "items": _object("id error", {"id": _TEXT, "error": _TEXT}),
            "maxItems": ERRORS_MAX,
        },
        "by_rule": {"type": "array", "items": _COUNT},
        "rate": {"type": ["number", "null"]},
    },
)
RECORD: Final = _json(_RECORD)
RECORDS: Final = _json(_object("jobs", {"jobs": {"type": "array", "items": _RECORD, "maxItems": JOBS_MAX}}))
EVENTS: Final[Schema] = {"text/event-stream": {"schema": _object("data event", {"data": _TEXT, "event": _TEXT})}}
