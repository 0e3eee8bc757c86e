"""The columns of captured history, the same for every reader, and what each kind of event means for a message.

The identity of a message is (domain, channel, sequence), never its message id, which may repeat. `channel_key` is a
number for (domain, channel): grouping by a key of fixed width is fast.

What a reader has to know about each kind, taken from `core/lifecycle/state/apply.py`:

| kind | (channel, sequence) is | effect |
|---|---|---|
| sent, scheduled, copied | a new message | CAME: it is stored; for later if `scheduled`, or with attrs.visible_us |
| published | a message through an entity that stores none | nothing is stored; a `copied` that names it may follow |
| delivered, renewed, returned, deferred | a stored message | it stays stored, in the state that STATES names |
| activated | a stored message | if attrs.new_sequence differs, this key ends and the new one begins; else it stays |
| completed, cancelled, expired, dead_lettered, routed, purged, moved | a stored message | TERMINAL: it is removed |
| processed | a stored message | none: the key of a handler's effect, stored with the settlement |
| dropped | the entity's last sequence, no message | ends every open message of the channel |
| duplicate | the entity's last sequence, no message | nothing is stored; message_id is that of the rejected message |
| session_taken, session_left, session_stated, declared | the entity's last sequence, no message | none |
| pruned | a bound: up to this sequence | none: removed messages up to here cannot be replayed any more |
| forgotten | a message that is removed already | none |
| advanced | 0, and channel is '' | none: a named position advanced, or was deleted (without attrs.position) |
| applied | 0, and channel is '' | none: the group before it is the batch with the id attrs.batch_id |

So STORED_KEY names the kinds whose (channel, sequence) belongs to a message that is or was stored, and a reader may
group by the key for these kinds only. An entity that is deleted and declared again continues its sequences, so a key is
never used twice. When a message is dead-lettered or moved, its copy comes first: `copied` in the new entity, then
`dead_lettered` or `moved` in the old one.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from unibus.core.lifecycle.events import Event

_TEXTS: Final = pa.map_(pa.string(), pa.string())

EVENTS: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("domain", pa.string(), nullable=False),
        pa.field("channel", pa.string(), nullable=False),
        pa.field("channel_key", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("kind_code", pa.int8(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("message_id", pa.string()),
        pa.field("correlation_id", pa.string()),
        pa.field("trace_id", pa.string()),
        pa.field("session_id", pa.string()),
        pa.field("delivery_count", pa.int32()),
        pa.field("size", pa.int64()),
        pa.field("enqueued_us", pa.int64()),
        pa.field("first_delivered_us", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("signature", pa.string()),
        pa.field("consumer", pa.string()),
        pa.field("attrs", _TEXTS),
    ]
)
"""One row for each event. Rows of a segment are sorted by seq. To change the schema, append nullable columns."""

BODIES: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("domain", pa.string(), nullable=False),
        pa.field("channel", pa.string(), nullable=False),
        pa.field("channel_key", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("message_id", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("headers", _TEXTS),
        pa.field("body", pa.binary()),
        pa.field("redacted", pa.bool_(), nullable=False),
    ]
)
"""One row for each event that carries a body: sent, scheduled, published. A copy has no row; `copied` names its source
by attrs.source_seq, or by attrs.source and attrs.source_sequence."""

UNKNOWN: Final = 0
KIND_CODES: Final[dict[str, int]] = {
    "sent": 1,
    "scheduled": 2,
    "copied": 3,
    "published": 4,
    "delivered": 5,
    "renewed": 6,
    "returned": 7,
    "deferred": 8,
    "activated": 9,
    "completed": 10,
    "cancelled": 11,
    "expired": 12,
    "dead_lettered": 13,
    "routed": 14,
    "purged": 15,
    "moved": 16,
    "dropped": 17,
    "duplicate": 18,
    "processed": 19,
    "session_taken": 20,
    "session_left": 21,
    "session_stated": 22,
    "declared": 23,
    "advanced": 24,
    "pruned": 25,
    "forgotten": 26,
    "applied": 27,
}
"""Append only: the numbers are stored in files. 0 is a kind that the writer did not know."""

CAME: Final = frozenset({"sent", "scheduled", "copied"})
"""A message is stored at (channel, sequence). `activated` begins one too, at attrs.new_sequence, where that differs."""

TERMINAL: Final = frozenset({"completed", "cancelled", "expired", "dead_lettered", "routed", "purged", "moved"})
"""The message at (channel, sequence) is removed. It can end in three more ways: `activated` with another new_sequence
(renamed), `dropped` (every message of the channel), and inside a gap, where its end is unknown."""

RENAMES: Final = "activated"
DROPS: Final = "dropped"

STATES: Final[dict[str, str]] = {
    "sent": "active",
    "scheduled": "scheduled",
    "copied": "active",
    "delivered": "locked",
    "renewed": "locked",
    "returned": "active",
    "deferred": "deferred",
    "activated": "active",
    **dict.fromkeys(sorted(TERMINAL), "gone"),
}
"""The state of a message after an event. Two kinds need their attrs: `copied` and `returned` with visible_us make it
scheduled; and after `returned` a message that was deferred before is deferred, whatever the attrs are."""

STORED_KEY: Final = frozenset({*STATES, "processed"})
"""Kinds whose (channel, sequence) is the key of a stored message."""


@lru_cache(maxsize=65_536)
def channel_key(domain: str, channel: str) -> int:
    digest = hashlib.blake2b(f"{domain}\0{channel}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def table_of(events: Sequence[Event]) -> pa.Table:
    """Rows with the schema EVENTS. `columns.py` is faster for many changes of a store."""
    columns: dict[str, list[object]] = {
        name: [getattr(event, name) for event in events] for name in Event.__struct_fields__ if name != "attrs"
    }
    columns["attrs"] = [None if event.attrs is None else list(event.attrs.items()) for event in events]
    columns["channel_key"] = [channel_key(event.domain, event.channel) for event in events]
    columns["kind_code"] = [KIND_CODES.get(event.kind, UNKNOWN) for event in events]
    return pa.table([pa.array(columns[field.name], field.type) for field in EVENTS], schema=EVENTS)
