"""Every change that can happen to durable messages: what a journal holds, on one page.

One change is one record of the journal and one event of history. Its place in the whole is its `seq`, which the journal
counts; it is not part of the record. All values are absolute (a count, an instant, never "one more"), so that playing
a change twice is the same as once.

To change this page: only append, fields at the end of a record and with a default, tags never reused. Records are on
disks. A record of a kind that is not known here is a store of a newer version.

This file stays plain: msgspec makes the classes, at import, from their annotations.
"""

from typing import TypeAlias

import msgspec

HeaderOverrides: TypeAlias = dict[str, object]
"""Headers that a settlement put over those that were sent, with the tags of core/codec/wire.py."""

Settings: TypeAlias = dict[str, str | int | float | bool | None]


class MessageRef(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What every event of a message tells about it."""

    message_id: str
    size: int
    session_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None


class Sent(msgspec.Struct, array_like=True, gc=False, tag=1):
    """A message was stored, to be delivered now or from `visible_ns` on. `data` is the encoded envelope.

    `hops` counts how often it was forwarded before; a store of an earlier version has 0 here.
    """

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    priority: int
    expires_ns: int
    visible_ns: int
    dedup_key: str | None
    data: bytes
    overlay: HeaderOverrides | None = None
    hops: int = 0


class Passed(msgspec.Struct, array_like=True, gc=False, tag=2):
    """A message went through an entity that keeps none: a topic, or one that forwards. Copies may follow."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    priority: int
    dedup_key: str | None
    copies: int
    data: bytes


class Copied(msgspec.Struct, array_like=True, gc=False, tag=3):
    """A message was stored whose data is elsewhere: in the record `back` places before, or in another entity.

    `dedup_key` is set where duplicate detection has to know it: it was forwarded to this entity.
    """

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    priority: int
    expires_ns: int
    visible_ns: int
    back: int
    source_entity: int = 0
    source_sequence: int = 0
    hops: int = 0
    overlay: HeaderOverrides | None = None
    dedup_key: str | None = None


class Delivered(msgspec.Struct, array_like=True, gc=False, tag=4):
    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    token: bytes
    until_ns: int
    consumer: str = ""


class Renewed(msgspec.Struct, array_like=True, gc=False, tag=5):
    at_ns: int
    entity: int
    sequence: int
    until_ns: int


class Returned(msgspec.Struct, array_like=True, gc=False, tag=6):
    """The lock is over and the message is not settled: back to its place, or from `visible_ns` on."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    reason: str
    visible_ns: int = 0
    overlay: HeaderOverrides | None = None


class Deferred(msgspec.Struct, array_like=True, gc=False, tag=7):
    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    overlay: HeaderOverrides | None = None


class Activated(msgspec.Struct, array_like=True, gc=False, tag=8):
    """Its time has come. One that was scheduled gets a new place, one that was delayed keeps its own."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    new_sequence: int


class Completed(msgspec.Struct, array_like=True, gc=False, tag=9):
    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    enqueued_ns: int
    first_delivered_ns: int
    consumer: str = ""


class Cancelled(msgspec.Struct, array_like=True, gc=False, tag=10):
    at_ns: int
    entity: int
    sequence: int
    who: MessageRef


class Expired(msgspec.Struct, array_like=True, gc=False, tag=11):
    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    enqueued_ns: int
    first_delivered_ns: int


class DeadLettered(msgspec.Struct, array_like=True, gc=False, tag=12):
    """Gone from here. The copy in the dead-letter queue stands in the record before."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    enqueued_ns: int
    first_delivered_ns: int
    reason: str
    signature: str = ""
    consumer: str = ""


class Routed(msgspec.Struct, array_like=True, gc=False, tag=13):
    """A scheduled message of a topic or of an entity that forwards went on. Its copies stand in the records before."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef


class Duplicated(msgspec.Struct, array_like=True, gc=False, tag=14):
    """A send that was known already. Nothing was stored."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    dedup_key: str


class SessionTaken(msgspec.Struct, array_like=True, gc=False, tag=15):
    """Accepted, or its lock renewed."""

    at_ns: int
    entity: int
    sequence: int
    session_id: str
    token: bytes
    until_ns: int
    consumer: str = ""


class SessionLeft(msgspec.Struct, array_like=True, gc=False, tag=16):
    at_ns: int
    entity: int
    sequence: int
    session_id: str
    reason: str


class SessionStated(msgspec.Struct, array_like=True, gc=False, tag=17):
    at_ns: int
    entity: int
    sequence: int
    session_id: str
    state: bytes | None


class Processed(msgspec.Struct, array_like=True, gc=False, tag=18):
    """A consumer of the entity has had its effect for this key. Written in the batch that settles the message."""

    at_ns: int
    entity: int
    sequence: int
    key: str


class Declared(msgspec.Struct, array_like=True, gc=False, tag=19):
    """An entity was made or changed. `sequence` is the last one that its name ever used."""

    at_ns: int
    entity: int
    sequence: int
    name: str
    kind: int
    settings: Settings


class Dropped(msgspec.Struct, array_like=True, gc=False, tag=20):
    """An entity was deleted with everything in it."""

    at_ns: int
    entity: int
    sequence: int
    name: str
    messages: int


class Purged(msgspec.Struct, array_like=True, gc=False, tag=21):
    """Removed by hand."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    reason: str


class Moved(msgspec.Struct, array_like=True, gc=False, tag=22):
    """Gone from here, by hand or by a rule of recovery. The copies stand in the records before."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    enqueued_ns: int
    target: str
    action: str


class Advanced(msgspec.Struct, array_like=True, gc=False, tag=23):
    """A named position went on, in the batch whose effect it stands for. No entity: both numbers are 0."""

    at_ns: int
    entity: int
    sequence: int
    name: str
    position: int


class Pruned(msgspec.Struct, array_like=True, gc=False, tag=24):
    """What was stored in the entity up to this sequence is not replayed any more."""

    at_ns: int
    entity: int
    sequence: int


class Forgotten(msgspec.Struct, array_like=True, gc=False, tag=25):
    """The same for one message, which is gone already."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef


Change: TypeAlias = (
    Sent
    | Passed
    | Copied
    | Delivered
    | Renewed
    | Returned
    | Deferred
    | Activated
    | Completed
    | Cancelled
    | Expired
    | DeadLettered
    | Routed
    | Duplicated
    | SessionTaken
    | SessionLeft
    | SessionStated
    | Processed
    | Declared
    | Dropped
    | Purged
    | Moved
    | Advanced
    | Pruned
    | Forgotten
)


class SavedEntry(msgspec.Struct, array_like=True, gc=False):
    """A message as a snapshot keeps it, beside its data."""

    who: MessageRef
    priority: int
    state: int
    delivery_count: int
    expires_ns: int
    due_ns: int
    enqueued_ns: int
    first_delivered_ns: int
    token: bytes | None = None
    was_deferred: bool = False
    delayed: bool = False
    hops: int = 0
    overlay: HeaderOverrides | None = None
    consumer: str = ""


class SavedSession(msgspec.Struct, array_like=True, gc=False):
    """`stated_ns` is when the state was set; a store of an earlier version has 0 here."""

    session_id: str
    state: bytes | None
    token: bytes | None
    until_ns: int
    consumer: str = ""
    stated_ns: int = 0
