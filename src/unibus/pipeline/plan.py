"""The plan of a batch: which ranges of which domains it reads, and which it cannot read.

Segments are checked before the plan is made, so that a damaged one is never counted in part. The plan is durable before
anything of its batch is written.

A batch that was interrupted after its first commit is done again with the same ranges, even if there is more history
now or a damaged segment was repaired: otherwise its tables would disagree. A batch that was interrupted before its
first commit left nothing, and gets a new plan.
"""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

import msgspec

from unibus.capture.event_source import EventPiece, EventSource
from unibus.capture.segments import check
from unibus.capture.sources import CaptureSource
from unibus.errors import CaptureDamaged, LakeIncomplete, LakeMismatch
from unibus.pipeline.jobs.task import BatchWork
from unibus.pipeline.lake import PLAN, Lake
from unibus.pipeline.storage.tables import TABLES
from unibus.stores.files.disk import RealFiles, replace

Bad = Literal["quarantine", "fail"]
_CHECKERS: Final = 4


class HistoryRange(msgspec.Struct, frozen=True):
    """Of one domain: the batch handles the events in (after, up_to]. `place` is where they were read."""

    domain: str
    after: int
    up_to: int
    place: str = ""
    tail: int = 0
    """A fingerprint of the event `up_to`: shows whether a source still is the history that was read. 0: unknown."""


class Unread(msgspec.Struct, frozen=True):
    """A range that is not counted: a row of the table `quarantine`."""

    domain: str
    first: int
    last: int
    file: str
    reason: str
    detail: str = ""


class Share(msgspec.Struct, frozen=True):
    """A range that is read."""

    domain: str
    first: int
    last: int
    rows: int


class BatchPlan(msgspec.Struct, frozen=True):
    number: int
    at_us: int
    ranges: list[HistoryRange]
    shares: list[Share]
    unread: list[Unread] = []

    @property
    def events(self) -> int:
        return sum(each.rows for each in self.shares)


def load_plan(lake: str) -> BatchPlan | None:
    try:
        with open(os.path.join(lake, PLAN), "rb") as file:
            return msgspec.json.decode(file.read(), type=BatchPlan)
    except FileNotFoundError:
        return None


def save_plan(lake: str, plan: BatchPlan) -> None:
    replace(RealFiles(), os.path.join(lake, PLAN), msgspec.json.encode(plan))


def drop_plan(lake: str) -> None:
    path = os.path.join(lake, PLAN)
    if os.path.exists(path):
        os.remove(path)


def has_begun(lake: Lake, plan: BatchPlan) -> bool:
    """Whether some table has committed its batch, which is not complete."""
    return lake.done() < plan.number and any(lake.folder(name).done() >= plan.number for name in TABLES)


def last_ranges(lake: Lake) -> list[HistoryRange]:
    """The ranges of the last batch: they hold the position in each domain."""
    last = lake.last_batch()
    return [] if last is None else msgspec.convert(last["ranges"], list[HistoryRange])


def make_plan(
    number: int, before: Sequence[HistoryRange], sources: Sequence[EventSource], max_events: int, bad: Bad
) -> BatchPlan | None:
    """The plan that continues the ranges of the batch before. None if there are no new events."""
    known = {each.domain: each for each in before}
    starts = {each.domain: known.get(each.domain, HistoryRange(each.domain, 0, 0)) for each in sources}
    positions = {domain: start.up_to for domain, start in starts.items()}
    ends = {source.domain: end_of(source, starts[source.domain]) for source in sources}
    taken: dict[str, list[EventPiece]] = {source.domain: [] for source in sources}
    cut = _take(sources, positions, ends, taken, max_events)
    if cut == positions:
        return None
    ranges = [_range(source, starts[source.domain], cut[source.domain]) for source in sources]
    shares: list[Share] = []
    unread: list[Unread] = []
    for source, span in zip(sources, ranges, strict=True):
        wrong = _wrong(source, taken[source.domain], span, bad)
        unread += [*wrong, *_holes(source, taken[source.domain], span)]
        shares += _shares(source.domain, taken[source.domain], wrong)
    ranges += [msgspec.structs.replace(each, after=each.up_to) for each in before if each.domain not in positions]
    return BatchPlan(number, time.time_ns() // 1_000, ranges, shares, unread)


def end_of(source: EventSource, start: HistoryRange) -> int:
    """The last seq that can be read. LakeMismatch if it is not the history that was read before."""
    end = source.last()
    if end < start.up_to:
        raise _mismatch(
            source, f"ends at event {end}, but the lake has read {source.domain!r} up to event {start.up_to}"
        )
    if end > start.up_to and start.tail and source.tail(start.up_to) not in (0, start.tail):
        raise _mismatch(
            source, f"has a different event {start.up_to} than the one that the lake has read for {source.domain!r}"
        )
    return end


def _mismatch(source: EventSource, what: str) -> LakeMismatch:
    return LakeMismatch(
        f"{source.where} {what}",
        "it is another history with the same domain: use another lake, or name the bus: sqlite:///file.db?domain=…",
    )


def _range(source: EventSource, start: HistoryRange, up_to: int) -> HistoryRange:
    if up_to == start.up_to:
        return HistoryRange(source.domain, up_to, up_to, source.where, start.tail)
    return HistoryRange(source.domain, start.up_to, up_to, source.where, source.tail(up_to))


def _take(
    sources: Sequence[EventSource],
    positions: dict[str, int],
    ends: dict[str, int],
    taken: dict[str, list[EventPiece]],
    max_events: int,
) -> dict[str, int]:
    """Take pieces from the sources in turn, up to `max_events`. Returns the last seq taken from each."""
    waiting = {
        source.domain: iter(source.pieces(positions.get(source.domain, 0), ends[source.domain])) for source in sources
    }
    cut = {source.domain: positions.get(source.domain, 0) for source in sources}
    left = max_events
    while waiting and left > 0:
        for domain in list(waiting):
            piece = next(waiting[domain], None)
            if piece is None:
                cut[domain] = ends[domain]  # A gap after the last piece is handled too.
                del waiting[domain]
            elif left > 0:
                part = _part(piece, max_events)
                taken[domain].append(part)
                cut[domain] = part.last
                left -= part.rows
                if part.last < piece.last:
                    del waiting[domain]
    return cut


def _part(piece: EventPiece, max_events: int) -> EventPiece:
    """The piece, cut if it is larger than a batch."""
    if piece.rows <= max_events:
        return piece
    last = min(piece.last, piece.first + max_events - 1)
    return EventPiece(piece.first, last, min(piece.rows, max_events), piece.bytes, piece.path)


def _wrong(source: EventSource, pieces: Sequence[EventPiece], span: HistoryRange, bad: Bad) -> list[Unread]:
    """The damaged segments of a span."""
    if not isinstance(source, CaptureSource) or not pieces:
        return []
    segments = source.segments(span.after, span.up_to)
    with ThreadPoolExecutor(_CHECKERS) as pool:
        checked = list(pool.map(lambda segment: check(source.where, segment), segments))
    found = []
    for segment, error in zip(segments, checked, strict=True):
        if error is not None:
            if bad == "fail":
                raise _named(source, error)
            first, last = max(segment.first, span.after + 1), min(segment.last, span.up_to)
            found.append(Unread(span.domain, first, last, segment.file, error.reason, error.what))
    return found


def _named(source: EventSource, error: CaptureDamaged) -> CaptureDamaged:
    return CaptureDamaged(f"{source.where}: {error.what}", f"{error.hint}, or run with --bad quarantine", error.reason)


def _holes(source: EventSource, pieces: Sequence[EventPiece], span: HistoryRange) -> list[Unread]:
    """Ranges that no piece covers: pruned by the store before they were captured, or removed by retention."""
    pruned = source.gaps(span.after, span.up_to)
    found = [
        Unread(span.domain, first, last, "", "gap", "pruned by the store before it was read") for first, last in pruned
    ]
    covered = sorted([(piece.first, piece.last) for piece in pieces] + pruned)
    at = span.after
    for first, last in [*covered, (span.up_to + 1, span.up_to)]:
        if first > at + 1:
            found.append(Unread(span.domain, at + 1, first - 1, "", "gone", "no segment has it any more"))
        at = max(at, last)
    return found


def _shares(domain: str, pieces: Sequence[EventPiece], wrong: Sequence[Unread]) -> list[Share]:
    bad = {each.first for each in wrong}
    return [Share(domain, each.first, each.last, each.rows) for each in pieces if each.first not in bad]


def works_of(plan: BatchPlan, sources: Sequence[EventSource], task_events: int) -> list[BatchWork]:
    """What the tasks read, in the files of now: compaction may have moved it since the plan was made."""
    by_domain = {source.domain: source for source in sources}
    works: list[BatchWork] = []
    for share in plan.shares:
        source = by_domain.get(share.domain)
        pieces = [] if source is None else source.pieces(share.first - 1, share.last)
        if source is None or not _covered(pieces, share):
            raise LakeIncomplete(
                f"batch {plan.number} has to read {share.first} to {share.last} of {share.domain!r}, which is missing",
                "restore it, or run `unibus pipeline rebuild`",
            )
        works += [work for piece in pieces for work in _split(source.where, piece, task_events)]
    return works


def _covered(pieces: Sequence[EventPiece], share: Share) -> bool:
    at = share.first
    for piece in pieces:
        if piece.first > at:
            return False
        at = piece.last + 1
    return at > share.last


def _split(where: str, piece: EventPiece, task_events: int) -> Iterator[BatchWork]:
    """Split a large piece for several tasks: each skips the row groups outside of its range of seq."""
    count = max(1, round(piece.rows / task_events))
    step = -(-(piece.last - piece.first + 1) // count)
    for first in range(piece.first, piece.last + 1, step):
        last = min(piece.last, first + step - 1)
        rows = piece.rows if count == 1 else (0 if piece.path else last - first + 1)
        yield BatchWork(where, first, last, rows, piece.path)


def recheck(plan: BatchPlan, sources: Sequence[EventSource]) -> None:
    """LakeIncomplete if a segment of an interrupted batch is damaged now: its other tables have counted it."""
    for source in sources:
        shares = [share for share in plan.shares if share.domain == source.domain]
        for share in shares:
            span = HistoryRange(source.domain, share.first - 1, share.last)
            wrong = _wrong(source, source.pieces(span.after, span.up_to), span, "quarantine")
            if wrong:
                raise LakeIncomplete(
                    f"batch {plan.number} was interrupted, and {wrong[0].file} is damaged since: {wrong[0].detail}",
                    "restore the file, or run `unibus pipeline rebuild`",
                )
