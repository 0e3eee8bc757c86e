"""What a task does: the rows of its slice, as the Arrow batches that Spark takes without another look.

Everything here runs on an executor, which knows a source by its place only. A segment is checked as a whole before its
first row is given: what was given cannot be taken back.

    mode=fail         the first damaged segment ends the query, and is named
    mode=quarantine   its rows are left out; a note of it is written, and a warning
    mode=permissive   every row that can still be read is given; a warning
"""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import BODIES
from unibus.capture.segments import check
from unibus.capture.sources import CaptureSource, EventSource, Piece, open_source
from unibus.errors import CaptureDamaged
from unibus.pipeline.connector.filters import Wanted
from unibus.pipeline.connector.options import FAIL, QUARANTINE
from unibus.pipeline.connector.slices import Slice, check_missing

log = logging.getLogger("unibus")

BODY_COLUMNS: Final = ("content_type", "headers", "body")


@dataclass(frozen=True)
class Task:
    """How a slice is read: data only, made by the planner. `schema` is what Spark expects, as Arrow has it."""

    schema: pa.Schema
    wanted: Wanted
    mode: str
    quarantine: str
    fail_on_data_loss: bool

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        for where, piece in part.parts:
            source = open_source(where)
            try:
                check_missing(source, piece.first - 1, piece.last, self.fail_on_data_loss)
                for sound in self._sound(source, piece):
                    yield from self._rows(source, sound)
            finally:
                source.close()

    def _rows(self, source: EventSource, piece: Piece) -> Iterator[pa.RecordBatch]:
        names = set(self.schema.names)
        bodies = names & set(BODY_COLUMNS)
        columns = (names - bodies) | self.wanted.columns() | ({"seq"} if bodies else set())
        matched = Bodies(source.read_bodies(piece)) if bodies else None
        try:
            # A reader needs one column at least to know how many rows there are.
            for batch in source.read(piece, sorted(columns) or ["seq"]):
                rows = self.wanted.of(batch)
                if rows.num_rows:
                    yield self._shaped(rows if matched is None else matched.beside(rows))
        except CaptureDamaged as error:
            if self.mode in (FAIL, QUARANTINE):
                raise
            log.warning("%s; the rest of it is left out", error)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With exactly the types and nullabilities of Spark's schema: it compares them."""
        arrays = [_cast(batch.column(field.name), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # Damage

    def _sound(self, source: EventSource, piece: Piece) -> Iterator[Piece]:
        """The parts of a piece that may be read."""
        if not isinstance(source, CaptureSource):
            yield piece
            return
        for segment in source.segments(piece.first - 1, piece.last):
            damage = check(source.where, segment)
            if damage is not None and self.mode == FAIL:
                raise CaptureDamaged(damage.what, f"{damage.hint}; or set mode to quarantine", damage.reason)
            if damage is not None and self.mode == QUARANTINE:
                self._put_aside(source, segment.file, damage)
                continue
            if damage is not None:
                log.warning("%s; it is read as far as that is possible", damage)
            first, last = max(piece.first, segment.first), min(piece.last, segment.last)
            yield Piece(
                first, last, min(segment.rows, last - first + 1), piece.bytes, source.manifest().path(segment.file)
            )

    def _put_aside(self, source: CaptureSource, file: str, damage: CaptureDamaged) -> None:
        """One note per segment, however often it is met."""
        folder = self.quarantine or os.path.join(source.where, "quarantine")
        path = os.path.join(folder, f"{source.domain}-{os.path.basename(file)}.json")
        note = {
            "domain": source.domain,
            "source": source.where,
            "file": file,
            "reason": damage.reason,
            "what": damage.what,
        }
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as written:
                json.dump(note, written)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError as error:
            log.warning("no note can be written to %s: %s", folder, error)
        log.warning("%s; its rows are left out, see %s", damage, path)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type.equals(wanted) else column.cast(wanted)


class Bodies:
    """Bodies beside their events: both come in the order of seq, so that no more than a batch of each is held."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held = pa.table({field.name: pa.array([], field.type) for field in BODIES})
        self._more = True

    def beside(self, events: pa.RecordBatch) -> pa.RecordBatch:
        last = events["seq"][-1].as_py()
        while self._more and (not self._held.num_rows or self._held["seq"][-1].as_py() < last):
            batch = next(self._batches, None)
            self._more = batch is not None
            if batch is not None:
                self._held = pa.concat_tables([self._held, pa.Table.from_batches([batch]).cast(self._held.schema)])
        found = pc.index_in(events["seq"], self._held["seq"].combine_chunks())
        for name in BODY_COLUMNS:
            column = self._held[name].combine_chunks().take(found)
            events = events.append_column(name, column)
        self._held = self._held.filter(pc.greater(self._held["seq"], last))
        return events
