"""A dead letter as people see it. What was sent is decoded only when somebody asks for `original`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from unibus.bus.dead_letters.record import (
    RECORD,
    RECOVERY_HEADER,
    died_ns,
    error_in,
    number_in,
    record_of,
    source_in,
    text_in,
)
from unibus.core.codec.codec import decode
from unibus.core.codec.wire import untagged
from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.flow.deadletter import (
    ATTEMPTS_HEADER,
    DESCRIPTION_HEADER,
    ERROR_TYPE_HEADER,
    GROUP_HEADER,
    REASON_HEADER,
    TRACEBACK_HEADER,
)
from unibus.core.lifecycle.state.changes import HeaderOverrides
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.states import STATE_NAMES


@dataclass(frozen=True)
class DeadMessage:
    """One dead letter, as it was when it was looked at. `entity` is where it lies, `source` where it died."""

    id: str
    entity: str
    sequence: int
    source: str
    failure_reason: str
    description: str
    error_type: str
    last_error: str
    failure_ns: int
    retry_count: int
    recovery_attempts: int
    consumer: str
    traceback: str
    state: str
    session_id: str | None
    size: int
    overlay: HeaderOverrides = field(repr=False)
    data: bytes = field(repr=False)

    @property
    def failure_timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.failure_ns / 1e9, UTC)

    @property
    def original(self) -> Message:
        """The message as it was sent, with what settlements wrote on it but without the record of its death."""
        return original_of(self.data, self.overlay, self.sequence)


def dead_message(entry: StoredMessage, data: bytes) -> DeadMessage:
    overlay = record_of(entry)
    return DeadMessage(
        id=entry.who.message_id,
        entity=entry.entity.name,
        sequence=int(entry.sequence),
        source=source_in(overlay),
        failure_reason=text_in(overlay, REASON_HEADER),
        description=text_in(overlay, DESCRIPTION_HEADER),
        error_type=text_in(overlay, ERROR_TYPE_HEADER),
        last_error=error_in(overlay),
        failure_ns=died_ns(entry),
        retry_count=number_in(overlay, ATTEMPTS_HEADER),
        recovery_attempts=number_in(overlay, RECOVERY_HEADER),
        consumer=text_in(overlay, GROUP_HEADER),
        traceback=text_in(overlay, TRACEBACK_HEADER),
        state=STATE_NAMES[int(entry.state)],
        session_id=entry.who.session_id,
        size=entry.who.size,
        overlay=dict(overlay),
        data=data,
    )


def own_ttl_ns(data: bytes) -> int:
    """The time-to-live that the message was sent with; 0 for none. It begins again when the message is brought back."""
    properties = decode(data).properties
    return 0 if properties is None else properties.ttl_ns


def original_of(data: bytes, overlay: HeaderOverrides, sequence: int) -> Message:
    message = decode(data)
    message.sequence = sequence
    headers = {**message.headers, **_untagged(overlay)}
    properties = MessageProperties() if message.properties is None else message.properties
    properties.headers = {name: value for name, value in headers.items() if name not in RECORD}
    message.properties = properties
    return message


def _untagged(overlay: HeaderOverrides) -> Mapping[str, HeaderValue]:
    return checked_headers({name: untagged(value) for name, value in overlay.items()})
