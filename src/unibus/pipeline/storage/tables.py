"""The tables of a lake: their columns, and how rows of one key become one row.

Rows of an additive table are parts: several may have the same key, and whoever reads adds them up as `LakeTable.adds`
says. That is what makes a batch cheap: it appends its own parts and looks at no older ones. Compaction adds up for
good.

To change a table: append columns that may be null. An older lake is read as if it had them (see delta.py).
"""

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

MOMENT: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()
_RANGE: Final = pa.struct(
    [
        ("domain", _TEXT),
        ("after", _NUMBER),
        ("up_to", _NUMBER),
        ("events", _NUMBER),
        ("place", _TEXT),
        ("tail", _NUMBER),
    ]
)


def _columns(*named: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in named])


@dataclass(frozen=True)
class LakeTable:
    name: str
    schema: pa.Schema
    adds: dict[str, str] = field(default_factory=dict)
    """By column: sum, min or max. The others are the key. Empty: a row is what it is."""
    moment: str = ""
    """The column that tells how old a row is."""
    partition: str = ""
    few: tuple[str, ...] = ()
    """Columns that repeat themselves, so that a dictionary is worth its while."""

    @property
    def keys(self) -> list[str]:
        return [name for name in self.schema.names if name not in self.adds]

    def stored(self) -> pa.Schema:
        """What is in the files: the partition is in their names only."""
        return pa.schema([each for each in self.schema if each.name != self.partition])


_CHANNEL: Final = (("domain", _TEXT), ("channel", _TEXT), ("channel_key", _NUMBER))
_FEW: Final = ("domain", "channel", "channel_key")

MESSAGES: Final = LakeTable(
    "messages",
    _columns(
        ("open", pa.bool_()),
        *_CHANNEL,
        ("sequence", _NUMBER),
        ("message_id", _TEXT),
        ("correlation_id", _TEXT),
        ("trace_id", _TEXT),
        ("session_id", _TEXT),
        ("size", _NUMBER),
        ("state", _TEXT),
        ("outcome", _TEXT),
        ("reason", _TEXT),
        ("signature", _TEXT),
        ("consumer", _TEXT),
        ("delivery_count", pa.int32()),
        ("enqueued_at", MOMENT),
        ("first_delivered_at", MOMENT),
        ("due_at", MOMENT),
        ("last_at", MOMENT),
        ("last_kind", _TEXT),
        ("last_seq", _NUMBER),
        ("was_deferred", pa.bool_()),
    ),
    moment="last_at",
    partition="open",
    few=(*_FEW, "size", "state", "outcome", "reason", "signature", "consumer", "delivery_count", "last_kind"),
)
"""One row per message. Closed: what its last event told, `outcome` is how it ended and `last_at` when. Open: where it
stands, see jobs/opened.py; `due_at` is when its lock ends, or when it becomes visible."""

CHANNEL_MINUTE: Final = LakeTable(
    "channel_minute",
    _columns(
        *_CHANNEL, ("minute", MOMENT), ("kind", _TEXT), ("kind_code", pa.int8()), ("n", _NUMBER), ("bytes", _NUMBER)
    ),
    adds={"n": "sum", "bytes": "sum"},
    moment="minute",
    few=(*_FEW, "minute", "kind", "kind_code"),
)
"""Every event is counted once. `bytes` are those of the messages that the events were about."""

LATENCY_HIST: Final = LakeTable(
    "latency_hist",
    _columns(
        *_CHANNEL,
        ("minute", MOMENT),
        ("outcome", _TEXT),
        ("measure", _TEXT),
        ("bucket", pa.int16()),
        ("n", _NUMBER),
        ("sum_us", _NUMBER),
        ("max_us", _NUMBER),
    ),
    adds={"n": "sum", "sum_us": "sum", "max_us": "max"},
    moment="minute",
    few=(*_FEW, "minute", "outcome", "measure", "bucket"),
)
"""How long messages took that ended in this minute. `measure`: waiting (until first delivered), total. For buckets see
histogram.py."""

FAILURES: Final = LakeTable(
    "failures",
    _columns(
        *_CHANNEL,
        ("kind", _TEXT),
        ("reason", _TEXT),
        ("signature", _TEXT),
        ("hour", MOMENT),
        ("n", _NUMBER),
        ("first_at", MOMENT),
        ("last_at", MOMENT),
        ("sample_message_id", _TEXT),
    ),
    adds={"n": "sum", "first_at": "min", "last_at": "max", "sample_message_id": "max"},
    moment="hour",
    few=(*_FEW, "kind", "reason", "signature", "hour"),
)
"""dead_lettered, expired, and returned: each attempt that came to nothing."""

TRACES: Final = LakeTable(
    "traces",
    _columns(
        ("id", _TEXT),
        ("id_kind", _TEXT),
        *_CHANNEL,
        ("first_at", MOMENT),
        ("last_at", MOMENT),
        ("events", _NUMBER),
        ("messages", _NUMBER),
        ("failed", _NUMBER),
    ),
    adds={"first_at": "min", "last_at": "max", "events": "sum", "messages": "sum", "failed": "sum"},
    moment="last_at",
    few=(*_FEW, "id_kind", "events", "messages", "failed"),
)
"""Where the messages of one trace id, or of one correlation id, went. `id_kind`: trace, correlation."""

CHANNELS: Final = LakeTable("channels", _columns(*_CHANNEL, ("first_batch", _NUMBER)), few=("domain",))

QUARANTINE: Final = LakeTable(
    "quarantine",
    _columns(
        ("domain", _TEXT),
        ("first", _NUMBER),
        ("last", _NUMBER),
        ("file", _TEXT),
        ("reason", _TEXT),
        ("detail", _TEXT),
        ("at", MOMENT),
        ("batch", _NUMBER),
    ),
)
"""Ranges of history of which nothing was counted. `reason`: gap (the store forgot it), gone (no segment has it any
more), missing, size, crc, unreadable, schema."""

BATCHES: Final = LakeTable(
    "batches",
    _columns(
        ("number", _NUMBER),
        ("at", MOMENT),
        ("seconds", pa.float64()),
        ("events", _NUMBER),
        ("closed", _NUMBER),
        ("quarantined", _NUMBER),
        ("ranges", pa.list_(_RANGE)),
    ),
    moment="at",
)
"""One row per batch, and the last table that a batch writes. `ranges` has every domain that the lake knows."""

TABLES: Final[dict[str, LakeTable]] = {
    each.name: each
    for each in (MESSAGES, CHANNEL_MINUTE, LATENCY_HIST, FAILURES, TRACES, CHANNELS, QUARANTINE, BATCHES)
}
