"""History: each change as one event row, the same for tracing, SQL, capture and Spark.

Terminal events have the time at which the message was enqueued and first delivered, so that a reader computes latencies
without a second event. Times are microseconds since 1970. This file is not compiled, like changes.py: msgspec needs
plain classes.
"""

from typing import Any, Final

import msgspec

from unibus.core.flow.deadletter import is_sub_queue, refusal_of
from unibus.core.lifecycle.state import changes
from unibus.core.lifecycle.state.changes import Change, HeaderOverrides, MessageRef
from unibus.core.lifecycle.state.entity import KIND_NAMES
from unibus.display import described, quoted, shortened


class Event(msgspec.Struct, frozen=True, gc=False):
    """One row of history. `seq` counts all changes of a store without gaps; (channel, sequence) identifies a
    message."""

    seq: int
    ts: int
    domain: str
    channel: str
    kind: str
    sequence: int
    message_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    session_id: str | None = None
    delivery_count: int | None = None
    size: int | None = None
    enqueued_us: int | None = None
    first_delivered_us: int | None = None
    reason: str | None = None
    signature: str | None = None
    consumer: str | None = None
    attrs: dict[str, str] | None = None

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        message = "" if self.message_id is None else f", message {shortened(self.message_id, 40)}"
        return f"{self.seq} {self.kind}, {quoted(self.channel, 40)} #{self.sequence}{message}"


_KINDS: Final[dict[type, str]] = {
    changes.Sent: "sent",
    changes.Passed: "published",
    changes.Copied: "copied",
    changes.Delivered: "delivered",
    changes.Renewed: "renewed",
    changes.Returned: "returned",
    changes.Deferred: "deferred",
    changes.Activated: "activated",
    changes.Completed: "completed",
    changes.Cancelled: "cancelled",
    changes.Expired: "expired",
    changes.DeadLettered: "dead_lettered",
    changes.Routed: "routed",
    changes.Duplicated: "duplicate",
    changes.SessionTaken: "session_taken",
    changes.SessionLeft: "session_left",
    changes.SessionStated: "session_stated",
    changes.Processed: "processed",
    changes.Declared: "declared",
    changes.Dropped: "dropped",
    changes.Purged: "purged",
    changes.Moved: "moved",
    changes.Advanced: "advanced",
    changes.Pruned: "pruned",
    changes.Forgotten: "forgotten",
    changes.Applied: "applied",
}
SCHEDULED: Final = "scheduled"
KINDS: Final = (*_KINDS.values(), SCHEDULED)

# Fields of changes that have no column: they go into `attrs`, under these names.
_ATTRS: Final = {
    "priority": "priority",
    "copies": "copies",
    "source_sequence": "source_sequence",
    "new_sequence": "new_sequence",
    "dedup_key": "dedup_key",
    "key": "key",
    "kind": "kind",
    "target": "target",
    "action": "action",
    "name": "name",
    "position": "position",
    "messages": "messages",
    "batch_id": "batch_id",
}
_TIMES: Final = {"visible_ns": "visible_us", "until_ns": "until_us"}


class _Shape:
    """Which fields a kind of change has. Computed once: testing each object for its fields is slow."""

    def __init__(self, change: type[msgspec.Struct], kind: str) -> None:
        has = change.__struct_fields__
        self.kind = kind
        self.who = "who" in has
        self.session = "session_id" in has
        self.count = "delivery_count" in has
        self.enqueued = "enqueued_ns" in has
        self.delivered = "first_delivered_ns" in has
        self.reason = "reason" in has
        self.signature = "signature" in has
        self.consumer = "consumer" in has
        self.copy = change is changes.Copied
        self.overlay = change is changes.Copied or change is changes.Sent
        self.attrs = [(field, name) for field, name in _ATTRS.items() if field in has]
        self.times = [(field, name) for field, name in _TIMES.items() if field in has]


_SHAPES: Final = {change: _Shape(change, kind) for change, kind in _KINDS.items()}
_NOBODY: Final = MessageRef("", 0)


def kind_of(change: Change) -> str:
    if isinstance(change, changes.Sent) and change.visible_ns:
        return SCHEDULED
    return _KINDS[type(change)]


def is_about(change: Change, message_id: str) -> bool:
    who: MessageRef | None = getattr(change, "who", None)
    return who is not None and who.message_id == message_id


def event_of(seq: int, change: Any, domain: str, names: dict[int, str]) -> Event:
    """The event of a change. `names` has the names of entities by number, including deleted ones."""
    shape = _SHAPES[type(change)]
    who = change.who if shape.who else _NOBODY
    return Event(
        seq=seq,
        ts=change.at_ns // 1_000,
        domain=domain,
        channel=_name(change.entity, names),
        kind=kind_of(change),
        sequence=change.sequence,
        message_id=who.message_id if shape.who else None,
        correlation_id=who.correlation_id,
        trace_id=who.trace_id,
        session_id=change.session_id if shape.session else who.session_id,
        delivery_count=change.delivery_count if shape.count else None,
        size=who.size if shape.who else None,
        enqueued_us=_us(change.enqueued_ns) if shape.enqueued else None,
        first_delivered_us=_us(change.first_delivered_ns) if shape.delivered else None,
        reason=change.reason if shape.reason else None,
        signature=change.signature or None if shape.signature else None,
        consumer=change.consumer or None if shape.consumer else None,
        attrs=_attrs(seq, change, shape, names),
    )


def _name(entity: int, names: dict[int, str]) -> str:
    return names.get(entity, f"#{entity}") if entity else ""


def _us(instant_ns: int) -> int | None:
    return instant_ns // 1_000 if instant_ns else None


def _attrs(seq: int, change: Any, shape: _Shape, names: dict[int, str]) -> dict[str, str] | None:
    found = {}
    for field, name in shape.attrs:
        value = getattr(change, field)
        if value is not None and value != 0:
            found[name] = str(value)
    for field, name in shape.times:
        instant_ns = getattr(change, field)
        if instant_ns:
            found[name] = str(instant_ns // 1_000)
    if "kind" in found:
        found["kind"] = KIND_NAMES.get(change.kind, found["kind"])
    if shape.copy:
        # The source of the copy: a stored message, or the record of an entity that stored none itself.
        if change.source_entity:
            found["source"] = _name(change.source_entity, names)
        else:
            found["source_seq"] = str(seq - change.back)
    if shape.overlay and change.overlay is not None:
        refusal = refusal_at(_name(change.entity, names), change.overlay)
        if refusal:
            found["refusal"] = refusal
    return found or None


def refusal_at(channel: str, overlay: HeaderOverrides | None) -> str:
    """Why an entity rejected the message that arrives in its dead-letter queue; "" for any other arrival."""
    return refusal_of(overlay) if overlay is not None and is_sub_queue(channel) else ""
