"""The envelope: one message, the same from an import to a data centre.

    hot   channel  body  priority  sequence  timestamp_ns  expires_ns  delivery_count  id      in every message
    cold  type subject headers correlation_id reply_to session_id traceparent …  (cold.py)     made when first used

In process one message is shared by everybody who gets it, so it is not changed after it was published, except by
the bus itself. The body is the very object that was published.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.atomic import atomic
from unibus.core.envelope.message_properties import NO_HEADERS, NO_TRACE, HeaderValue, MessageProperties
from unibus.core.envelope.payload import Buffer, Payload
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.core.envelope.stamp import IdGenerator, default_id_generator, id_text

_Text: TypeAlias = str | None


# Acyclic: millions may wait in a queue, and the cycle collector would walk them all (it made queueing five times as
# slow). The price: a body that refers back to its own message is only freed when that reference is cut.
# The free list of one lets an inline publish reuse the memory of the message before.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Message:
    """Make one with `Message.new`; the bus makes its own on `publish`."""

    def __init__(
        self, id_generator: IdGenerator, channel: str, body: object, priority: i64, properties: MessageProperties | None
    ) -> None:
        self.channel = channel
        self.body = body
        self.priority = priority
        self.sequence: i64 = 0  # Given by the channel at admission, from 1; 0 = not admitted yet.
        self.expires_ns: i64 = 0  # Wall time; 0 = never.
        self.delivery_count: i64 = 0
        self.properties = properties
        self._is_taken = False  # A publish uses this very object: see `take`.
        # Until the id is read, `_id` holds the stamper's prefix and `_number` the count; after that, the text and 0.
        self._id = id_generator.prefix
        self._number = id_generator.next_number()
        # Kept as the very object that the clock gave: unpacking it here would cost more than a queue operation.
        self._timestamp_ns: object = id_generator.wall_ns()

    @staticmethod
    def new(channel: str, payload: object = None, priority: object = Priority.NORMAL) -> "Message":
        body = payload.value if isinstance(payload, Payload) else payload
        return Message(default_id_generator(), channel, body, checked_priority(priority), None)

    # The hot part

    @property
    def id(self) -> str:
        if self._number:
            self._id = id_text(self._id, self._number)
            self._number = 0
        return self._id

    @property
    def timestamp_ns(self) -> int:
        """Nanoseconds since 1970 when the message was made, by the wall clock."""
        stamp = self._timestamp_ns
        assert isinstance(stamp, int)
        return stamp

    @property
    def payload(self) -> Payload:
        return Payload(self.body)

    def as_json(self) -> object:
        return Payload(self.body).as_json()

    def as_bytes(self) -> Buffer | None:
        return Payload(self.body).as_bytes()

    # The cold part, read without making it

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        return NO_HEADERS if self.properties is None else self.properties.headers

    @property
    def trace(self) -> Mapping[str, str]:
        return NO_TRACE if self.properties is None else self.properties.trace

    @property
    def trace_id(self) -> _Text:
        """What was given as trace id, else the trace id inside of a W3C traceparent."""
        if self.properties is None:
            return None
        given = self.properties.trace.get("trace_id")
        if given is None and self.properties.traceparent is not None:
            parts = self.properties.traceparent.split("-")
            return parts[1] if len(parts) >= 4 else None
        return given

    @property
    def type(self) -> _Text:
        return None if self.properties is None else self.properties.type

    @property
    def subject(self) -> _Text:
        return None if self.properties is None else self.properties.subject

    @property
    def content_type(self) -> _Text:
        return None if self.properties is None else self.properties.content_type

    @property
    def correlation_id(self) -> _Text:
        return None if self.properties is None else self.properties.correlation_id

    @property
    def reply_to(self) -> _Text:
        return None if self.properties is None else self.properties.reply_to

    @property
    def source(self) -> _Text:
        return None if self.properties is None else self.properties.source

    @property
    def target(self) -> _Text:
        return None if self.properties is None else self.properties.target

    @property
    def session_id(self) -> _Text:
        return None if self.properties is None else self.properties.session_id

    @property
    def dedup_key(self) -> _Text:
        return None if self.properties is None else self.properties.dedup_key

    @property
    def traceparent(self) -> _Text:
        return None if self.properties is None else self.properties.traceparent

    @property
    def ttl(self) -> float | None:
        """Seconds, or None for no limit of its own."""
        return None if self.properties is None or self.properties.ttl_ns == 0 else float(self.properties.ttl_ns) / 1e9

    # Builders. Each gives a new message with the same id, so that a retry of the same publish is known as one.

    def with_priority(self, priority: object) -> "Message":
        other = self.copy()
        other.priority = checked_priority(priority)
        return other

    def with_trace_id(self, trace_id: str) -> "Message":
        return self.with_fields({"trace_id": trace_id})

    def with_headers(self, headers: Mapping[str, HeaderValue]) -> "Message":
        """The given headers on top of those there are."""
        return self.with_fields({"headers": {**self.headers, **headers}})

    def with_fields(self, fields: Mapping[str, object]) -> "Message":
        """Any fields of the cold part by name; unknown names and wrong types are refused."""
        from unibus.core.envelope.fields import set_fields

        other = self.copy()
        other.properties = MessageProperties() if self.properties is None else self.properties.copy()
        set_fields(other.properties, fields)
        return other

    def copy(self) -> "Message":
        """A second envelope around the same body and the same cold part, with the same id and place."""
        return restored(self.id, self.channel, self.body, self.timestamp_ns, self.properties)._placed_like(self)

    def fresh(self) -> "Message":
        """A copy that was never admitted: to publish the same message once more."""
        other = self.copy()
        other.sequence = 0
        other.delivery_count = 0
        return other

    def take(self) -> bool:
        """True for the one publish that may use this very object. Others publish a copy, with a sequence of its own."""
        if self._is_taken or self.sequence:
            return False
        self._is_taken = True
        return True

    def release(self) -> None:
        """The publish was refused: the next one may use the object."""
        self._is_taken = False

    def _placed_like(self, other: "Message") -> "Message":
        self.priority = other.priority
        self.sequence = other.sequence
        self.expires_ns = other.expires_ns
        self.delivery_count = other.delivery_count
        return self

    def __repr__(self) -> str:
        # Never shows or decodes the body: it may be secret, huge or hostile.
        return f"<Message {self.id} on {self.channel!r} #{self.sequence} priority {self.priority}>"


atomic(Message, "take")


def restored(id: str, channel: str, body: object, timestamp_ns: int, properties: MessageProperties | None) -> Message:
    """A message with a given identity and time: a decoded or a copied one."""
    message = Message(_UNSTAMPED, channel, body, Priority.NORMAL, properties)
    message._id = id
    message._number = 0
    message._timestamp_ns = timestamp_ns
    return message


def _zero() -> int:
    return 0


_UNSTAMPED: Final = IdGenerator("", _zero)
