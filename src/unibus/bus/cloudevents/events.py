"""Converts messages to CloudEvents 1.0 and back, in JSON form and in binary mode.

    id source type subject time        ↔  id source type subject timestamp
    datacontenttype, data, data_base64 ↔  content_type, body
    correlationid traceparent priority …  ↔  the fields of the envelope that have a name there (EXTENSIONS)
    any other extension                ↔  a header

The invariant: to_cloudevent and from_cloudevent lose nothing. An event can express less than our envelope: its
attributes have lower-case names and three types, and some are required. So everything that reading the event would not
restore is written, in the form of document.py, into one more extension that other programs may ignore: `unibus`. The
state of a message on its channel (sequence, delivery count) is not part of an event.

A message without a type uses its channel as the type, and an event of another program uses its type as the channel.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from unibus.bus.cloudevents.text import (
    header_text,
    instant_ns,
    instant_text,
    is_attribute_name,
    is_attribute_text,
    is_uri_reference,
    percent_encoded,
)
from unibus.core.codec.codec import decode_json, encode_json
from unibus.core.codec.wire import base64_bytes, base64_text, is_plain
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority
from unibus.core.envelope.stamp import default_id_generator
from unibus.errors import CloudEventInvalid, DecodeError, SerializationFailed
from unibus.limits import PRIORITY_MAX

SPEC_VERSION: Final = "1.0"
SOURCE_DEFAULT: Final = "/unibus"
REST: Final = "unibus"
JSON_TYPE: Final = "application/json"
PREFIX: Final = "ce-"

# The envelope field of each extension attribute. The first four are documented extensions of CloudEvents.
EXTENSIONS: Final[dict[str, str]] = {
    "traceparent": "traceparent",
    "tracestate": "tracestate",
    "partitionkey": "partition_key",
    "correlationid": "correlation_id",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_session_id",
    "to": "to",
    "target": "target",
    "sessionid": "session_id",
    "routingkey": "routing_key",
    "dedupkey": "dedup_key",
    "txid": "tx_id",
    "backendid": "backend_id",
}
_EXTENSION_OF: Final = {field: extension for extension, field in EXTENSIONS.items()}
_EXPIRY: Final = "expirytime"
_SCHEDULE: Final = "scheduledat"
_PRIORITY: Final = "priority"
_CORE: Final = ("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data", "data_base64")
_TAKEN: Final = frozenset({*_CORE, *EXTENSIONS, _EXPIRY, _SCHEDULE, _PRIORITY, REST})
_PLACE: Final = ("unibus", "sequence", "expires_ns", "delivery_count")
_SERIALIZED_TYPES: Final = {"serialized/json": JSON_TYPE, "serialized/msgpack": "application/vnd.msgpack"}

# How to decode the body of a binary event, and the name under which the extension `unibus` stores it.
_AS: Final = "as"
_NOTHING: Final = "nothing"
_JSON: Final = "json"
_TEXT: Final = "text"
_BYTES: Final = "bytes"

_from_json: Final = msgspec.json.Decoder(dict[str, object]).decode
_any_from_json: Final = msgspec.json.Decoder().decode
_to_json: Final = msgspec.json.Encoder().encode


# Writing


def to_cloudevent(message: Message, source: str = SOURCE_DEFAULT) -> dict[str, object]:
    """The event in JSON form, as plain values. `source` is used for messages without a source."""
    document = _document_of(message)
    event = _attributes(document, source)
    _put_data(event, document)
    return _with_rest(event, document, _read_event(event))


def to_cloudevent_binary(message: Message, source: str = SOURCE_DEFAULT) -> tuple[dict[str, str], bytes]:
    """The event in binary mode: headers (`ce-…` and `content-type`) and the body."""
    document = _document_of(message)
    event: dict[str, object] = {name: _canonical(value) for name, value in _attributes(document, source).items()}
    how, body = _written(document)
    _put_content_type(event, document, how == _JSON)
    seen = _read_attributes(event)
    seen["kind"], seen["body"] = _read_body(how, body)
    if _reading(event.get("datacontenttype"), body) != how:
        document[_AS] = how
    whole = _with_rest(event, document, seen)
    return {_header_name(name): _header_value(name, value) for name, value in whole.items()}, body


def _document_of(message: Message) -> dict[str, object]:
    """The JSON document of the message, without its state on the channel."""
    document = _from_json(encode_json(message))
    for name in _PLACE:
        document.pop(name, None)
    return document


def _attributes(document: dict[str, object], source: str) -> dict[str, object]:
    """The attributes of the event that can hold fields of the message. The required attributes are always present."""
    id, channel = str(document["id"]), str(document["channel"])
    given, kind = document.get("source"), document.get("type")
    if not id or not source:
        raise SerializationFailed("a CloudEvent needs an id and a source that are not empty")
    event: dict[str, object] = {
        "specversion": SPEC_VERSION,
        "id": id if is_attribute_text(id) else percent_encoded(id),
        "source": _uri_reference(given if isinstance(given, str) and given else source),
        "type": _required_text(kind if isinstance(kind, str) and kind else channel or "unibus.message"),
        "time": instant_text(_whole(document["timestamp_ns"])),
    }
    _put_text(event, "subject", document.get("subject"))
    content_type = document.get("content_type")
    if isinstance(content_type, str) and content_type.isascii() and content_type.strip() == content_type:
        _put_text(event, "datacontenttype", content_type)
    for field, extension in _EXTENSION_OF.items():
        _put_text(event, extension, document.get(field))
    if document["priority"] != Priority.NORMAL:
        event[_PRIORITY] = document["priority"]
    if "ttl_ns" in document:
        event[_EXPIRY] = instant_text(_whole(document["timestamp_ns"]) + _whole(document["ttl_ns"]))
    if "scheduled_at_ns" in document:
        event[_SCHEDULE] = instant_text(_whole(document["scheduled_at_ns"]))
    _put_headers(event, document.get("headers"))
    return event


def _required_text(text: str) -> str:
    return text if is_attribute_text(text) else percent_encoded(text)


def _uri_reference(text: str) -> str:
    return text if is_uri_reference(text) else percent_encoded(text)


def _put_text(event: dict[str, object], name: str, value: object) -> None:
    if isinstance(value, str) and value and is_attribute_text(value):
        event[name] = value


def _put_headers(event: dict[str, object], headers: object) -> None:
    """Write the headers that an extension attribute can hold."""
    for name, value in headers.items() if isinstance(headers, dict) else []:
        if name not in _TAKEN and is_attribute_name(name) and _is_attribute_value(value):
            event[name] = value


def _is_attribute_value(value: object) -> bool:
    if isinstance(value, str):
        return is_attribute_text(value)
    return isinstance(value, int) and -(2**31) <= value < 2**31  # A bool is an int, and is allowed too.


def _put_data(event: dict[str, object], document: dict[str, object]) -> None:
    kind, body = document["kind"], document["body"]
    if kind not in ("json", "tagged"):
        event["data_base64"] = body
    elif body is not None:
        event["data"] = body
    is_structure = body is not None and not isinstance(body, str)
    _put_content_type(event, document, is_structure and not _is_json(event.get("datacontenttype"), True))


def _put_content_type(event: dict[str, object], document: dict[str, object], needs_json: bool) -> None:
    """Write the content type if the reader needs it: for serialized data, and for JSON data under another type."""
    kind = document["kind"]
    if kind in _SERIALIZED_TYPES:
        event.setdefault("datacontenttype", _SERIALIZED_TYPES[str(kind)])
    elif needs_json and not _is_json(event.get("datacontenttype"), False):
        event["datacontenttype"] = JSON_TYPE


def _written(document: dict[str, object]) -> tuple[str, bytes]:
    """How to decode the body of a binary event, and the body."""
    kind, body = document["kind"], document["body"]
    if kind not in ("json", "tagged"):
        return _BYTES, base64_bytes(body)
    if body is None:
        return _NOTHING, b""
    if isinstance(body, str) and not _is_json(document.get("content_type"), True):
        return _TEXT, body.encode()
    return _JSON, _to_json(body)


def _with_rest(event: dict[str, object], document: dict[str, object], seen: dict[str, object]) -> dict[str, object]:
    """The event, with the extension `unibus` for every field that reading it (`seen`) would not restore."""
    names = sorted({*document, *seen})
    rest = {name: document.get(name) for name in names if document.get(name) != seen.get(name)}
    if rest:
        event[REST] = json.dumps(rest, separators=(",", ":"))
    return event


def _canonical(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _header_name(name: str) -> str:
    return "content-type" if name == "datacontenttype" else PREFIX + name


def _header_value(name: str, value: object) -> str:
    return str(value) if name == "datacontenttype" else percent_encoded(str(value))


# Reading


def from_cloudevent(event: object, channel: str | None = None) -> Message:
    """The message for an event in JSON form: a mapping, or its JSON as bytes or str.

    Its channel is the argument, or the one that the event was written from, or the type of the event.
    """
    given = _named(event.items() if isinstance(event, Mapping) else _parsed(event).items())
    _check(given)
    return _message(_read_event(given), given, channel)


def from_cloudevent_binary(headers: Mapping[str, str], body: bytes, channel: str | None = None) -> Message:
    """The message for an event in binary mode. Headers other than `ce-…` and `content-type` are ignored."""
    event: dict[str, object] = {}
    for header, value in headers.items():
        name = header.lower()
        if name == "content-type":
            event["datacontenttype"] = value
        elif name.startswith(PREFIX):
            event[_checked_name(name[len(PREFIX) :])] = header_text(name[len(PREFIX) :], value)
    _check(event)
    document = _read_attributes(event)
    how = _rest_of(event).get(_AS) or _reading(event.get("datacontenttype"), body)
    document["kind"], document["body"] = _read_body(how, bytes(body))
    return _message(document, event, channel)


def _parsed(event: object) -> dict[str, object]:
    if not isinstance(event, (bytes, bytearray, memoryview, str)):
        raise CloudEventInvalid(f"an event is a mapping, bytes or str, not {type(event).__name__}")
    try:
        return _from_json(event)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CloudEventInvalid(
            f"the event is not valid JSON: {error!s:.200}", "pass one JSON object, in UTF-8"
        ) from error


def _named(event: Iterable[tuple[object, object]]) -> dict[str, object]:
    """A copy with datetime values as text: events in memory may have them as datetime objects."""
    given: dict[str, object] = {}
    for name, value in event:
        key = name if name == "data" or name == "data_base64" else _checked_name(name)
        given[str(key)] = value.isoformat() if isinstance(value, datetime) else value
    return given


def _checked_name(name: object) -> str:
    if isinstance(name, str) and is_attribute_name(name) and name != "data":
        return name
    raise CloudEventInvalid(f"{name!r:.60} is not a valid attribute name", "use lower-case letters and digits only")


def _check(event: dict[str, object]) -> None:
    """Check the required attributes (CloudEvents 1.0, section 3.1) and the types of all attributes."""
    if event.get("specversion") != SPEC_VERSION:
        version = event.get("specversion")
        hint = f"only {SPEC_VERSION} is supported" if version else "the value may not be a CloudEvent"
        raise CloudEventInvalid(f"specversion must be {SPEC_VERSION!r}, got {version!r:.40}", hint)
    for name in ("id", "source", "type"):
        value = event.get(name)
        if not isinstance(value, str) or not value:
            raise CloudEventInvalid(
                f"{name} must be a str that is not empty, got {value!r:.40}", "every CloudEvent has one"
            )
    if event.get("data") is not None and event.get("data_base64") is not None:
        raise CloudEventInvalid("the event has both data and data_base64", "remove one of them")
    if not is_plain(event.get("data"), False):
        raise CloudEventInvalid(
            "data has a value that JSON cannot hold, or is nested too deeply", "put bytes into data_base64"
        )
    for name, value in event.items():
        if name not in ("data", "data_base64") and value is not None and not _is_attribute_value(value):
            raise CloudEventInvalid(
                f"attribute {name} has the value {value!r:.60}, which CloudEvents does not allow",
                "use text without control characters, a bool, or a 32-bit integer",
            )


def _message(document: dict[str, object], event: dict[str, object], channel: str | None) -> Message:
    document.update(_rest_of(event))
    document.pop(_AS, None)
    # The extension comes from outside: it must not set the state of a message on its channel.
    for name in _PLACE:
        document.pop(name, None)
    if channel is not None:
        document["channel"] = channel
    document["unibus"] = 1  # The version of the document format.
    try:
        return decode_json(_to_json({name: value for name, value in document.items() if value is not None}))
    except DecodeError as error:
        raise CloudEventInvalid(f"the event cannot become a message: {error.what}", error.hint) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CloudEventInvalid(
            f"the event cannot become a message: {error!s:.200}", "check that all values are JSON values"
        ) from error


def _rest_of(event: dict[str, object]) -> dict[str, object]:
    """The fields in the extension `unibus`. An extension of this name that another program wrote is refused."""
    text = event.get(REST)
    if text is None:
        return {}
    try:
        return _from_json(str(text))
    except msgspec.DecodeError as error:
        raise CloudEventInvalid(
            f"the extension {REST} cannot be decoded: {error!s:.100}", "remove it: only unibus writes this extension"
        ) from error


def _read_event(event: dict[str, object]) -> dict[str, object]:
    """The document of an event in JSON form, from its attributes and data alone."""
    document = _read_attributes(event)
    encoded = event.get("data_base64")
    document["kind"], document["body"] = ("json", event.get("data")) if encoded is None else ("bytes", encoded)
    return document


def _read_attributes(event: dict[str, object]) -> dict[str, object]:
    document: dict[str, object] = {name: event[name] for name in ("id", "source", "type")}
    document["channel"] = event["type"]
    document["priority"] = Priority.NORMAL
    given = event.get("time")
    document["timestamp_ns"] = default_id_generator().wall_ns() if given is None else instant_ns("time", given)
    headers: dict[str, object] = {}
    for name, value in event.items():
        if value is not None:
            _read_attribute(document, headers, name, value)
    if headers:
        document["headers"] = headers
    return document


def _read_attribute(document: dict[str, object], headers: dict[str, object], name: str, value: object) -> None:
    if name == "subject":
        document["subject"] = _canonical(value)
    elif name == "datacontenttype":
        document["content_type"] = _canonical(value)
    elif name in EXTENSIONS:
        document[EXTENSIONS[name]] = _canonical(value)
    elif name == _EXPIRY:
        # At least 1: a ttl of 0 would mean that the message never expires.
        document["ttl_ns"] = max(instant_ns(name, value) - _whole(document["timestamp_ns"]), 1)
    elif name == _SCHEDULE:
        document["scheduled_at_ns"] = instant_ns(name, value)
    elif name == _PRIORITY and _level(value) is not None:
        document["priority"] = _level(value)
    elif name not in _TAKEN or name == _PRIORITY:
        headers[name] = value  # Also a priority that is not one of our levels.


def _level(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 3:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PRIORITY_MAX:
        return value
    return None


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


# Data


def _is_json(content_type: object, default: bool) -> bool:
    """Whether a media type is JSON; `default` if there is none."""
    if not isinstance(content_type, str):
        return default
    subtype = content_type.partition(";")[0].strip().lower().partition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def _reading(content_type: object, body: bytes) -> str:
    """How to decode the body of a binary event without the extension `unibus`: by its content type."""
    if _is_json(content_type, False):
        return _JSON if body else _NOTHING
    if isinstance(content_type, str) and content_type.lower().startswith("text/"):
        return _TEXT if _is_utf8(body) else _BYTES
    return _BYTES if body else _NOTHING


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeError:
        return False
    return True


def _read_body(how: object, body: bytes) -> tuple[str, object]:
    """The kind and content of the body, in the form of document.py."""
    try:
        if how == _NOTHING:
            return "json", None
        if how == _JSON:
            return "json", _any_from_json(body)
        if how == _TEXT:
            return "json", body.decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CloudEventInvalid(f"the body does not match its content type: {error!s:.200}") from error
    return "bytes", base64_text(body)
