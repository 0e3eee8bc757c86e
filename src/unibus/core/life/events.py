"""History: a change as the row that readers see, the same for tracing, SQL, capture and Spark.

Terminal events carry when the message was enqueued and first delivered, so that a reader needs no second event to tell
how long it took. Times are microseconds since 1970. This file stays plain, as changes.py does.
"""

from typing import Final

import msgspec

from unibus.core.life import changes
from unibus.core.life.changes import Change, Who


class Event(msgspec.Struct, frozen=True, gc=False):
    """One row of history. `seq` is store-wide and without gaps; (channel, sequence) is the identity of a message."""

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
}
KINDS: Final = (*_KINDS.values(), "scheduled")

# Fields that say more than the columns do, by name, with how they are written.
_ATTRS: Final = ("priority", "copies", "source_entity", "source_sequence", "new_sequence", "dedup_key", "key", "kind")


def event_of(seq: int, change: Change, domain: str, names: dict[int, str]) -> Event:
    """`names` knows the entities by number, deleted ones included."""
    who: Who | None = getattr(change, "who", None)
    kind = _KINDS[type(change)]
    if isinstance(change, changes.Sent) and change.visible_ns:
        kind = "scheduled"
    return Event(
        seq,
        change.at_ns // 1_000,
        domain,
        names.get(change.entity, f"#{change.entity}"),
        kind,
        change.sequence,
        who.message_id if who is not None else None,
        who.correlation_id if who is not None else None,
        who.trace_id if who is not None else None,
        who.session_id if who is not None else getattr(change, "session_id", None),
        getattr(change, "delivery_count", None),
        who.size if who is not None else None,
        _us(getattr(change, "enqueued_ns", 0)),
        _us(getattr(change, "first_delivered_ns", 0)),
        getattr(change, "reason", None),
        getattr(change, "signature", "") or None,
        getattr(change, "consumer", "") or None,
        _attrs(change, names),
    )


def _us(instant_ns: int) -> int | None:
    return instant_ns // 1_000 if instant_ns else None


def _attrs(change: Change, names: dict[int, str]) -> dict[str, str] | None:
    found = {name: str(getattr(change, name)) for name in _ATTRS if getattr(change, name, None) not in (None, 0)}
    source = found.pop("source_entity", None)
    if source is not None:
        found["source"] = names.get(int(source), source)
    for name in ("visible_ns", "until_ns"):
        instant = getattr(change, name, 0)
        if instant:
            found[name.removesuffix("_ns") + "_us"] = str(instant // 1_000)
    return found or None
