"""latency_hist: how long messages took, by the minute in which they ended.

The last event of a message has the times when it was enqueued and first delivered, so no join of events is needed. Last
events without these times (cancelled, routed, purged) are not counted; the waiting time counts only delivered messages.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import TERMINAL
from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.jobs.channel_minutes import MINUTE_US, with_moment
from unibus.pipeline.jobs.names import codes_of, kind_names, with_names
from unibus.pipeline.storage.histogram import buckets_of
from unibus.pipeline.storage.tables import LATENCY_HIST

WAITING: Final = "waiting"
TOTAL: Final = "total"
_MEASURES: Final = pa.array([WAITING, TOTAL])
_ENDS: Final = codes_of(TERMINAL)
_COLUMNS: Final = ("channel_key", "kind_code", "ts", "enqueued_us", "first_delivered_us")


def latencies_of(events: pa.Table) -> pa.Table:
    """Parts: channel_key, minute (as a number), kind_code, measure (0, 1), bucket, n, sum_us, max_us."""
    is_timed = pc.and_(pc.is_in(events["kind_code"], _ENDS), pc.is_valid(events["enqueued_us"]))
    ended = events.select(_COLUMNS).filter(is_timed)
    delivered = ended.filter(pc.is_valid(ended["first_delivered_us"]))
    return pa.concat_tables(
        [_histogram(delivered, 0, delivered["first_delivered_us"]), _histogram(ended, 1, ended["ts"].cast(pa.int64()))]
    )


def _histogram(ended: pa.Table, measure: int, until: pa.ChunkedArray) -> pa.Table:
    took = np.maximum(pc.subtract(until, ended["enqueued_us"]).to_numpy(), 0)  # A clock may have been set back.
    rows = pa.table(
        {
            "channel_key": ended["channel_key"],
            "minute": pc.divide(ended["ts"].cast(pa.int64()), MINUTE_US),
            "kind_code": ended["kind_code"],
            "measure": pa.repeat(pa.scalar(measure, pa.int8()), ended.num_rows),
            "bucket": pa.array(buckets_of(took)),
            "n": pa.repeat(1, ended.num_rows),
            "sum_us": pa.array(took),
            "max_us": pa.array(took),
        }
    )
    return added_up(rows, LATENCY_HIST.adds)


def latency_rows(parts: pa.Table, names: pa.Table) -> pa.Table:
    """The rows of the table."""
    measures = [pa.DictionaryArray.from_arrays(chunk, _MEASURES) for chunk in parts["measure"].chunks]
    rows = parts.set_column(
        parts.column_names.index("measure"),
        "measure",
        pa.chunked_array(measures, type=pa.dictionary(pa.int8(), pa.string())),
    )
    rows = with_names(rows, names).append_column("outcome", kind_names(parts["kind_code"]))
    return with_moment(rows, "minute", MINUTE_US).select(LATENCY_HIST.schema.names).cast(LATENCY_HIST.schema)
