"""Compaction: merges neighbouring small segments into few large ones, which readers open faster.

Frequent sealing makes small segments. A running capture merges neighbours in two cases:

- NEIGHBOURS of them, or more, make one of the next size class, which has NEIGHBOURS times as many rows. So each row is
  copied at most once for each size class, however long the capture runs, and there are few classes.
- At least FILLING of them fill a segment, and none of them is most of it. A full segment is not merged again.

`unibus capture --compact` merges everything that fits into one segment.

Retention removes whole segments, so a segment must not cover a long time: its old events would be kept because of its
new ones. No merged segment covers more than one part in SHARE of the retention time.

The manifest makes the replacement atomic (`ManifestWriter.replace`). The old files are kept for a grace period, because
readers may have them open.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from unibus.capture.manifest import Segment
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation, policy_of

NEIGHBOURS: Final = 32
"""How many neighbours a running capture merges, and the factor between two size classes."""

FILLING: Final = 4
"""How many neighbours are enough if together they fill a segment."""

SHARE: Final = 8
"""A merged segment covers at most this fraction (one in SHARE) of its retention time."""

_SIZES: Final = 6
_ANY_SIZE: Final = 1 << 62


def compact(writer: SegmentWriter, roll: Rotation, by_hand: bool = False) -> int:
    """Merge what fits; return by how many the number of segments fell. CaptureDamaged before anything is changed."""
    manifest = writer.manifest
    fewer = 0
    for run in worthwhile(manifest.segments, roll, by_hand, policy_of(manifest.about)):
        # One run after the other, each atomic: a crash in between leaves some runs merged and the others as they were.
        writer.join(run)
        fewer += len(run) - 1
    return fewer


class SegmentRun:
    """Neighbours that fit into one segment."""

    def __init__(self, roll: Rotation, policy: Policy) -> None:
        self.segments: list[Segment] = []
        self.rows = self.bytes = 0
        self.is_closed = False
        """Whether the next neighbour cannot fit at any time. A span that only the bodies' shorter retention forbids may
        fit later, when those bodies are removed."""
        self._roll = roll
        self._policy = policy
        self._since_us = self._until_us = 0
        self._has_bodies = False

    def takes(self, segment: Segment) -> bool:
        """Add the segment if it fits; the first one always does."""
        rows, size = self.rows + segment.rows, self.bytes + _size(segment)
        has_bodies = self._has_bodies or segment.bodies is not None
        since_us, until_us = min(segment.from_us, segment.newest_us), segment.newest_us
        # A single segment may be larger than the limits: they apply to what is merged.
        if self.segments:
            since_us, until_us = min(self._since_us, since_us), max(self._until_us, until_us)
            span_us = until_us - since_us
            full = rows > self._roll.rows or size > self._roll.bytes
            self.is_closed = full or span_us > _span_us(self._policy, False)
            if self.is_closed or span_us > _span_us(self._policy, has_bodies):
                return False
        self.segments.append(segment)
        self.rows, self.bytes, self._has_bodies = rows, size, has_bodies
        self._since_us, self._until_us = since_us, until_us
        return True

    def is_worthwhile(self, next_size: int) -> bool:
        if len(self.segments) >= NEIGHBOURS and self.rows >= next_size:
            return True
        return self.is_closed and len(self.segments) >= FILLING and not self._is_mostly_one()

    def _is_mostly_one(self) -> bool:
        """Whether one segment is more than half of the run: it would be copied repeatedly to add a little."""
        largest = max(each.rows for each in self.segments), max(_size(each) for each in self.segments)
        return 2 * largest[0] > self.rows or 2 * largest[1] > self.bytes


def worthwhile(
    segments: Sequence[Segment], roll: Rotation, by_hand: bool, policy: Policy | None = None
) -> list[list[Segment]]:
    """Runs of neighbours to merge: of the smallest size class that has any; with `by_hand` two of any size."""
    policy = policy or Policy()
    if by_hand:
        return [run.segments for run in _runs(segments, roll, policy, _ANY_SIZE) if len(run.segments) > 1]
    for next_size in [NEIGHBOURS**size for size in range(1, _SIZES)]:
        found = [run.segments for run in _runs(segments, roll, policy, next_size) if run.is_worthwhile(next_size)]
        if found:
            return found
    return []


def _runs(segments: Sequence[Segment], roll: Rotation, policy: Policy, rows_max: int) -> Iterator[SegmentRun]:
    """Contiguous neighbours with fewer than `rows_max` rows each, as many as fit into one segment."""
    run = SegmentRun(roll, policy)
    last = 0
    for segment in segments:
        # A gap ends a run: a merged segment covers one contiguous range.
        follows, last = segment.first == last + 1, segment.last
        small = segment.rows < rows_max
        if follows and small and run.takes(segment):
            continue
        yield run
        run = SegmentRun(roll, policy)
        if small:
            run.takes(segment)
    yield run


def _size(segment: Segment) -> int:
    return segment.bytes + (segment.bodies.bytes if segment.bodies else 0)


def _span_us(policy: Policy, has_bodies: bool) -> float:
    """The longest time that a merged segment may cover."""
    kept = [policy.keep_s, policy.bodies_keep_s if has_bodies else None]
    return min([each for each in kept if each is not None], default=float("inf")) * 1e6 / SHARE
