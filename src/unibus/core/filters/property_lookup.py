# mypyc: compiled
"""Looks up the properties of a message: user properties in its headers, system properties in its envelope.

Names are compared without case. A header with exactly the given name is found first, by one dict lookup. Only if there
is none, the names are case-folded, once for a message, however many rules then look. If several names differ only by
case, the exact one is used, else the first.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, final

from mypy_extensions import i64

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, Int32, MessageProperties

# The system properties, each with a number for compiled code to branch on.
CONTENT_TYPE: Final = 1
CORRELATION_ID: Final = 2
SUBJECT: Final = 3
MESSAGE_ID: Final = 4
PARTITION_KEY: Final = 5
REPLY_TO: Final = 6
REPLY_TO_SESSION_ID: Final = 7
SESSION_ID: Final = 8
TO: Final = 9
TIME_TO_LIVE: Final = 10
SCHEDULED_TIME: Final = 11
ENQUEUED_TIME: Final = 12
EXPIRES_AT: Final = 13
DELIVERY_COUNT: Final = 14
SEQUENCE_NUMBER: Final = 15
DEAD_LETTER_SOURCE: Final = 16
NOTHING_YET: Final = 17  # Azure defines them, and a message has none of them while it is routed.

_LAST_TEXT: Final = TO
_LAST_WRITABLE: Final = SCHEDULED_TIME

SYSTEM_NAMES: Final[dict[str, i64]] = {
    "ContentType": CONTENT_TYPE,
    "CorrelationId": CORRELATION_ID,
    "Label": SUBJECT,
    "Subject": SUBJECT,
    "MessageId": MESSAGE_ID,
    "PartitionKey": PARTITION_KEY,
    "ReplyTo": REPLY_TO,
    "ReplyToSessionId": REPLY_TO_SESSION_ID,
    "SessionId": SESSION_ID,
    "To": TO,
    "TimeToLive": TIME_TO_LIVE,
    "ScheduledEnqueueTimeUtc": SCHEDULED_TIME,
    "ScheduledEnqueueTime": SCHEDULED_TIME,
    "EnqueuedTimeUtc": ENQUEUED_TIME,
    "EnqueuedTime": ENQUEUED_TIME,
    "ExpiresAtUtc": EXPIRES_AT,
    "ExpiresAt": EXPIRES_AT,
    "DeliveryCount": DELIVERY_COUNT,
    "SequenceNumber": SEQUENCE_NUMBER,
    "EnqueuedSequenceNumber": SEQUENCE_NUMBER,
    "DeadLetterSource": DEAD_LETTER_SOURCE,
    "ForcePersistence": NOTHING_YET,
    "LockedUntilUtc": NOTHING_YET,
    "LockToken": NOTHING_YET,
    "Size": NOTHING_YET,
    "State": NOTHING_YET,
    "TransactionPartitionKey": NOTHING_YET,
    "ViaPartitionKey": NOTHING_YET,
}
_SPELLINGS: Final[dict[str, str]] = {name.lower(): name for name in SYSTEM_NAMES}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def system_spelling(name: str) -> str | None:
    """The canonical spelling of a system property's name; None if there is no such property."""
    return _SPELLINGS.get(name.lower())


def system_number(name: str) -> i64:
    """The number of a name that `system_spelling` returned."""
    return SYSTEM_NAMES[name]


def is_writable(name: str) -> bool:
    return SYSTEM_NAMES[name] <= _LAST_WRITABLE


def is_text(number: i64) -> bool:
    return number <= _LAST_TEXT


def system_text(message: Message, number: i64) -> str | None:
    """A text property: filters use these most."""
    if number == MESSAGE_ID:
        return message.id
    properties = message.properties
    if properties is None:
        return None
    if number == SUBJECT:
        return properties.subject
    if number == CORRELATION_ID:
        return properties.correlation_id
    if number == SESSION_ID:
        return properties.session_id
    if number == TO:
        return properties.to
    if number == CONTENT_TYPE:
        return properties.content_type
    return _rarer_text(properties, number)


def _rarer_text(properties: MessageProperties, number: i64) -> str | None:
    if number == REPLY_TO:
        return properties.reply_to
    if number == REPLY_TO_SESSION_ID:
        return properties.reply_to_session_id
    return properties.partition_key


def system_value(message: Message, number: i64) -> object:
    """The value of a system property; None if the message does not have it."""
    if number <= _LAST_TEXT:
        return system_text(message, number)
    if number == DELIVERY_COUNT:
        return Int32(message.delivery_count)
    if number == SEQUENCE_NUMBER:
        return message.sequence
    if number == ENQUEUED_TIME:
        return instant(message.timestamp_ns)
    if number == EXPIRES_AT:
        return _expiry(message)
    if number == DEAD_LETTER_SOURCE:
        return message.headers.get("DeadLetterSource")
    return None if message.properties is None else _planned(message.properties, number)


def _planned(properties: MessageProperties, number: i64) -> object:
    if number == TIME_TO_LIVE and properties.ttl_ns:
        return timedelta(microseconds=int(properties.ttl_ns) // 1000)
    if number == SCHEDULED_TIME and properties.scheduled_at_ns:
        return instant(properties.scheduled_at_ns)
    return None


def _expiry(message: Message) -> datetime | None:
    if message.expires_ns:
        return instant(message.expires_ns)
    if message.properties is None or not message.properties.ttl_ns:
        return None
    return instant(message.timestamp_ns + int(message.properties.ttl_ns))


def instant(nanoseconds: int) -> datetime | None:
    """The instant as a datetime; None beyond the year 9999, which Python cannot represent."""
    microseconds = nanoseconds // 1000
    if not -62_135_596_800_000_000 <= microseconds < 253_402_300_800_000_000:
        return None
    return _EPOCH + timedelta(microseconds=microseconds)


@final
class _Folded:
    """The header names of one message by their case-folded form. Immutable: threads share it, and replace it."""

    def __init__(self, headers: dict[str, HeaderValue]) -> None:
        names: dict[str, str] = {}
        for name in headers:
            names.setdefault(name.lower(), name)
        self.headers = headers
        self.names = names
        self.count: i64 = len(headers)


# A cache for the last message: its rules are evaluated one after the other. It keeps a reference to the headers, so
# that no other dict can get the same identity.
_last = _Folded({})


def spelling(headers: dict[str, HeaderValue], folded: str) -> str | None:
    """The spelling of a name in the headers, whatever its case; None if they do not have it."""
    global _last
    known = _last
    if known.headers is not headers or known.count != len(headers):
        known = _Folded(headers)
        _last = known
    found = known.names.get(folded)
    return found if found is not None and found in headers else None


def name_in(headers: dict[str, HeaderValue], name: str) -> str | None:
    """The same, exact spelling first."""
    return name if name in headers else spelling(headers, name.lower())
