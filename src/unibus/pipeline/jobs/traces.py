"""traces: which channels the messages of a trace id or of a correlation id passed, and when."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import CAME
from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.jobs.names import codes_of, with_names
from unibus.pipeline.storage.tables import TRACES

_CAME: Final = codes_of(CAME)
_FAILED: Final = codes_of(frozenset({"dead_lettered", "expired"}))
IDS: Final = {"trace": "trace_id", "correlation": "correlation_id"}


def events_with(events: pa.Table, column: str) -> pa.Table:
    """The needed columns of the events that have an id."""
    return events.select([column, "channel_key", "ts", "kind_code"]).filter(pc.is_valid(events[column]))


def traces_of(events: pa.Table, column: str) -> pa.Table:
    """Parts: id, channel_key, first_at, last_at, events, messages, failed."""
    rows = pa.table(
        {
            "id": events[column],
            "channel_key": events["channel_key"],
            "first_at": events["ts"],
            "last_at": events["ts"],
            "events": pa.repeat(1, events.num_rows),
            "messages": pc.is_in(events["kind_code"], _CAME).cast(pa.int64()),
            "failed": pc.is_in(events["kind_code"], _FAILED).cast(pa.int64()),
        }
    )
    return added_up(rows, TRACES.adds)


def trace_rows(parts: pa.Table, id_kind: str, names: pa.Table) -> pa.Table:
    """The rows of the table, with repeated names as dictionaries."""
    kinds = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), parts.num_rows), pa.array([id_kind]))
    return with_names(parts, names).append_column("id_kind", kinds).select(TRACES.schema.names)
