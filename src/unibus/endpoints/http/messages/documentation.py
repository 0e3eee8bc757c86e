"""The OpenAPI description of the data plane: paths, parameters and schemas that several operations share."""

from typing import Final

from unibus.endpoints.http.messages.query_values import COUNT_MAX, TIMEOUT_S_MAX
from unibus.limits import BATCH_COMMANDS_MAX, HEADER_NAME_CHARS_MAX

BARE: Final = "/{entity}"
QUEUE: Final = "/servicebus/queues/{queue}"
TOPIC: Final = "/servicebus/topics/{topic}"
SUBSCRIPTION: Final = "/servicebus/topics/{topic}/subscriptions/{subscription}"
DEAD_LETTER_QUEUE: Final = f"{QUEUE}/$DeadLetterQueue"

Schema = dict[str, object]


def sending(tail: str) -> tuple[str, ...]:
    """The paths of entities that accept messages."""
    return (f"{QUEUE}{tail}", f"{TOPIC}{tail}", f"{BARE}{tail}")


def receiving(tail: str) -> tuple[str, ...]:
    """The paths of entities that deliver messages."""
    return (f"{QUEUE}{tail}", f"{DEAD_LETTER_QUEUE}{tail}", f"{SUBSCRIPTION}{tail}", f"{BARE}{tail}")


def sessions(tail: str) -> tuple[str, ...]:
    """The paths of entities with sessions: not dead-letter queues."""
    return (f"{QUEUE}{tail}", f"{SUBSCRIPTION}{tail}", f"{BARE}{tail}")


def query(name: str, description: str, schema: Schema, required: bool = False) -> Schema:
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": _TEXT}


def _whole(minimum: int, maximum: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


_TEXT: Final[Schema] = {"type": "string"}
_PROPERTIES: Final[Schema] = {
    "type": "object",
    "propertyNames": {"minLength": 1, "maxLength": HEADER_NAME_CHARS_MAX},
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}
_MODE: Final[Schema] = {"type": "string", "enum": ["PeekLock", "ReceiveAndDelete"]}
_SEQUENCE: Final = _whole(0, 2**63 - 1)

TIMEOUT: Final = query(
    "timeout", "Seconds to wait for a message.", {"type": "number", "minimum": 0, "maximum": TIMEOUT_S_MAX}
)
MODE: Final = query("mode", "How to receive.", _MODE)
NUMBER_OF_MESSAGES: Final = query("numofmessages", "At most this many, as a JSON list.", _whole(1, COUNT_MAX))
SEQUENCES: Final = query(
    "sequences",
    "Sequence numbers of deferred messages, separated by commas.",
    {"type": "string", "pattern": "^[0-9]{1,18}(,[0-9]{1,18})*$"},
    True,
)
FROM: Final = query("from", "The first sequence number.", _SEQUENCE)
COUNT: Final = query("count", "At most this many.", _whole(1, COUNT_MAX))
SESSION: Final = query("session", "Only messages of this session.", {"type": "string", "minLength": 1})
SKIP: Final = query("skip", "Skip this many.", _SEQUENCE)
TOP: Final = query("top", "At most this many.", _whole(1, COUNT_MAX))
UPDATED_AFTER: Final = query(
    "updated_after", "Only sessions whose state was set after this instant.", {"type": "string", "format": "date-time"}
)
REASON: Final = query("reason", "Why the message is dead-lettered.", _TEXT)
DESCRIPTION: Final = query("description", "More about the reason.", _TEXT)
ENVELOPE: Final = query("envelope", "The body is a JSON envelope.", {"type": "string", "enum": ["json"]})
BROKER_PROPERTIES: Final = header(
    "BrokerProperties", "The envelope as a JSON object: MessageId, Label, SessionId, TimeToLive, …"
)


def _object(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    return found | {"required": list(required)} if required else found


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def json_body(schema: Schema, required: bool = False) -> Schema:
    return {"required": required, "content": _json(schema)}


_BATCH_ITEM: Final = _object(
    {
        "Body": {"description": "Text, or another JSON value, which becomes the body."},
        "IsBodyBase64": {"type": "boolean"},
        "BrokerProperties": {"type": "object"},
        "UserProperties": _PROPERTIES,
    }
)
_MESSAGE: Final = _object(
    {
        "Body": _TEXT,
        "IsBodyBase64": {"type": "boolean"},
        "ContentType": _TEXT,
        "MessageId": _TEXT,
        "SequenceNumber": _SEQUENCE,
        "DeliveryCount": _whole(0, 2**31 - 1),
        "EnqueuedTimeUtc": {"type": "string", "format": "date-time"},
        "State": {"type": "string", "enum": ["Active", "Deferred", "Scheduled"]},
        "LockToken": {"type": "string", "format": "uuid"},
        "LockedUntilUtc": {"type": "string", "format": "date-time"},
        "UserProperties": {"type": "object"},
    },
    ("Body", "MessageId", "SequenceNumber", "DeliveryCount", "EnqueuedTimeUtc", "State", "UserProperties"),
)

SEND_BODY: Final[Schema] = {
    "description": "The message body, of any content type.",
    "content": {
        "text/plain": {"schema": _TEXT},
        "application/json": {"schema": {}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        "application/vnd.microsoft.servicebus.json": {
            "schema": {"type": "array", "items": _BATCH_ITEM, "minItems": 1, "maxItems": BATCH_COMMANDS_MAX}
        },
    },
}
MESSAGES: Final = _json({"type": "array", "items": _MESSAGE})
TEXTS: Final = _json({"type": "array", "items": _TEXT})
LOCKED_UNTIL: Final = _json(_object({"LockedUntilUtc": {"type": "string", "format": "date-time"}}, ("LockedUntilUtc",)))
SESSION_LOCK: Final = _json(
    _object(
        {
            "SessionId": _TEXT,
            "LockToken": {"type": "string", "format": "uuid"},
            "LockedUntilUtc": {"type": "string", "format": "date-time"},
        },
        ("SessionId", "LockToken", "LockedUntilUtc"),
    )
)
ANY_BODY: Final[Schema] = {"*/*": {"schema": {}}}
STATE_BODY: Final[Schema] = {
    "required": False,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
RECEIVE_BODY: Final = json_body(_object({"max_count": _whole(1, COUNT_MAX), "receive_mode": _MODE}))
SETTLEMENT_BODY: Final = json_body(
    _object({"reason": _TEXT, "description": _TEXT, "properties": {"anyOf": [_PROPERTIES, {"type": "null"}]}})
)
TOKEN_BODY: Final = json_body(_object({"lock_token": {"type": "string", "format": "uuid"}}, ("lock_token",)), True)
