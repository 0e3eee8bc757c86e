"""A stored message as a store shows it: a frozen copy without the body, of the moment in which it was read.

A store behind a network cannot hand out objects that change later, so no store does. A caller that acts on a record
names the message by its key; the store decides by the message's state at that time. A key is never used again: the
sequences of an entity only increase, also if it is deleted and created again.

The price: a record takes about half a kilobyte of memory. So messages are listed page by page, in the order of their
sequences, and the lock of an embedded store is held for one page at a time.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.states import LOCKED, SCHEDULED

MessageKey: TypeAlias = tuple[str, int]
"""The name of an entity, and a sequence in it."""

LIST_PAGE: Final = 500
"""Messages of one page of a listing: an embedded store decides nothing else while it copies them, about 0.5 ms."""


class MessageRecord(msgspec.Struct, frozen=True, gc=False):
    """`kind` is that of the entity. All instants are wall time, and 0 for none.

    `scheduled_ns` is when a scheduled message becomes active, `locked_until_ns` when the lock of a locked one ends.
    `consumer` has locked it. `overlay` are the headers that settlements have added. It was forwarded `hops` times.
    """

    entity: str
    kind: int
    sequence: int
    who: MessageRef
    priority: int
    state: int
    delivery_count: int
    expires_ns: int
    scheduled_ns: int
    enqueued_ns: int
    first_delivered_ns: int
    locked_until_ns: int
    consumer: str
    overlay: HeaderOverrides | None
    hops: int

    @property
    def key(self) -> MessageKey:
        return self.entity, self.sequence


def freeze(entry: StoredMessage) -> MessageRecord:
    """Under the lock of the store."""
    entity, state, overlay = entry.entity, entry.state, entry.overlay
    return MessageRecord(
        entity=entity.name,
        kind=entity.kind,
        sequence=entry.sequence,
        who=entry.who,
        priority=entry.priority,
        state=state,
        delivery_count=entry.delivery_count,
        expires_ns=entry.expires_ns,
        scheduled_ns=entry.due_ns if state == SCHEDULED else 0,
        enqueued_ns=entry.enqueued_ns,
        first_delivered_ns=entry.first_delivered_ns,
        locked_until_ns=entry.lock_ends_ns() if state == LOCKED else 0,
        consumer=entry.consumer,
        overlay=None if overlay is None else {**overlay},
        hops=entry.hops,
    )


def pages_of(read: Callable[[int, int], list[MessageRecord]], until: int) -> Iterator[list[MessageRecord]]:
    """All messages of an entity up to a sequence, in order. `read` lists a page from a sequence on.

    `until` is the last sequence of the entity when the listing begins: else it would follow a busy queue for ever.
    """
    at = 0
    while at <= until and (page := read(at, LIST_PAGE)):
        yield page if page[-1].sequence <= until else [record for record in page if record.sequence <= until]
        at = page[-1].sequence + 1
