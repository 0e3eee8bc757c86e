"""The envelope: one message, the same class in memory, in a store and on the network.

    fixed fields   id channel body priority sequence timestamp_ns expires_ns delivery_count    in every message
    properties     type subject headers correlation_id reply_to session_id traceparent …       created on first use
                   (message_properties.py)

The invariant: a message is not changed after it was published, except by the bus itself, because in memory all
handlers of all groups get the same object. The `with_…` builders return a new message. The body is the object that was
published, not a copy.

Id and time are computed lazily (stamp.py), because publishing is the hot path and most handlers read neither.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.atomic import atomic
from unibus.core.envelope.message_properties import NO_HEADERS, NO_TRACE, HeaderValue, MessageProperties
from unibus.core.envelope.payload import Buffer, Payload
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.core.envelope.stamp import IdGenerator, default_id_generator, id_text
from unibus.display import NAME_CHARS_MAX, described, quoted, shortened

_Text: TypeAlias = str | None

_TAKEN: Final = ~0
"""The number of a message whose id was read, while a publish uses it."""


# Acyclic: the backlog may hold millions of messages, and the cycle collector would traverse all of them (it made
# queueing five times as slow). The price: a body that refers to its own message is only freed when that reference is
# removed. The free list of one lets an inline publish reuse the memory of the previous message.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Message:
    """Create one with `Message.new`; `publish` creates its own."""

    def __init__(
        self, id_generator: IdGenerator, channel: str, body: object, priority: i64, properties: MessageProperties | None
    ) -> None:
        self.channel = channel
        self.body = body
        self.priority = priority
        self.sequence: i64 = 0  # Assigned by the channel at admission, from 1; 0 = not admitted yet.
        self.expires_ns: i64 = 0  # Wall time; 0 = never.
        self.delivery_count: i64 = 0
        self.properties = properties
        # Until the id is read, `_id` is the prefix of the generator and `_number` the count; then the whole id and 0.
        # While a publish uses this object itself, `_number` is the bitwise complement of that: negative. See `take`.
        self._id = id_generator.prefix
        self._number = id_generator.next_number()
        # The int object of the clock, not unpacked: unpacking it here would cost more than a queue operation.
        self._timestamp_ns: object = id_generator.wall_ns()

    @staticmethod
    def new(channel: str, payload: object = None, priority: object = Priority.NORMAL) -> "Message":
        body = payload.value if isinstance(payload, Payload) else payload
        return Message(default_id_generator(), channel, body, checked_priority(priority), None)

    # Fixed fields

    @property
    def id(self) -> str:
        number = self._number
        if number and number != _TAKEN:
            self._make_id()
        return self._id

    def _make_id(self) -> None:
        """Replace the prefix by the text. `_number` is read again after that: another thread may have taken this."""
        number = self._number
        if number < 0:
            number = ~number
        if number:
            self._id = id_text(self._id, number)
            self._number = _TAKEN if self._number < 0 else 0

    @property
    def timestamp_ns(self) -> int:
        """When the message was created: nanoseconds since 1970 by the wall clock."""
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

    # Properties: reading one does not create them

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        return NO_HEADERS if self.properties is None else self.properties.headers

    @property
    def trace(self) -> Mapping[str, str]:
        return NO_TRACE if self.properties is None else self.properties.trace

    @property
    def trace_id(self) -> _Text:
        """The given trace id, else the trace id of the W3C traceparent."""
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

    @property
    def locked_until(self) -> datetime | None:
        """When the lock of a peeked message expires; None if it was not locked."""
        until_ns = 0 if self.properties is None else self.properties.locked_until_ns
        return None if until_ns == 0 else datetime.fromtimestamp(float(until_ns) / 1e9, UTC)

    # Builders. Each returns a new message with the same id, so that dedup recognises a repeated publish.

    def with_priority(self, priority: object) -> "Message":
        other = self.copy()
        other.priority = checked_priority(priority)
        return other

    def with_trace_id(self, trace_id: str) -> "Message":
        return self.with_fields({"trace_id": trace_id})

    def with_headers(self, headers: Mapping[str, HeaderValue]) -> "Message":
        """A message with the given headers added; they replace headers of the same name."""
        return self.with_fields({"headers": {**self.headers, **headers}})

    def with_fields(self, fields: Mapping[str, object]) -> "Message":
        """A message with these properties, by name. Raises UsageError for an unknown name or a wrong type."""
        from unibus.core.envelope.fields import set_fields

        other = self.copy()
        other.properties = MessageProperties() if self.properties is None else self.properties.copy()
        set_fields(other.properties, fields)
        return other

    def copy(self) -> "Message":
        """A second envelope around the same body and the same properties, with the same id and sequence."""
        return restored(self.id, self.channel, self.body, self.timestamp_ns, self.properties)._placed_like(self)

    def fresh(self) -> "Message":
        """A copy that is not admitted yet: to publish the same message once more."""
        other = self.copy()
        other.sequence = 0
        other.delivery_count = 0
        return other

    def take(self) -> bool:
        """True for the one publish that may use this object itself.

        Every other publish of it uses a copy: each admission assigns a sequence, and one object has only one.
        """
        if self._number < 0 or self.sequence:
            return False
        self._number = ~self._number
        return True

    def release(self) -> None:
        """The publish was rejected: the next one may use the object."""
        if self._number < 0:
            self._number = ~self._number

    def _placed_like(self, other: "Message") -> "Message":
        self.priority = other.priority
        self.sequence = other.sequence
        self.expires_ns = other.expires_ns
        self.delivery_count = other.delivery_count
        return self

    def __repr__(self) -> str:
        # Never shows or decodes the body: it may be secret, huge or hostile.
        return described(self, self._describe)

    def _describe(self) -> str:
        name = shortened(self.id, NAME_CHARS_MAX)
        until = self.locked_until
        lock = "" if until is None else f", locked until {until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{name} on {quoted(self.channel, 40)} #{self.sequence} priority {self.priority}{lock}"


atomic(Message, "_make_id", "take", "release")


def restored(id: str, channel: str, body: object, timestamp_ns: int, properties: MessageProperties | None) -> Message:
    """A message with a given id and time: a decoded or a copied one."""
    message = Message(_UNSTAMPED, channel, body, Priority.NORMAL, properties)
    message._id = id
    message._number = 0
    message._timestamp_ns = timestamp_ns
    return message


def _zero() -> int:
    return 0


_UNSTAMPED: Final = IdGenerator("", _zero)
