"""Closed messages: the row is made from the last event alone, so no join of events is needed.

Three kinds of last event do not have the time when the message was enqueued (cancelled, routed, purged): there
`enqueued_at` is null. A scheduled message that got another sequence when it was activated is closed under its new
sequence only. A message that was deleted with its channel has no last event: see `dropped` in open_messages.py.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import STATES, TERMINAL
from unibus.pipeline.jobs.names import codes_of, kind_names
from unibus.pipeline.storage.tables import MESSAGES, MOMENT

_ENDS: Final = codes_of(TERMINAL)
_STATE: Final = pa.array([STATES["completed"]])
_SAME: Final = (
    *("domain", "channel", "channel_key", "sequence", "message_id", "correlation_id", "trace_id", "session_id"),
    *("size", "reason", "signature", "consumer", "delivery_count"),
)


def closed_of(events: pa.Table) -> pa.Table:
    """The rows of the table, with repeated texts as dictionaries."""
    ended = events.filter(pc.is_in(events["kind_code"], _ENDS))
    kinds = kind_names(ended["kind_code"])
    columns = {
        **{name: ended[name] for name in _SAME},
        "state": pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), ended.num_rows), _STATE),
        "outcome": kinds,
        "enqueued_at": ended["enqueued_us"].cast(MOMENT),
        "first_delivered_at": ended["first_delivered_us"].cast(MOMENT),
        "due_at": pa.nulls(ended.num_rows, MOMENT),
        "last_at": ended["ts"],
        "last_kind": kinds,
        "last_seq": ended["seq"],
        "was_deferred": pa.nulls(ended.num_rows, pa.bool_()),
    }
    return pa.table({name: columns[name] for name in MESSAGES.stored().names})
