"""Events and captured rows in one form, to compare them."""

from collections.abc import Iterable

import pyarrow as pa

from unibus.capture import schema
from unibus.capture.event_source import EventSource
from unibus.core.lifecycle.events import Event


def rows_of(events: Iterable[Event]) -> list[dict[str, object]]:
    return plain(schema.table_of(list(events)))


def plain(table: pa.Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.to_pylist()
    for row in found:
        attrs = row["attrs"]
        row["attrs"] = dict(attrs) if attrs is not None else None  # type: ignore[call-overload]
    return found


def read_all(source: EventSource, after: int = 0, up_to: int = 1 << 60) -> list[dict[str, object]]:
    batches = [batch for piece in source.pieces(after, up_to) for batch in source.read(piece)]
    return plain(pa.Table.from_batches(batches, schema.EVENTS))
