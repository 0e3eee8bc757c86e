"""Splits a range of history into tasks, and finds events that are missing in the range.

One task per piece, with two exceptions: a file with several row groups is read by several tasks, and small pieces share
a task, because the fixed cost of a task is that of some ten thousand rows.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from unibus.capture.event_source import EventPiece, EventSource
from unibus.capture.segments import GROUP_ROWS
from unibus.counting import counted
from unibus.errors import StoreUnavailable
from unibus.pipeline.connector.offsets import Offset

log = logging.getLogger("unibus")

TASK_ROWS_MIN: Final = 50_000
TASK_ROWS_MAX: Final = 500_000
TASKS_PER_CORE: Final = 2


class HistorySlice(InputPartition):
    """What one task reads: pieces, each with the place of its source."""

    def __init__(self, parts: tuple[tuple[str, EventPiece], ...]) -> None:
        super().__init__(parts)
        self.parts = parts


def slices_of(sources: Sequence[EventSource], start: Offset, end: Offset) -> list[HistorySlice]:
    """Tasks for (start, end]. Missing events are left out: see `missing_in`."""
    found = [
        (source.where, piece)
        for source in sources
        if source.domain in end
        for piece in source.pieces(start.get(source.domain, 0), end[source.domain])
    ]
    return list(_joined(found, _task_rows(sum(piece.rows for _, piece in found))))


def _task_rows(rows: int) -> int:
    tasks = TASKS_PER_CORE * (os.cpu_count() or 1)
    return min(max(rows // tasks, TASK_ROWS_MIN), TASK_ROWS_MAX)


def _joined(found: Iterable[tuple[str, EventPiece]], rows_wanted: int) -> Iterator[HistorySlice]:
    parts: list[tuple[str, EventPiece]] = []
    rows = 0
    for where, piece in found:
        for part in split(piece, rows_wanted):
            if parts and rows + part.rows > rows_wanted:
                yield HistorySlice(tuple(parts))
                parts, rows = [], 0
            parts.append((where, part))
            rows += part.rows
    if parts:
        yield HistorySlice(tuple(parts))


def split(piece: EventPiece, rows_wanted: int) -> list[EventPiece]:
    """A row group is decoded as a whole, so a file is cut at multiples of the usual size of a group."""
    step = max(rows_wanted, GROUP_ROWS) if piece.path else rows_wanted
    if piece.rows <= step + step // 2:
        return [piece]
    found = []
    for first in range(piece.first, piece.last + 1, step):
        last = min(first + step - 1, piece.last)
        share = (last - first + 1) / (piece.last - piece.first + 1)
        rows, size = max(round(piece.rows * share), 1), round(piece.bytes * share)
        found.append(EventPiece(first, last, rows, size, piece.path))
    return found


# What is missing


def missing_in(source: EventSource, after: int, up_to: int) -> list[tuple[int, int]]:
    """Ranges of (after, up_to] that no piece has any more."""
    found = []
    for piece in source.pieces(after, up_to):
        if piece.first > after + 1:
            found.append((after + 1, piece.first - 1))
        after = max(after, piece.last)
    if after < up_to:
        found.append((after + 1, up_to))
    return found


def check_missing(source: EventSource, after: int, up_to: int, fails: bool) -> int:
    """How many events are missing. Raises if `fails`, otherwise logs a warning."""
    missing = missing_in(source, after, up_to)
    if not missing:
        return 0
    what = f"events {_shown(missing)} of {source.domain!r} are missing in {source.where}"
    if fails:
        raise StoreUnavailable(what, "retention has removed them; set failOnDataLoss to false to skip them")
    lost = sum(last - first + 1 for first, last in missing)
    log.warning("%s: %s lost", what, counted(lost, "event is", "events are"))
    return lost


def _shown(ranges: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"{first} to {last}" for first, last in ranges[:3])
    return shown if len(ranges) <= 3 else f"{shown} and {counted(len(ranges) - 3, 'more range')}"
