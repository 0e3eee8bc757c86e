"""Compaction: few large segments in place of many small ones, for those who read them.

Segments are small where they are sealed often. A capture puts neighbours together by itself in two cases:

- NEIGHBOURS of them, or more, make one of the next size, which has NEIGHBOURS times as many rows. Each row is copied
  once for each size then, however long it goes on: there are few sizes.
- A few of them fill a segment, none of which is most of it. That one is not touched again.

By hand everything is put together that fits into one segment.

Retention takes whole segments away, so one must not reach over a long time: what it holds at its old end would stay
because of its new end. None is made that reaches over more than a SHARE of the time for which it is kept.

The manifest decides at which moment the new one counts (`ManifestWriter.replace`), and the old files stay for a while.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from unibus.capture.manifest import Segment
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation, policy_of

NEIGHBOURS: Final = 32
"""How many there have to be before a capture puts them together by itself, and how much larger the next size is."""

FILLING: Final = 4
"""So many are enough where they fill a segment."""

SHARE: Final = 8
"""Of the time for which it is kept a segment that was put together reaches over one part in so many at most."""

_SIZES: Final = 6
_ANY_SIZE: Final = 1 << 62


def compact(writer: SegmentWriter, roll: Rotation, by_hand: bool = False) -> int:
    """Put together what fits. Gives how many segments are fewer now. CaptureDamaged before anything is lost."""
    manifest = writer.manifest
    fewer = 0
    for run in worthwhile(manifest.segments, roll, by_hand, policy_of(manifest.about)):
        writer.join(run)
        fewer += len(run) - 1
    return fewer


class SegmentRun:
    """Neighbours that fit into one segment."""

    def __init__(self, roll: Rotation, policy: Policy) -> None:
        self.segments: list[Segment] = []
        self.rows = self.bytes = 0
        self.is_closed = False
        """Whether the next neighbour did not fit, and never will: it is not only that bodies go earlier."""
        self._roll = roll
        self._policy = policy
        self._since_us = self._until_us = 0
        self._has_bodies = False

    def takes(self, segment: Segment) -> bool:
        """Add it, unless it does not fit. One fits always."""
        rows, size = self.rows + segment.rows, self.bytes + _size(segment)
        has_bodies = self._has_bodies or segment.bodies is not None
        since_us, until_us = min(segment.from_us, segment.newest_us), segment.newest_us
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
        """It would be copied for the sake of little, and that again and again."""
        largest = max(each.rows for each in self.segments), max(_size(each) for each in self.segments)
        return 2 * largest[0] > self.rows or 2 * largest[1] > self.bytes


def worthwhile(
    segments: Sequence[Segment], roll: Rotation, by_hand: bool, policy: Policy | None = None
) -> list[list[Segment]]:
    """Neighbours to put together: the smallest first, and by hand two of any size."""
    policy = policy or Policy()
    if by_hand:
        return [run.segments for run in _runs(segments, roll, policy, _ANY_SIZE) if len(run.segments) > 1]
    for next_size in [NEIGHBOURS**size for size in range(1, _SIZES)]:
        found = [run.segments for run in _runs(segments, roll, policy, next_size) if run.is_worthwhile(next_size)]
        if found:
            return found
    return []


def _runs(segments: Sequence[Segment], roll: Rotation, policy: Policy, rows_max: int) -> Iterator[SegmentRun]:
    """Neighbours of fewer rows than that, without a gap between them, as many as fit."""
    run = SegmentRun(roll, policy)
    last = 0
    for segment in segments:
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
    """Over which time a segment may reach."""
    kept = [policy.keep_s, policy.bodies_keep_s if has_bodies else None]
    return min([each for each in kept if each is not None], default=float("inf")) * 1e6 / SHARE
