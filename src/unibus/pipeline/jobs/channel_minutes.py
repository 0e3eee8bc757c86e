"""channel_minute: every event counted once, by channel, minute and kind."""

import pyarrow as pa
import pyarrow.compute as pc

from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.jobs.names import kind_names, with_names
from unibus.pipeline.storage.tables import CHANNEL_MINUTE, MOMENT

MINUTE_US = 60_000_000


def minutes_of(events: pa.Table) -> pa.Table:
    """Parts: channel_key, minute (as a number), kind_code, n, bytes."""
    rows = pa.table(
        {
            "channel_key": events["channel_key"],
            "minute": pc.divide(events["ts"].cast(pa.int64()), MINUTE_US),
            "kind_code": events["kind_code"],
            "n": pa.repeat(1, events.num_rows),
            "bytes": events["size"].fill_null(0),
        }
    )
    return added_up(rows, CHANNEL_MINUTE.adds)


def minute_rows(parts: pa.Table, names: pa.Table) -> pa.Table:
    """The rows of the table."""
    rows = with_names(parts, names).append_column("kind", kind_names(parts["kind_code"]))
    return with_moment(rows, "minute", MINUTE_US).select(CHANNEL_MINUTE.schema.names).cast(CHANNEL_MINUTE.schema)


def with_moment(rows: pa.Table, name: str, unit_us: int) -> pa.Table:
    """Convert a column that counts units to a timestamp."""
    moments = pc.multiply(rows[name], unit_us).cast(MOMENT)
    return rows.set_column(rows.column_names.index(name), name, moments)
