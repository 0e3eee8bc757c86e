"""The other designs' names for the one envelope.

A BusMessage is a view: it holds the message, copies nothing and never differs from it. What the designs called topic,
metadata, custom or tracing is `channel`, `headers` and `trace` here.
"""

from collections.abc import Mapping
from typing import final

from mypy_extensions import mypyc_attr

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import NO_HEADERS, HeaderValue
from unibus.core.envelope.stamp import default_id_generator, id_text


@mypyc_attr(native_class=False)
class MessageId(str):
    """A message's id as a type of its own; it compares and hashes as its text. Without an argument: a new one."""

    __slots__ = ()

    def __new__(cls, text: str | None = None) -> "MessageId":
        return MessageId.new() if text is None else str.__new__(cls, text)

    @staticmethod
    def new() -> "MessageId":
        """Unique among all processes: see stamp.py."""
        id_generator = default_id_generator()
        return MessageId(id_text(id_generator.prefix, id_generator.next_number()))

    @staticmethod
    def from_str(text: str) -> "MessageId":
        return MessageId(text)


@final
class MessageMeta:
    """The first design's metadata. Its `custom` map is the headers, whose values keep their types here."""

    def __init__(
        self,
        trace_id: str | None = None,
        correlation_id: str | None = None,
        source: str | None = None,
        custom: Mapping[str, HeaderValue] = NO_HEADERS,
    ) -> None:
        self.trace_id = trace_id
        self.correlation_id = correlation_id
        self.source = source
        self.custom = custom

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageMeta) and other.as_fields() == self.as_fields()

    def __hash__(self) -> int:
        return hash((self.trace_id, self.correlation_id, self.source))

    def as_fields(self) -> dict[str, object]:
        """What `publish` and `Message.with_fields` take."""
        return {
            "trace_id": self.trace_id,
            "correlation_id": self.correlation_id,
            "source": self.source,
            "headers": self.custom,
        }

    def __repr__(self) -> str:
        # Values may be secret; names tell enough.
        return f"MessageMeta({', '.join([name for name, value in self.as_fields().items() if value])})"


def meta(message: Message) -> MessageMeta:
    """Its headers are the message's own, not copied."""
    return MessageMeta(message.trace_id, message.correlation_id, message.source, message.headers)


@final
class BusMessage:
    """The second design's message."""

    def __init__(self, message: Message) -> None:
        self.message = message

    @property
    def topic(self) -> str:
        return self.message.channel

    @property
    def priority(self) -> int:
        """Lower is more urgent."""
        return self.message.priority

    @property
    def payload(self) -> object:
        return self.message.body

    @property
    def correlation_id(self) -> str:
        """The one that was given, else the message's id: unique as the design wants, and the same at every reading."""
        given = self.message.correlation_id
        return self.message.id if given is None else given

    @property
    def tracing(self) -> Mapping[str, str]:
        return self.message.trace

    @property
    def metadata(self) -> Mapping[str, HeaderValue]:
        return self.message.headers

    @property
    def delivery_attempts(self) -> int:
        return self.message.delivery_count

    @property
    def enqueued_time(self) -> float:
        """Seconds since 1970 by the wall clock, as true as the clock; never moved to keep an order."""
        return self.message.timestamp_ns / 1e9

    @property
    def sort_key(self) -> tuple[int, int]:
        """First by priority, then by the sequence that the channel gave: exact, whatever the clock does."""
        return (self.message.priority, self.message.sequence)

    @property
    def backend_id(self) -> str | None:
        """How the store that keeps the message calls it; None in memory."""
        return None if self.message.properties is None else self.message.properties.backend_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BusMessage) and other.message is self.message

    def __hash__(self) -> int:
        return hash(self.message)

    def __repr__(self) -> str:
        return f"<BusMessage {self.message.id} on {self.topic!r}>"
