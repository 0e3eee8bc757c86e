"""Compaction: few large segments in place of many small ones, for those who read them.

Segments are small where they are sealed often. A capture puts neighbours together by itself when there are NEIGHBOURS
of about one size, or when some fill a segment; what comes out of that are neighbours again later. So a row is copied a
few times only, however long it goes on. By hand everything is put together that fits into one segment.

The manifest decides at which moment the new one counts (`ManifestWriter.replace`), and the old files stay for a while.
"""

import itertools
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from unibus.capture.manifest import Segment
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Roll

NEIGHBOURS: Final = 32
"""How many there have to be before a capture puts them together by itself."""

FILLING: Final = 4
"""So many are enough where they fill a segment: it will not be touched again."""

_TIERS: Final = 6
_ANY_SIZE: Final = 1 << 62


def compact(writer: SegmentWriter, roll: Roll, by_hand: bool = False) -> int:
    """Put together what fits. Gives how many segments are fewer now. CaptureDamaged before anything is lost."""
    fewer = 0
    for run in worthwhile(writer.manifest.segments, roll, by_hand):
        table = pa.concat_tables([writer.read(each) for each in run])
        bodies = [writer.read_bodies(each) for each in run if each.bodies is not None]
        writer.replace(run, table, pa.concat_tables(bodies) if bodies else None)
        fewer += len(run) - 1
    return fewer


def worthwhile(segments: list[Segment], roll: Roll, by_hand: bool) -> list[list[Segment]]:
    """Neighbours to put together: the smallest first, and by hand two of any size."""
    sizes = [_ANY_SIZE] if by_hand else [NEIGHBOURS**tier for tier in range(1, _TIERS)]
    for rows_max in sizes:
        found = [
            run
            for run, full in _runs(segments, roll, rows_max)
            if len(run) >= (2 if by_hand else FILLING if full else NEIGHBOURS)
        ]
        if found:
            return found
    return []


def _runs(segments: list[Segment], roll: Roll, rows_max: int) -> Iterator[tuple[list[Segment], bool]]:
    """Neighbours of at most so many rows, without a gap between them, as many as fit into one segment; and whether it
    is full by that."""
    run: list[Segment] = []
    for before, segment in itertools.pairwise([None, *segments]):
        assert segment is not None
        follows = before is not None and segment.first == before.last + 1
        small = segment.rows < rows_max
        fits = _fits([*run, segment], roll)
        if run and not (follows and small and fits):
            yield run, follows and small
            run = []
        if small:
            run.append(segment)
    yield run, False


def _fits(run: list[Segment], roll: Roll) -> bool:
    size = sum(each.bytes + (each.bodies.bytes if each.bodies else 0) for each in run)
    return sum(each.rows for each in run) <= roll.rows and size <= roll.bytes
