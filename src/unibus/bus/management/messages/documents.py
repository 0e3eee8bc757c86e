"""Converts messages to JSON documents (`core/codec/codec`) and back, for all operations on whole messages.

A document is lossless: `message_of_document(document_of(message))` is the message. A client may also send a body with
single fields, as in `MessageBus.send`; the kinds of a body are those of a document:

    {"body": {"n": 1}}                                    JSON as it is
    {"body": "aGVsbG8=", "kind": "bytes"}                 bytes, in base64
    {"body": {"$uuid": "…"}, "kind": "tagged"}            with the tags of core/codec/wire.py for what JSON lacks
    {"document": {"unibus": 1, "id": "…", …}}             a whole message, with its id and its timestamp
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from unibus.core.codec.codec import decode_json, encode_json
from unibus.core.codec.row import VERSION
from unibus.core.envelope.fields import seconds_ns, set_fields
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import MessageProperties
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.envelope import message_of, send_of
from unibus.errors import UsageError
from unibus.limits import MESSAGE_ID_CHARS_MAX, PRIORITY_MAX

INT64_MAX: Final = 2**63 - 1024
"""The largest 64-bit integer that is exact as a float, too: many JSON tools read numbers as floats."""

Int64 = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=6e9)]
Urgency = Annotated[int, Meta(ge=0, le=PRIORITY_MAX)]
Id = Annotated[str, Meta(min_length=1, max_length=MESSAGE_ID_CHARS_MAX)]
Document = Annotated[Raw, Meta(description="The JSON form of a message.", extra_json_schema={"type": "object"})]
Headers = Annotated[Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]


class OutgoingMessage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One message to send: a `document` alone, or a body with its fields. See the module for the forms.

    A document keeps its id and its timestamp; its channel and its sequence are ignored. `delay_s` and `ttl_s` are
    seconds, `scheduled_at_ns` is an instant. Headers are those of a document: tagged if JSON lacks their type.
    """

    document: Document | UnsetType = UNSET
    body: Raw | UnsetType = UNSET
    kind: Literal["json", "tagged", "bytes"] = "json"
    message_id: Id | None = None
    priority: Urgency | None = None
    session_id: Id | None = None
    dedup_key: str | None = None
    correlation_id: str | None = None
    type: str | None = None
    subject: str | None = None
    content_type: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    to: str | None = None
    partition_key: str | None = None
    headers: Headers | UnsetType = UNSET
    traceparent: str | None = None
    tracestate: str | None = None
    delay_s: Seconds | None = None
    ttl_s: Seconds | None = None
    scheduled_at_ns: Int64 | None = None


_PLAIN: Final = (
    *("message_id", "priority", "session_id", "dedup_key", "correlation_id", "type", "subject", "content_type"),
    *("reply_to", "reply_to_session_id", "to", "partition_key", "traceparent", "tracestate"),
)
_SECONDS: Final = {"delay": "delay_s", "ttl": "ttl_s"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT: Final = (None, UNSET, "json")
_encode: Final = msgspec.json.Encoder().encode


class _DocumentParts(msgspec.Struct):
    """The fields of a document that hold the body and the headers."""

    body: Raw
    kind: str
    headers: Raw | UnsetType = UNSET


_read_parts: Final = msgspec.json.Decoder(_DocumentParts).decode


def document_of(message: Message) -> Raw:
    return Raw(encode_json(message))


def document_of_claimed(claimed: Claimed) -> Raw:
    """The message as a receiver gets it: with its sequence, its delivery count, and the headers of settlements."""
    return document_of(message_of(claimed))


def message_of_document(document: Raw) -> Message:
    """DecodeError if it is not the document of a message."""
    return decode_json(bytes(document))


# From a client


def whole_message(given: OutgoingMessage) -> Message | None:
    """The message of a document, as one that was never stored; None if the message is given by single fields."""
    if isinstance(given.document, UnsetType):
        return None
    # Refused and not merged: which of two ids would count is unclear to the reader of the request.
    others = [name for name in given.__struct_fields__ if name != "document" and getattr(given, name) not in _ABSENT]
    if others:
        raise UsageError(f"a message has both a document and {others[0]}", f"set {others[0]} in the document")
    # As a message that was never stored: the document may be one that was peeked or exported.
    message = message_of_document(given.document).fresh()
    # Set by the store at the send, from the ttl: an old expiry would end the message at once.
    message.expires_ns = 0
    return message


def body_and_fields(given: OutgoingMessage) -> tuple[object, dict[str, object]]:
    """The arguments for `MessageBus.send`. DecodeError for a body or headers that cannot be decoded."""
    fields = {name: value for name in _PLAIN if (value := getattr(given, name)) is not None}
    fields |= {name: value for name, field in _SECONDS.items() if (value := getattr(given, field)) is not None}
    if given.scheduled_at_ns:
        if given.delay_s is not None:
            raise UsageError("a message has both delay_s and scheduled_at_ns", "leave one of them out")
        # A datetime, as `send` takes it, has microseconds.
        fields["scheduled_at"] = _EPOCH + timedelta(microseconds=given.scheduled_at_ns // 1_000)
    parts = _decoded_parts(given)
    if parts.headers:
        fields["headers"] = dict(parts.headers)
    return parts.body, fields


def _decoded_parts(given: OutgoingMessage) -> Message:
    """Body and headers, by the decoder of documents: its rules are not repeated here."""
    # A document with placeholders for what is not decoded here.
    document: dict[str, object] = {"unibus": VERSION, "id": "-", "channel": "-", "kind": given.kind}
    document["body"] = None if isinstance(given.body, UnsetType) else given.body
    if not isinstance(given.headers, UnsetType):
        document["headers"] = given.headers
    return decode_json(_encode(document))


# By a client


def outgoing_of(body: object, fields: Mapping[str, object]) -> OutgoingMessage:
    """The request for a message, for clients: `fields` are those of `MessageBus.send` that OutgoingMessage has.

    A message that a store in this process would refuse is refused here, with the same error.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    unknown = sorted(given.keys() - {*_PLAIN, *_SECONDS, "headers"})
    if unknown:
        raise UsageError(f"the field {unknown[0]} cannot be sent to a server", "send the whole message as a document")
    # Encoded as a whole message and taken apart: body and headers get the form that the server decodes.
    parts = _read_parts(encode_json(_checked(body, dict(given))))
    given = {_SECONDS.get(name, name): value for name, value in given.items() if name != "headers"}
    own = {name: value for name, value in msgspec.structs.asdict(parts).items() if value is not UNSET}
    return msgspec.convert({**given, **own}, OutgoingMessage)


def _checked(body: object, fields: dict[str, object]) -> Message:
    """The message that a bus would make from the fields. It removes the fields from the dictionary."""
    priority = checked_priority(fields.pop("priority", Priority.NORMAL))
    if "delay" in fields:
        seconds_ns("delay", fields.pop("delay"))
    message = Message.new("-", body, priority)
    message_id = fields.pop("message_id", message.id)
    properties = MessageProperties()
    set_fields(properties, fields)
    if not isinstance(message_id, str) or not message_id:
        raise UsageError(f"message_id must be a str that is not empty, got {message_id!r:.60}")
    made = restored(message_id, "-", message.body, message.timestamp_ns, properties)
    # For its checks: the limits of a stored message.
    send_of(made, "-")
    return made
