"""The path of one message over channels and domains, from the segments: without Spark, so that it starts at once.

The bloom filters of the segments say which row groups may have a message id; only those are read. Correlation ids and
trace ids have no filter: only their columns are read, until the rows are known.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unibus.capture.event_source import EventPiece, EventSource
from unibus.capture.schema import EVENTS
from unibus.core.lifecycle.events import Event
from unibus.errors import CaptureDamaged, StoreDamaged
from unibus.pipeline.reports.bloom import groups_that_may_hold
from unibus.pipeline.reports.request import FoundEvents

MESSAGE: Final = "message_id"
WIDER: Final = ("correlation_id", "trace_id")
EVENTS_MAX: Final = 100_000
"""More than this is not the path of one message; it would only fill the memory."""


def find_events(sources: Sequence[EventSource], wanted: str) -> FoundEvents:
    """By message id; if no event has it, by correlation id or trace id."""
    reading = Reading(wanted)
    for columns in ((MESSAGE,), WIDER):
        events = reading.events(sources, columns)
        if events:
            by = next(name for name in columns if any(getattr(each, name) == wanted for each in events))
            return FoundEvents(wanted, by, events, sorted(reading.unread))
    return FoundEvents(wanted, "", [], sorted(reading.unread))


class Reading:
    """Searches for one id. Several threads read files: Arrow releases the GIL."""

    def __init__(self, wanted: str) -> None:
        self.unread: set[str] = set()
        self._wanted = wanted

    def _pieces(self, source: EventSource) -> list[EventPiece]:
        """A damaged source is skipped, and named in `unread`."""
        try:
            return source.pieces(source.first() - 1, source.last()) if source.last() else []
        except (CaptureDamaged, StoreDamaged):
            self.unread.add(source.where)
            return []

    def events(self, sources: Sequence[EventSource], columns: Sequence[str]) -> list[Event]:
        found: list[Event] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for source in sources:
                pieces = self._pieces(source)
                files = [piece for piece in pieces if piece.path is not None]
                for table in pool.map(lambda piece: self._tried(piece, columns), files):
                    found += events_of(table)
                for piece in pieces:
                    found += self._events_in_store(source, piece, columns) if piece.path is None else []
                if len(found) > EVENTS_MAX:
                    break
        found = list({(each.domain, each.seq): each for each in found}.values())
        return sorted(found, key=lambda each: (each.ts, each.domain, each.seq))[:EVENTS_MAX]

    def _tried(self, piece: EventPiece, columns: Sequence[str]) -> pa.Table:
        """A damaged segment is skipped, and named in `unread`."""
        assert piece.path is not None
        try:
            return self._rows(piece.path, columns)
        except (pa.ArrowException, OSError, KeyError):
            self.unread.add(piece.path)
            return EVENTS.empty_table()

    def _rows(self, path: str, columns: Sequence[str]) -> pa.Table:
        with open(path, "rb") as raw, pq.ParquetFile(raw) as file:
            groups = list(range(file.metadata.num_row_groups))
            if MESSAGE in columns:
                groups = groups_that_may_hold(raw, file.metadata, MESSAGE, self._wanted)
            wanted = []
            for group in groups:
                mask = self._mask(file.read_row_group(group, columns=list(columns)))
                if pc.any(mask).as_py():
                    names = [name for name in EVENTS.names if name in file.schema_arrow.names]
                    wanted.append(file.read_row_group(group, columns=names).filter(mask))
            return pa.concat_tables(wanted) if wanted else EVENTS.empty_table()

    def _mask(self, table: "pa.Table | pa.RecordBatch") -> pa.ChunkedArray:
        masks = [pc.fill_null(pc.equal(table[name], self._wanted), False) for name in table.schema.names]
        mask = masks[0]
        for each in masks[1:]:
            mask = pc.or_(mask, each)
        return mask

    def _events_in_store(self, source: EventSource, piece: EventPiece, columns: Sequence[str]) -> Iterator[Event]:
        for batch in source.read(piece):
            mask = self._mask(batch.select(list(columns)))
            yield from events_of(pa.Table.from_batches([batch.filter(mask)]))


def events_of(table: pa.Table) -> list[Event]:
    """Rows as events of the history."""
    if not table.num_rows:
        return []
    names = [name for name in Event.__struct_fields__ if name in table.schema.names]
    converted = {name: _column(table, name) for name in names}
    return [msgspec.convert({name: converted[name][at] for name in names}, Event) for at in range(table.num_rows)]


def _column(table: pa.Table, name: str) -> list[object]:
    column = table[name]
    if name == "ts":
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    return [dict(each) if each else None for each in values] if name == "attrs" else values  # type: ignore[call-overload]
