"""A dead-lettered message as users see it. The body is decoded only on access to `original`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from unibus.bus.dead_letters.record import (
    RECORD,
    RECOVERY_HEADER,
    dead_lettered_ns,
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
from unibus.core.lifecycle.state.states import STATE_NAMES
from unibus.display import described, quoted, shortened
from unibus.stores.seam.message_record import MessageRecord


@dataclass(frozen=True)
class DeadMessage:
    """One dead-lettered message, as it was when it was read.

    `entity` is the queue that holds it now, `source` the queue or subscription where it failed. `attempts` is the
    number of deliveries before it was dead-lettered, `retry_count` how many of them were retries, so one less, and
    `recovery_attempts` how often it was retried since.
    """

    id: str
    entity: str
    sequence: int
    source: str
    failure_reason: str
    description: str
    error_type: str
    last_error: str
    failure_ns: int
    attempts: int
    recovery_attempts: int
    consumer: str
    traceback: str
    state: str
    session_id: str | None
    size: int
    overlay: HeaderOverrides = field(repr=False)
    data: bytes = field(repr=False)

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        place = f"in {quoted(self.entity, 40)} #{self.sequence}"
        return f"{shortened(self.id, 40)} {place}, {self.state}: {self.failure_reason or 'no reason'}"

    @property
    def retry_count(self) -> int:
        """The deliveries after the first one: at most the `retry_attempts` of the subscription."""
        return max(0, self.attempts - 1)

    @property
    def failure_timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.failure_ns / 1e9, UTC)

    @property
    def original(self) -> Message:
        """The message as it was sent, with the headers that settlements added, without those of the failure."""
        return original_of(self.data, self.overlay, self.sequence)


def dead_message(entry: MessageRecord, data: bytes) -> DeadMessage:
    overlay = record_of(entry)
    return DeadMessage(
        id=entry.who.message_id,
        entity=entry.entity,
        sequence=entry.sequence,
        source=source_in(overlay),
        failure_reason=text_in(overlay, REASON_HEADER),
        description=text_in(overlay, DESCRIPTION_HEADER),
        error_type=text_in(overlay, ERROR_TYPE_HEADER),
        last_error=error_in(overlay),
        failure_ns=dead_lettered_ns(entry),
        attempts=number_in(overlay, ATTEMPTS_HEADER),
        recovery_attempts=number_in(overlay, RECOVERY_HEADER),
        consumer=text_in(overlay, GROUP_HEADER),
        traceback=text_in(overlay, TRACEBACK_HEADER),
        state=STATE_NAMES[entry.state],
        session_id=entry.who.session_id,
        size=entry.who.size,
        overlay=dict(overlay),
        data=data,
    )


def own_ttl_ns(data: bytes) -> int:
    """The time-to-live that the message was sent with; 0 for none. A recovery starts it again from its full length."""
    properties = decode(data).properties
    return 0 if properties is None else properties.ttl_ns


def original_of(data: bytes, overlay: HeaderOverrides, sequence: int) -> Message:
    message = decode(data)
    message.sequence = sequence
    # The overlay wins: it holds the values that settlements wrote after the message was sent.
    headers = {**message.headers, **_untagged(overlay)}
    properties = MessageProperties() if message.properties is None else message.properties
    properties.headers = {name: value for name, value in headers.items() if name not in RECORD}
    message.properties = properties
    return message


def _untagged(overlay: HeaderOverrides) -> Mapping[str, HeaderValue]:
    return checked_headers({name: untagged(value) for name, value in overlay.items()})
