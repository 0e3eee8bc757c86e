# mypyc: compiled
"""Azure's `BrokerProperties`: the envelope of a message as one JSON object, in a header or in a document.

    MessageId Label SessionId CorrelationId ReplyTo ReplyToSessionId To PartitionKey ContentType     text, both ways
    TimeToLive (seconds) TimeToLiveTimeSpan ScheduledEnqueueTimeUtc                                  sent
    SequenceNumber EnqueuedTimeUtc DeliveryCount LockToken LockedUntilUtc State DeadLetterSource     received
    EnqueuedSequenceNumber                                                                           received
    ForcePersistence ViaPartitionKey and others of Azure                                             ignored
    Priority Type Source Target RoutingKey DedupKey                              both ways, ours: Azure has none

Names that are not known are ignored, as Azure documents, and named in the log; a known name with a value of the wrong
type is refused. What only a receiver is given is accepted and ignored: programs send a received message again. The text
in a header is ASCII: other characters are JSON escapes. Raw UTF-8 is read as well.
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
"""Text properties by the fields of the envelope that hold them. ContentType has an HTTP header of its own."""

_FIELDS: Final = {**_TEXTS, "MessageId": "message_id", "Subject": "subject"}
"""What a sender may set as text. Label counts before Subject, its newer name."""

_IGNORED: Final = """
DeadLetterSource DeliveryCount EnqueuedSequenceNumber EnqueuedTimeUtc ForcePersistence LockLocation LockToken
LockedUntilUtc MessageLocation Publisher SequenceNumber Size State TransactionId ViaPartitionKey Duplicate
"""
"""Names that Azure knows, or that our answers have, and that no sender can set: any value is accepted."""

KNOWN: Final = frozenset(
    {*_FIELDS, "TimeToLive", "TimeToLiveTimeSpan", "ScheduledEnqueueTimeUtc", "Priority", *_IGNORED.split()}
)

_TIME_SPAN: Final = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2}(?:\.\d{1,7})?)", re.ASCII)


_SHAPE: Final = 'send one JSON object, for instance {"MessageId": "1", "TimeToLive": 60}, with times to live in seconds'
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode
_encode: Final = msgspec.json.Encoder().encode


def fields_of_header(text: str, unknown: UnknownNames, entity: str) -> dict[str, object]:
    """The fields of the envelope that a header gives. DecodeError where it is no JSON object of these types."""
    try:
        given = _decode(text.encode("latin-1"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{HEADER} cannot be read: {error!s:.200}", _SHAPE) from error
    return fields_of(given, unknown, entity)


def fields_of(given: dict[str, object], unknown: UnknownNames, entity: str) -> dict[str, object]:
    """The fields of the envelope that properties give. None and an empty text are the same as an absent property."""
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
    """A property that is no mere text. Those that only a receiver is given are ignored."""
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
    return DecodeError(f"{HEADER} cannot be read: {name} is {expected}, not {type(value).__name__}", _SHAPE)


def _check_partition(fields: dict[str, object]) -> None:
    partition, session = fields.get("partition_key"), fields.get("session_id")
    if partition and session and partition != session:
        raise UsageError("PartitionKey and SessionId differ", "give one of them, or the same text for both")


def is_number(value: object) -> bool:
    """A bool is an int to Python, and no number to JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def put_time_to_live(fields: dict[str, object], seconds: object) -> None:
    """Azure writes "for ever" as the longest time that it knows, about 29,000 years."""
    # Not declared as a float: an int of 400 digits cannot become one.
    assert isinstance(seconds, (int, float))
    if not seconds > 0 or seconds == math.inf:  # Not isinf, which a number of 400 digits is too large for.
        raise UsageError(f"TimeToLive {seconds!r:.40} is not a positive number of seconds", "leave it out for no limit")
    if seconds <= SECONDS_MAX:
        fields["ttl"] = seconds


def put_schedule(fields: dict[str, object], text: str) -> None:
    at = instant(text.strip())
    if at is None:
        raise UsageError(
            f"ScheduledEnqueueTimeUtc {text!r:.60} is no instant", "for instance 2030-01-31T08:00:00Z, or an HTTP date"
        )
    fields["scheduled_at"] = at


def _time_span(text: str) -> float:
    """.NET's form: [days.]hours:minutes:seconds."""
    match = _TIME_SPAN.fullmatch(text)
    if match is None:
        raise UsageError(f"TimeToLiveTimeSpan {text!r:.60} is no time span", "for instance 00:00:40")
    days, hours, minutes, seconds = match.groups()
    return (int(days or 0) * 24 + int(hours)) * 3600.0 + int(minutes) * 60 + float(seconds)


def properties_of(claimed: Claimed, message: Message, is_header: bool) -> dict[str, object]:
    """What a receiver is given, in Azure's order of names. Instants are HTTP dates in a header, else ISO 8601."""
    date = http_date if is_header else iso_date
    enqueued_ns = int(claimed.enqueued_ns)
    found: dict[str, object] = {
        "DeliveryCount": int(claimed.delivery_count),
        # A store does not keep the number that a forwarded message had in the first entity.
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
    """As Azure has it: a message stays active, or deferred, while it is locked."""
    return "Deferred" if state == DEFERRED else "Scheduled" if state == SCHEDULED else "Active"


def _seconds(ns: int) -> int | float:
    return ns // 1_000_000_000 if ns % 1_000_000_000 == 0 else round(ns / 1e9, 3)


def header_text(value: object) -> str:
    """JSON that can be written into a header: printable ASCII only."""
    encoded = _encode(value)
    text = encoded.decode("ascii") if encoded.isascii() else json.dumps(value, separators=(",", ":"))
    # JSON escapes all control characters but this one, which servers refuse to write.
    return text if "\x7f" not in text else text.replace("\x7f", "\\u007f")
