# mypyc: compiled
"""Azure's `BrokerProperties`: the envelope of a message as one JSON object, in a header or in a document.

    MessageId Label SessionId CorrelationId ReplyTo ReplyToSessionId To PartitionKey ContentType     text, both ways
    TimeToLive (seconds) TimeToLiveTimeSpan ScheduledEnqueueTimeUtc                                  sent
    SequenceNumber EnqueuedTimeUtc DeliveryCount LockToken LockedUntilUtc State DeadLetterSource     received
    EnqueuedSequenceNumber                                                                           received
    ForcePersistence ViaPartitionKey and others of Azure                                             ignored
    Priority Type Source Target RoutingKey DedupKey                              both ways, ours: Azure has none

Unknown names are ignored, as Azure documents, and logged; a known name with a value of the wrong type is an error.
Properties for receivers only are accepted and ignored in a send: programs send a received message again. The text in a
header is ASCII, with JSON escapes for other characters; raw UTF-8 is accepted too.
"""

import json
import math
import re
from typing import Final

import msgspec

from unibus.core.envelope.fields import SECONDS_MAX
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority
from unibus.core.flow.deadletter import SOURCE_HEADER
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.state.states import DEFERRED, SCHEDULED
from unibus.endpoints.http.dates import http_date, instant, iso_date
from unibus.endpoints.http.messages.lock_tokens import token_text
from unibus.endpoints.http.unknown_names import UnknownNames
from unibus.errors import DecodeError, UsageError

HEADER: Final = "BrokerProperties"

_TEXTS: Final = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "DedupKey": "dedup_key",
    "Label": "subject",
    "PartitionKey": "partition_key",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "RoutingKey": "routing_key",
    "SessionId": "session_id",
    "Source": "source",
    "Target": "target",
    "To": "to",
    "Type": "type",
}
"""Text properties and their envelope fields. In headers ContentType has a header of its own."""

_FIELDS: Final = {**_TEXTS, "MessageId": "message_id", "Subject": "subject"}
"""Text properties that a sender may set. Label wins over Subject, its newer name."""

_IGNORED: Final = """
DeadLetterSource DeliveryCount EnqueuedSequenceNumber EnqueuedTimeUtc ForcePersistence LockLocation LockToken
LockedUntilUtc MessageLocation Publisher SequenceNumber Size State TransactionId ViaPartitionKey Duplicate
"""
"""Names of Azure or of our answers that a sender cannot set: any value is accepted and ignored."""

KNOWN: Final = frozenset(
    {*_FIELDS, "TimeToLive", "TimeToLiveTimeSpan", "ScheduledEnqueueTimeUtc", "Priority", *_IGNORED.split()}
)

_TIME_SPAN: Final = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2}(?:\.\d{1,7})?)", re.ASCII)


_SHAPE: Final = 'send one JSON object, for instance {"MessageId": "1", "TimeToLive": 60}, with times to live in seconds'
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode
_encode: Final = msgspec.json.Encoder().encode


def fields_of_header(text: str, unknown: UnknownNames, entity: str) -> dict[str, object]:
    """The envelope fields of a BrokerProperties header. DecodeError if it is not a JSON object of these types."""
    try:
        given = _decode(text.encode("latin-1"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{HEADER} cannot be read: {error!s:.200}", _SHAPE) from error
    return fields_of(given, unknown, entity)


def fields_of(given: dict[str, object], unknown: UnknownNames, entity: str) -> dict[str, object]:
    """The envelope fields of properties. Null and an empty text are the same as an absent property."""
    fields: dict[str, object] = {}
    for name, value in given.items():
        field = _FIELDS.get(name)
        if field is None and name not in KNOWN:
            unknown.report(name, KNOWN, entity)
        elif value is None:
            continue
        elif field is None:
            _put_typed(fields, given, name, value)
        elif not isinstance(value, str):
            raise _wrong_type(name, value, "text")
        elif value and (name != "Subject" or "subject" not in fields):
            fields[field] = value
    if "PartitionKey" in given and "SessionId" in given:
        _check_partition(fields)
    return fields


def _put_typed(fields: dict[str, object], given: dict[str, object], name: str, value: object) -> None:
    """Set a property that is not plain text. Properties for receivers only are ignored."""
    if name == "TimeToLive":
        if not is_number(value):
            raise _wrong_type(name, value, "a number of seconds")
        put_time_to_live(fields, value)
    elif name == "Priority":
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(name, value, "a whole number")
        fields["priority"] = value
    elif name == "TimeToLiveTimeSpan":
        if not isinstance(value, str):
            raise _wrong_type(name, value, "text")
        if value and given.get("TimeToLive") is None:
            put_time_to_live(fields, _time_span(value))
    elif name == "ScheduledEnqueueTimeUtc":
        if not isinstance(value, str):
            raise _wrong_type(name, value, "text")
        if value:
            put_schedule(fields, value)


def _wrong_type(name: str, value: object, expected: str) -> DecodeError:
    return DecodeError(f"{HEADER} cannot be read: {name} has to be {expected}, not {type(value).__name__}", _SHAPE)


def _check_partition(fields: dict[str, object]) -> None:
    partition, session = fields.get("partition_key"), fields.get("session_id")
    if partition and session and partition != session:
        raise UsageError(
            f"PartitionKey {partition!r:.60} and SessionId {session!r:.60} differ", "send one of them, or equal texts"
        )


def is_number(value: object) -> bool:
    """Whether a JSON value is a number. In Python a bool is an int, in JSON it is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def put_time_to_live(fields: dict[str, object], seconds: object) -> None:
    """Set the time to live. Azure writes "no limit" as its longest time, about 29,000 years: then nothing is set."""
    # Not declared as float: an int of 400 digits cannot be converted.
    assert isinstance(seconds, (int, float))
    if not seconds > 0 or seconds == math.inf:  # Not isinf, which cannot convert an int of 400 digits.
        raise UsageError(f"TimeToLive {seconds!r:.40} is not a positive number of seconds", "omit it for no limit")
    if seconds <= SECONDS_MAX:
        fields["ttl"] = seconds


def put_schedule(fields: dict[str, object], text: str) -> None:
    at = instant(text.strip())
    if at is None:
        raise UsageError(
            f"ScheduledEnqueueTimeUtc is {text!r:.60}, which is no date and time",
            "for instance 2030-01-31T08:00:00Z, or an HTTP date",
        )
    fields["scheduled_at"] = at


def _time_span(text: str) -> float:
    """.NET's form: [days.]hours:minutes:seconds."""
    match = _TIME_SPAN.fullmatch(text)
    if match is None:
        raise UsageError(f"TimeToLiveTimeSpan is {text!r:.60}, which is no time span", "for instance 00:00:40")
    days, hours, minutes, seconds = match.groups()
    return (int(days or 0) * 24 + int(hours)) * 3600.0 + int(minutes) * 60 + float(seconds)


def properties_of(claimed: Claimed, message: Message, is_header: bool) -> dict[str, object]:
    """The properties of a received message, in Azure's order. Instants are HTTP dates in a header, else ISO 8601."""
    date = http_date if is_header else iso_date
    enqueued_ns = int(claimed.enqueued_ns)
    found: dict[str, object] = {
        "DeliveryCount": int(claimed.delivery_count),
        # The store does not record the sequence number that a forwarded message had in its first entity.
        "EnqueuedSequenceNumber": int(claimed.sequence),
        "EnqueuedTimeUtc": date(enqueued_ns),
        "MessageId": message.id,
        "SequenceNumber": int(claimed.sequence),
        "State": _state(int(claimed.state)),
    }
    if claimed.until_ns and claimed.token:
        found["LockToken"] = token_text(claimed.token)
        found["LockedUntilUtc"] = date(int(claimed.until_ns))
    if claimed.expires_ns:
        found["TimeToLive"] = _seconds(int(claimed.expires_ns) - enqueued_ns)
    if message.priority != Priority.NORMAL:
        found["Priority"] = int(message.priority)
    properties = message.properties
    if properties is not None:
        for name, field in _TEXTS.items():
            text = getattr(properties, field)
            if text is not None and not (is_header and name == "ContentType"):
                found[name] = text
        if properties.scheduled_at_ns:
            found["ScheduledEnqueueTimeUtc"] = date(int(properties.scheduled_at_ns))
        source = properties.headers.get(SOURCE_HEADER)
        if isinstance(source, str):
            found["DeadLetterSource"] = source
    return found


def _state(state: int) -> str:
    """Azure's state: a locked message is still Active, or Deferred."""
    return "Deferred" if state == DEFERRED else "Scheduled" if state == SCHEDULED else "Active"


def _seconds(ns: int) -> int | float:
    return ns // 1_000_000_000 if ns % 1_000_000_000 == 0 else round(ns / 1e9, 3)


def header_text(value: object) -> str:
    """JSON in printable ASCII, as a header needs it."""
    encoded = _encode(value)
    text = encoded.decode("ascii") if encoded.isascii() else json.dumps(value, separators=(",", ":"))
    # JSON escapes all control characters except DEL, which is not allowed in a header.
    return text if "\x7f" not in text else text.replace("\x7f", "\\u007f")
