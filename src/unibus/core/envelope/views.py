"""Views of the envelope under other names, for programs that use those names.

A BusMessage holds a message, copies nothing and never differs from it. Its `topic`, `metadata` and `tracing` are the
`channel`, `headers` and `trace` of the message.
"""

from collections.abc import Mapping
from typing import final

from mypy_extensions import mypyc_attr

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import NO_HEADERS, HeaderValue
from unibus.core.envelope.stamp import default_id_generator, id_text
from unibus.display import described, guarded, quoted, shortened


@mypyc_attr(native_class=False)
class MessageId(str):
    """The id of a message as a separate type; it compares and hashes as its text. Without an argument: a new id."""

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
    """The tracing fields and headers of a message. Its `custom` map is the headers, whose values keep their types."""

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
        """The fields as `publish` and `Message.with_fields` take them."""
        return {
            "trace_id": self.trace_id,
            "correlation_id": self.correlation_id,
            "source": self.source,
            "headers": self.custom,
        }

    def __repr__(self) -> str:
        # Names only: values may be secret.
        return guarded(
            self, lambda: f"MessageMeta({', '.join([name for name, value in self.as_fields().items() if value])})"
        )


def meta(message: Message) -> MessageMeta:
    """The metadata of a message. Its headers are those of the message, not a copy."""
    return MessageMeta(message.trace_id, message.correlation_id, message.source, message.headers)


@final
class BusMessage:
    """A message with `topic`, `payload`, `metadata` and `sort_key`, as a `MessageBackend` gets it."""

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
        """The given one, else the message's id: always set, unique, and the same on every access."""
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
        """Seconds since 1970 by the wall clock; not adjusted to be monotonic. `sort_key` gives the order."""
        return self.message.timestamp_ns / 1e9

    @property
    def sort_key(self) -> tuple[int, int]:
        """By priority, then by the sequence that the channel assigned: exact, independent of the clock."""
        return (self.message.priority, self.message.sequence)

    @property
    def backend_id(self) -> str | None:
        """The id of the message in the backend that stores it; None in memory."""
        return None if self.message.properties is None else self.message.properties.backend_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BusMessage) and other.message is self.message

    def __hash__(self) -> int:
        return hash(self.message)

    def __repr__(self) -> str:
        return described(self, lambda: f"{shortened(self.message.id, 40)} on {quoted(self.topic)}")
