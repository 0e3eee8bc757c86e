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
# The state of a message on its channel: it means nothing elsewhere, and no event may set it.
_PLACE: Final = ("unibus", "sequence", "expires_ns", "delivery_count")
_SERIALIZED_TYPES: Final = {"serialized/json": JSON_TYPE, "serialized/msgpack": "application/vnd.msgpack"}

# How to decode the body of a binary event, and the name under which the extension `unibus` stores it.
_AS: Final = "as"
_NOTHING: Final = "nothing"
_JSON: Final = "json"
_TEXT: Final = "text"
_BYTES: Final = "bytes"

# Made once: to make a Decoder of msgspec costs more than to use it.
_from_json: Final = msgspec.json.Decoder(dict[str, object]).decode
_any_from_json: Final = msgspec.json.Decoder().decode
_to_json: Final = msgspec.json.Encoder().encode


# Writing


def to_cloudevent(message: Message, source: str = SOURCE_DEFAULT) -> dict[str, object]:
    """The event in JSON form, as plain values. `source` is used for messages without a source."""
    document = _document_of(message)
    event = _attributes(document, source)
    _put_data(event, document)
    # Read back what was written: only a comparison finds every field that a reader would not restore, whatever the
    # rules of both sides are.
    return _with_rest(event, document, _read_event(event))


def to_cloudevent_binary(message: Message, source: str = SOURCE_DEFAULT) -> tuple[dict[str, str], bytes]:
    """The event in binary mode: headers (`ce-…` and `content-type`) and the body."""
    document = _document_of(message)
    # Headers are text, so a number is text when it is read back, too.
    event: dict[str, object] = {name: _canonical(value) for name, value in _attributes(document, source).items()}
    how, body = _written(document)
    _put_content_type(event, document, how == _JSON)
    seen = _read_attributes(event)
    seen["kind"], seen["body"] = _read_body(how, body)
    # Only where the content type would lead to another reading, as for a text under application/xml.
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
    # CloudEvents 1.0, "REQUIRED Attributes": id, source, specversion and type, none of them empty.
    id, channel = str(document["id"]), str(document["channel"])
    given, kind = document.get("source"), document.get("type")
    if not id or not source:
        raise SerializationFailed("a CloudEvent needs an id and a source that are not empty")
    event: dict[str, object] = {
        "specversion": SPEC_VERSION,
        # Percent-encoded where the specification does not allow a character. `_with_rest` then adds the original, since
        # reading the event gives the encoded text.
        "id": id if is_attribute_text(id) else percent_encoded(id),
        "source": _uri_reference(given if isinstance(given, str) and given else source),
        "type": _required_text(kind if isinstance(kind, str) and kind else channel or "unibus.message"),
        "time": instant_text(_whole(document["timestamp_ns"])),
    }
    _put_text(event, "subject", document.get("subject"))
    content_type = document.get("content_type")
    # HTTP libraries strip the spaces around a header, and other characters cannot be sent in it.
    if isinstance(content_type, str) and content_type.isascii() and content_type.strip() == content_type:
        _put_text(event, "datacontenttype", content_type)
    for field, extension in _EXTENSION_OF.items():
        _put_text(event, extension, document.get(field))
    # Left out for the default, which the reader assumes: most events then have no extension of ours.
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
    # Not percent-encoded, unlike the required attributes: an optional one that does not fit is left to the extension
    # `unibus`.
    if isinstance(value, str) and value and is_attribute_text(value):
        event[name] = value


def _put_headers(event: dict[str, object], headers: object) -> None:
    """Write the headers that an extension attribute can hold."""
    for name, value in headers.items() if isinstance(headers, dict) else []:
        # A header with the name of an attribute would change its meaning for every reader.
        if name not in _TAKEN and is_attribute_name(name) and _is_attribute_value(value):
            event[name] = value


def _is_attribute_value(value: object) -> bool:
    if isinstance(value, str):
        return is_attribute_text(value)
    return isinstance(value, int) and -(2**31) <= value < 2**31  # A bool is an int, and is allowed too.


def _put_data(event: dict[str, object], document: dict[str, object]) -> None:
    kind, body = document["kind"], document["body"]
    if kind not in ("json", "tagged"):
        # JSON format of CloudEvents, section 3.1: binary data is in data_base64. The document has it in base64 already.
        event["data_base64"] = body
    elif body is not None:
        event["data"] = body
    # A text may be data of any content type. Other JSON values mean JSON, so a content type that says otherwise is
    # replaced.
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
    # Under a JSON content type, or none, a text is written as JSON, in quotation marks: a reader that decodes JSON gets
    # the text.
    if isinstance(body, str) and not _is_json(document.get("content_type"), True):
        return _TEXT, body.encode()
    return _JSON, _to_json(body)


def _with_rest(event: dict[str, object], document: dict[str, object], seen: dict[str, object]) -> dict[str, object]:
    """The event, with the extension `unibus` for every field that reading it (`seen`) would not restore."""
    names = sorted({*document, *seen})
    # Both directions: a field that reading would add, such as a default, is written as null, so that the reader removes
    # it.
    rest = {name: document.get(name) for name in names if document.get(name) != seen.get(name)}
    if rest:
        event[REST] = json.dumps(rest, separators=(",", ":"))
    return event


def _canonical(value: object) -> str:
    # The canonical form of the specification; `str` would give "True".
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _header_name(name: str) -> str:
    return "content-type" if name == "datacontenttype" else PREFIX + name


def _header_value(name: str, value: object) -> str:
    # HTTP binding, section 3.1.3.2: ce- headers are percent-encoded, Content-Type is an ordinary HTTP header.
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
        # Names of HTTP headers ignore case.
        name = header.lower()
        if name == "content-type":
            event["datacontenttype"] = value
        elif name.startswith(PREFIX):
            event[_checked_name(name[len(PREFIX) :])] = header_text(name[len(PREFIX) :], value)
    _check(event)
    document = _read_attributes(event)
    # Our own extension first: its writer knew how the body was made.
    how = _rest_of(event).get(_AS) or _reading(event.get("datacontenttype"), body)
    document["kind"], document["body"] = _read_body(how, bytes(body))
    return _message(document, event, channel)


def _parsed(event: object) -> dict[str, object]:
    if not isinstance(event, (bytes, bytearray, memoryview, str)):
        raise CloudEventInvalid(f"an event is a mapping, bytes or str, not {type(event).__name__}")
    try:
        return _from_json(event)
    # An event comes from outside: whatever its bytes are, the error is CloudEventInvalid and not one of a library.
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CloudEventInvalid(
            f"the event is not valid JSON: {error!s:.200}", "pass one JSON object, in UTF-8"
        ) from error


def _named(event: Iterable[tuple[object, object]]) -> dict[str, object]:
    """A copy with datetime values as text: events in memory may have them as datetime objects."""
    given: dict[str, object] = {}
    for name, value in event:
        # `data_base64` is a member of the JSON format and no attribute: its underscore is not allowed in attribute
        # names.
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
    # JSON format, section 3.1: the two exclude each other.
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
    # Last, over the attributes: it holds exactly what they do not restore.
    document.update(_rest_of(event))
    document.pop(_AS, None)
    # The extension comes from outside: it must not set the state of a message on its channel.
    for name in _PLACE:
        document.pop(name, None)
    if channel is not None:
        document["channel"] = channel
    document["unibus"] = 1  # The version of the document format.
    try:
        # Through the decoder of documents: its checks apply to events, and are not repeated here.
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
    # `time` is optional; a message always has a timestamp.
    document["timestamp_ns"] = default_id_generator().wall_ns() if given is None else instant_ns("time", given)
    headers: dict[str, object] = {}
    # After the timestamp is set: an expiry is turned into a ttl relative to it.
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
    # In binary mode every attribute is text. `isascii`: `isdigit` is true for digits of other scripts, too.
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
    # HTTP binding, section 3.1.2: the body is the data as it is. Without a content type nothing says that it is JSON.
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
