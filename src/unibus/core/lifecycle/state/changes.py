"""Every change that a store can record: the format of its journal, on one page.

One change is one record of the journal and one event of history. Its position is its `seq`, which the journal counts;
it is not part of the record. All values are absolute (a count, an instant, never "one more"), so that applying a change
twice has the same effect as once.

To change this page: only append records, add fields at the end of a record and with a default, and never reuse a tag.
Records are on disk. A record of an unknown kind was written by a newer version.

This file is not compiled: msgspec creates the classes, at import, from their annotations.
"""

from typing import TypeAlias

import msgspec

HeaderOverrides: TypeAlias = dict[str, object]
"""Headers that replace or extend those of the sent message, set by settlements; with the tags of core/codec/wire.py."""

Settings: TypeAlias = dict[str, str | int | float | bool | None]


class MessageRef(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The identity of a message in every event about it."""

    message_id: str
    size: int
    session_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None


class Sent(msgspec.Struct, array_like=True, gc=False, tag=1):
    """A message was stored: active, or scheduled for `visible_ns`. `data` is the encoded envelope.

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
    """A message was routed through an entity that does not store it: a topic, or one that forwards. Copies may
    follow."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    priority: int
    dedup_key: str | None
    copies: int
    data: bytes


class Copied(msgspec.Struct, array_like=True, gc=False, tag=3):
    """A message was stored whose data is elsewhere: in the record `back` positions before, or in another entity.

    `dedup_key` is set if it enters the dedup window: the message was forwarded to this entity.
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
    """`ends_with_process`: the lock ends at the next opening of the store, at the latest."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    token: bytes
    until_ns: int
    consumer: str = ""
    ends_with_process: bool = False


class Renewed(msgspec.Struct, array_like=True, gc=False, tag=5):
    at_ns: int
    entity: int
    sequence: int
    until_ns: int


class Returned(msgspec.Struct, array_like=True, gc=False, tag=6):
    """The lock ended without a settlement: requeued at its position, at once or at `visible_ns`."""

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
    """The message is active now. A scheduled one gets a new sequence, a delayed one keeps its own."""

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
    """Removed from this entity. The copy in the dead-letter queue is in the record before."""

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
    """A message that was stored in a topic, or in an entity that forwards, was routed on. Its copies are in the records
    before."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef


class Duplicated(msgspec.Struct, array_like=True, gc=False, tag=14):
    """A send with a known dedup key. Nothing was stored."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    dedup_key: str


class SessionTaken(msgspec.Struct, array_like=True, gc=False, tag=15):
    """A session was locked, or its lock was renewed."""

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
    """A consumer of the entity has processed this key. Written in the batch that settles the message."""

    at_ns: int
    entity: int
    sequence: int
    key: str


class Declared(msgspec.Struct, array_like=True, gc=False, tag=19):
    """An entity was created or updated. `sequence` is the last one that was ever assigned under its name."""

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
    """Discarded or purged by an operator."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    reason: str


class Moved(msgspec.Struct, array_like=True, gc=False, tag=22):
    """Moved to another entity by an operator or by a recovery rule. The copies are in the records before."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef
    delivery_count: int
    enqueued_ns: int
    target: str
    action: str


class Advanced(msgspec.Struct, array_like=True, gc=False, tag=23):
    """A named position advanced, in the batch whose progress it records. No entity: both numbers are 0."""

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
    """The same for one message, which does not exist any more."""

    at_ns: int
    entity: int
    sequence: int
    who: MessageRef


class Applied(msgspec.Struct, array_like=True, gc=False, tag=26):
    """A batch with an id was applied, in the same group: its results, to answer a copy of it. No entity: both are 0.

    `age_ns` is at least the store time of the batch's first attempt, and higher than that of every batch before.
    """

    at_ns: int
    entity: int
    sequence: int
    batch_id: str
    age_ns: int
    results: list[object]


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
    | Applied
)


class SavedEntry(msgspec.Struct, array_like=True, gc=False):
    """A message as a snapshot stores it, without its data."""

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
    ends_with_process: bool = False


class SavedSession(msgspec.Struct, array_like=True, gc=False):
    """`stated_ns` is when the state was set; a store of an earlier version has 0 here."""

    session_id: str
    state: bytes | None
    token: bytes | None
    until_ns: int
    consumer: str = ""
    stated_ns: int = 0
