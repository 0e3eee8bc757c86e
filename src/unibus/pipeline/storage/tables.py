"""The tables of a lake: their columns, and how rows with the same key are combined.

An additive table may have several rows with the same key, and a reader combines them as `LakeTable.adds` says. So a
batch is cheap: it appends its rows and reads no older ones. Compaction combines the rows on disk.

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
    """By column: sum, min or max. The other columns are the key. Empty: the table is not additive."""
    moment: str = ""
    """The column with the age of a row, for retention; "" if rows are never removed."""
    partition: str = ""
    few: tuple[str, ...] = ()
    """Columns with few distinct values, which are stored with a dictionary."""

    @property
    def keys(self) -> list[str]:
        return [name for name in self.schema.names if name not in self.adds]

    def stored(self) -> pa.Schema:
        """The columns in the files: the partition is only in their paths."""
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
"""One row per message. Closed: from its last event; `outcome` is how it ended and `last_at` when. Open: its current
state, see jobs/open_messages.py; `due_at` is when its lock ends, or when it becomes visible."""

CHANNEL_MINUTE: Final = LakeTable(
    "channel_minute",
    _columns(
        *_CHANNEL, ("minute", MOMENT), ("kind", _TEXT), ("kind_code", pa.int8()), ("n", _NUMBER), ("bytes", _NUMBER)
    ),
    adds={"n": "sum", "bytes": "sum"},
    moment="minute",
    few=(*_FEW, "minute", "kind", "kind_code"),
)
"""Every event is counted once. `bytes` is the size of the messages of these events."""

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
"""How long the messages took that ended in this minute. `measure`: waiting (until the first delivery), total. For
buckets see histogram.py."""

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
"""Events dead_lettered, expired and returned: each failed delivery, and each message that failed in the end."""

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
"""The channels of the messages of one trace id, or of one correlation id. `id_kind`: trace, correlation."""

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
"""Ranges of history that were not counted. `reason`: gap (the store pruned it), gone (no segment has it any more),
missing, size, crc, unreadable, schema."""

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
"""One row per batch; the last table that a batch commits. `ranges` has every domain of the lake."""

TABLES: Final[dict[str, LakeTable]] = {
    each.name: each
    for each in (MESSAGES, CHANNEL_MINUTE, LATENCY_HIST, FAILURES, TRACES, CHANNELS, QUARANTINE, BATCHES)
}
