# mypyc: compiled
"""A message while it is routed through topics and forwarding entities to where it is stored."""

from typing import final

from mypy_extensions import i64

from unibus.core.codec.codec import decode
from unibus.core.envelope.message import Message
from unibus.core.flow.expiry import effective_ttl_ns
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef
from unibus.core.lifecycle.state.entity import Entity, StoredMessage
from unibus.core.lifecycle.state.overrides import apply_overrides
from unibus.core.lifecycle.state.routing import Arrival
from unibus.core.lifecycle.state.state import StoreState


@final
class RoutedMessage:
    """Its data is new (`data`), or that of a stored message (`source`)."""

    def __init__(self, who: MessageRef, priority: int, ttl_ns: int) -> None:
        self.who = who
        self.priority: i64 = priority
        self.ttl_ns: i64 = ttl_ns
        self.hops: i64 = 0
        self.data: bytes = b""
        self.carrier: i64 = 0  # The seq of the journal record that has the data; 0 as long as none has.
        self.source: StoredMessage | None = None
        self.overlay: HeaderOverrides | None = None
        self.message: Message | None = None  # Decoded, with the overlay applied; only if a rule needs it.
        self.arrivals: list[Arrival] | None = None
        self.dedup_key: str | None = None  # Set by the sender; that of a stored message is in its data only.
        self.way: list[Entity] | None = None  # The forwarders and topics that it passed since it was sent or stored.

    def content(self, state: StoreState) -> Message:
        message = self.message
        if message is None:
            source = self.source
            message = decode(self.data if source is None else state.data_of(source))
            apply_overrides(message, self.overlay)
            self.message = message
        return message

    def fork(self, ttl_ns: i64) -> "RoutedMessage":
        """A copy for one of several targets. `ttl_ns` limits its time to live; 0 is no limit."""
        other = RoutedMessage(self.who, self.priority, effective_ttl_ns(self.ttl_ns, ttl_ns))
        other.hops = self.hops
        other.data = self.data
        # Copies share the record with the data, as long as all of them are in one group.
        other.carrier = self.carrier
        other.source = self.source
        other.overlay = self.overlay
        other.message = self.message
        other.dedup_key = self.dedup_key
        other.way = self.way
        return other

    def onward(self, entity: Entity, ttl_ns: i64) -> "RoutedMessage":
        """One hop further: `entity` forwards it."""
        other = self.fork(ttl_ns)
        other.hops = self.hops + 1
        other.passed(entity)
        return other

    def passed(self, entity: Entity) -> None:
        """It passed this entity, whose dedup window therefore knows it: it is not a duplicate of itself there."""
        self.way = [entity] if self.way is None else [*self.way, entity]

    def was_forwarded_by(self, entity: Entity) -> bool:
        return self.way is not None and entity in self.way
