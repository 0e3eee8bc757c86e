"""What a task does: read the rows of its slice as Arrow batches with exactly the types that Spark expects.

Everything here runs on an executor, which opens the source by its place. A whole segment is checked before its first
row is given, with its bodies if they are wanted: a row that was given cannot be taken back.

    mode=fail         the first damaged segment fails the query; the error names it
    mode=quarantine   its rows are left out; a note is written to the quarantine, and a warning to the log
    mode=permissive   every row that can be read is given, without bodies if those are damaged; a warning in the log
"""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.event_source import EventPiece, EventSource
from unibus.capture.manifest import Segment
from unibus.capture.schema import BODIES
from unibus.capture.segments import check, check_bodies
from unibus.capture.sources import CaptureSource, open_source
from unibus.errors import CaptureDamaged
from unibus.pipeline.connector.filters import WantedHistory
from unibus.pipeline.connector.names import file_name
from unibus.pipeline.connector.offsets import SEQ_MAX
from unibus.pipeline.connector.options import FAIL, QUARANTINE
from unibus.pipeline.connector.slices import HistorySlice, check_missing
from unibus.stores.files.private import make_folder, opener

log = logging.getLogger("unibus")

BODY_COLUMNS: Final = ("content_type", "headers", "body")
_NO_BODIES: Final = pa.RecordBatch.from_pylist([], BODIES)


@dataclass(frozen=True)
class ReadTask:
    """How a slice is read: only data, created by the planner. `schema` is Spark's schema as one of Arrow."""

    schema: pa.Schema
    wanted: WantedHistory
    mode: str
    quarantine: str
    fail_on_data_loss: bool

    def read(self, part: HistorySlice) -> Iterator[pa.RecordBatch]:
        for where, piece in part.parts:
            source = open_source(where)
            try:
                check_missing(source, piece.first - 1, piece.last, self.fail_on_data_loss)
                for sound, with_bodies in self._sound(source, piece):
                    yield from self._rows(source, sound, with_bodies)
            finally:
                source.close()

    def _wants_bodies(self) -> bool:
        return not set(BODY_COLUMNS).isdisjoint(self.schema.names)

    def _rows(self, source: EventSource, piece: EventPiece, with_bodies: bool) -> Iterator[pa.RecordBatch]:
        columns = (set(self.schema.names) - set(BODY_COLUMNS)) | self.wanted.columns()
        matched = None
        if self._wants_bodies():
            columns.add("seq")
            matched = Bodies(source.read_bodies(piece) if with_bodies else iter(()))
        try:
            # At least one column is needed to know how many rows there are.
            for batch in source.read(piece, sorted(columns) or ["seq"]):
                rows = self.wanted.of(batch)
                if rows.num_rows:
                    yield from map(self._shaped, [rows] if matched is None else matched.beside(rows))
        except CaptureDamaged as error:
            if self.mode in (FAIL, QUARANTINE):
                raise
            log.warning("%s; the rest of the segment is left out", error)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With exactly the types and nullability of Spark's schema: Spark compares them."""
        arrays = [_cast(batch.column(field.name), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # Damage

    def _sound(self, source: EventSource, piece: EventPiece) -> Iterator[tuple[EventPiece, bool]]:
        """The parts of a piece that may be read, and whether their bodies may."""
        if not isinstance(source, CaptureSource):
            yield piece, True
            return
        for segment in source.segments(piece.first - 1, piece.last):
            in_events = check(source.where, segment)
            in_bodies = check_bodies(source.where, segment) if self._wants_bodies() else None
            damage = in_bodies if in_events is None else in_events
            if damage is not None and self.mode == FAIL:
                raise CaptureDamaged(damage.what, f"{damage.hint}; or set mode to quarantine", damage.reason)
            if damage is not None and self.mode == QUARANTINE:
                self._put_aside(source, segment.file, damage)
                continue
            if in_events is not None:
                log.warning("%s; it is read as far as that is possible", in_events)
            if in_bodies is not None:
                log.warning("%s; its events are given without their bodies", in_bodies)
            yield _part(source, segment, piece), in_bodies is None

    def _put_aside(self, source: CaptureSource, file: str, damage: CaptureDamaged) -> None:
        """Write one note per segment, even if several tasks find it."""
        folder = self.quarantine or os.path.join(source.where, "quarantine")
        path = os.path.join(folder, f"{file_name(source.domain)}-{os.path.basename(file)}.json")
        note = {
            "domain": source.domain,
            "source": source.where,
            "file": file,
            "reason": damage.reason,
            "what": damage.what,
        }
        try:
            make_folder(folder)
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8", opener=opener) as written:
                json.dump(note, written)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError as error:
            log.warning("the description of the damage cannot be written to %s: %s", folder, error)
        log.warning("%s; its rows are left out, see %s", damage, path)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type.equals(wanted) else column.cast(wanted)


def _part(source: CaptureSource, segment: Segment, piece: EventPiece) -> EventPiece:
    """The intersection of a piece and a segment."""
    first, last = max(piece.first, segment.first), min(piece.last, segment.last)
    return EventPiece(
        first, last, min(segment.rows, last - first + 1), piece.bytes, source.manifest().path(segment.file)
    )


class Bodies:
    """Joins bodies to their events: both are ordered by seq, so at most one batch of each is in memory.

    Events are given in parts, each with the bodies of one batch: bodies of several could exceed the size of an array.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held = _NO_BODIES
        self._last = 0

    def beside(self, events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        while events.num_rows:
            while self._last < events["seq"][0].as_py():
                self._held = next(self._batches, _NO_BODIES)
                self._last = self._held["seq"][-1].as_py() if self._held.num_rows else SEQ_MAX
            count = pc.sum(pc.less_equal(events["seq"], self._last)).as_py()
            yield self._matched(events.slice(0, count))
            events = events.slice(count)

    def _matched(self, events: pa.RecordBatch) -> pa.RecordBatch:
        found = pc.index_in(events["seq"], self._held["seq"])
        for name in BODY_COLUMNS:
            events = events.append_column(name, self._held[name].take(found))
        return events
