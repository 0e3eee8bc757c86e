"""failures: failed messages and deliveries by channel, reason, signature and hour."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.jobs.channel_minutes import with_moment
from unibus.pipeline.jobs.names import codes_of, kind_names, with_names
from unibus.pipeline.storage.tables import FAILURES

FAILED: Final = frozenset({"dead_lettered", "expired", "returned"})
_FAILED: Final = codes_of(FAILED)
_COLUMNS: Final = ("channel_key", "kind_code", "reason", "signature", "ts", "message_id")
HOUR_US: Final = 3_600_000_000


def failures_of(events: pa.Table) -> pa.Table:
    """Parts: channel_key, kind_code, reason, signature, hour (as a number), n, first_at, last_at, sample_message_id."""
    failed = events.select(_COLUMNS).filter(pc.is_in(events["kind_code"], _FAILED))
    rows = pa.table(
        {
            "channel_key": failed["channel_key"],
            "kind_code": failed["kind_code"],
            "reason": failed["reason"].cast(pa.string()),
            "signature": failed["signature"].cast(pa.string()),
            "hour": pc.divide(failed["ts"].cast(pa.int64()), HOUR_US),
            "n": pa.repeat(1, failed.num_rows),
            "first_at": failed["ts"],
            "last_at": failed["ts"],
            "sample_message_id": failed["message_id"],
        }
    )
    return added_up(rows, FAILURES.adds)


def failure_rows(parts: pa.Table, names: pa.Table) -> pa.Table:
    """The rows of the table."""
    rows = with_names(parts, names).append_column("kind", kind_names(parts["kind_code"]))
    return with_moment(rows, "hour", HOUR_US).select(FAILURES.schema.names).cast(FAILURES.schema)
