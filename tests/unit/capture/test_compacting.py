"""Which segments are put together: by hand what fits, by itself what is small and many."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace as replaced

from tests.unit.capture.rows import plain, rows_of
from tests.unit.capture.test_manifest import segment
from tests.unit.capture.test_segments import events, table, write
from unibus.capture import schema
from unibus.capture.compacting import NEIGHBOURS, SHARE, compact, worthwhile
from unibus.capture.manifest import Segment
from unibus.capture.retention import keep
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation, with_policy
from unibus.core.lifecycle.events import Event


def line(*sizes: int, first: int = 1) -> list[Segment]:
    found = []
    for size in sizes:
        found.append(segment(first, first + size - 1))
        first += size
    return found


def chosen(segments: list[Segment], roll: Rotation, by_hand: bool) -> list[list[int]]:
    return [[each.rows for each in run] for run in worthwhile(segments, roll, by_hand)]


def test_by_hand_everything_that_fits() -> None:
    assert chosen(line(5, 5, 5, 5, 5), Rotation(rows=12), True) == [[5, 5], [5, 5]]
    assert chosen(line(20, 5, 5, 20, 3), Rotation(rows=12), True) == [[5, 5]]
    assert chosen(line(12), Rotation(rows=12), True) == []
    assert chosen([], Rotation(), True) == []


def test_not_over_a_gap() -> None:
    assert chosen([*line(5, 5), *line(5, 5, first=20)], Rotation(), True) == [[5, 5], [5, 5]]


def test_by_itself_when_there_are_enough_of_one_size() -> None:
    few = [1] * (NEIGHBOURS - 1)
    assert chosen(line(*few), Rotation(), False) == []
    assert chosen(line(*few, 1), Rotation(), False) == [[*few, 1]]
    assert chosen(line(100_000, *few, 1), Rotation(), False) == [[*few, 1]]  # The large one is not copied with them.
    assert chosen(line(*[NEIGHBOURS] * NEIGHBOURS, *few), Rotation(), False) == [[*[NEIGHBOURS] * NEIGHBOURS, *few]]


def test_by_itself_when_they_fill_a_segment() -> None:
    assert chosen(line(*[30_000] * 9), Rotation(rows=120_000), False) == [[30_000] * 4, [30_000] * 4]
    assert chosen(line(*[30_000] * 4), Rotation(rows=120_000), False) == []  # The next may still fit.
    assert chosen(line(*[40_000] * 9), Rotation(rows=120_000), False) == []  # Three are not worth a copy.
    assert (
        chosen(line(100_000, *[3_000] * 5), Rotation(rows=112_000), False) == []
    )  # Nor are four small ones a large copy.


def test_by_bytes_too() -> None:
    assert chosen(line(1, 1, 1, 1), Rotation(bytes=20), True) == [[1, 1], [1, 1]]


def test_rows_stay_what_they_were(tmp_path: Path) -> None:
    write(tmp_path, *[(at, at + 4) for at in range(1, 50, 5)])
    writer = SegmentWriter(str(tmp_path))
    assert compact(writer, Rotation(rows=20), by_hand=True) == 7
    assert [each.rows for each in writer.manifest.segments] == [20, 20, 10]
    rows = [row for each in writer.manifest.segments for row in plain(writer.read(each))]
    assert rows == rows_of(events(1, 50))
    writer.close()


# Over a long time


MINUTE_US = 60_000_000


class Simulated:
    """Segments of a minute each, without files: what compaction copies, and what retention leaves."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.segments: list[Segment] = []
        self.copies: dict[str, int] = {}
        self.most_copies = 0
        self.now_us = 0

    def seal(self, rows: int) -> None:
        first = self.segments[-1].last + 1 if self.segments else 1
        fresh = segment(first, first + rows - 1, bodies=True)
        self.now_us += MINUTE_US
        self.segments.append(replaced(fresh, from_us=self.now_us - MINUTE_US, to_us=self.now_us, sealed_us=self.now_us))

    def keep(self) -> None:
        keep_s, bodies_keep_s = self.policy.keep_s or 1e9, self.policy.bodies_keep_s or 1e9
        kept = [each for each in self.segments if each.newest_us >= self.now_us - keep_s * 1e6]
        self.segments = [
            each if each.newest_us >= self.now_us - bodies_keep_s * 1e6 else replaced(each, bodies=None)
            for each in kept
        ]

    def compact(self, by_hand: bool) -> None:
        for run in worthwhile(self.segments, Rotation(rows=20_000), by_hand, self.policy):
            at = self.segments.index(run[0])
            joined = replaced(
                segment(run[0].first, run[-1].last, any(each.bodies for each in run)),
                from_us=run[0].from_us,
                to_us=run[-1].to_us,
                sealed_us=run[-1].sealed_us,
            )
            self.copies[joined.file] = 1 + max(self.copies.get(each.file, 0) for each in run)
            self.most_copies = max(self.most_copies, self.copies[joined.file])
            self.segments[at : at + len(run)] = [joined]

    def oldest_s(self, of_bodies: bool) -> float:
        found = [each.from_us for each in self.segments if each.bodies or not of_bodies]
        return (self.now_us - min(found)) / 1e6


@pytest.mark.parametrize(
    "rows", [lambda n: 1, lambda n: 1 + 99 * (n % 2), lambda n: n % 40 + 1, lambda n: 100 if n % 31 == 0 else 1]
)
def test_a_row_is_copied_a_few_times_however_long_it_goes_on(rows: Callable[[int], int]) -> None:
    simulated = Simulated(Policy())
    for number in range(4_000):
        simulated.seal(rows(number))
        if number % 5 == 0:
            simulated.compact(by_hand=False)
    assert 1 <= simulated.most_copies <= 4
    assert len(simulated.segments) < 400


@pytest.mark.parametrize("by_hand", [False, True])
def test_retention_goes_on_to_work(by_hand: bool) -> None:
    """What is there is never older than what was asked for and an eighth, and a minute for the segment itself."""
    simulated = Simulated(Policy(keep_s=12 * 3_600.0, bodies_keep_s=3 * 3_600.0))
    for number in range(2_000):
        simulated.seal(1)
        if number % 5 == 0:
            simulated.keep()
            assert simulated.oldest_s(of_bodies=True) <= 3 * 3_600 * 9 / 8 + 60
            assert simulated.oldest_s(of_bodies=False) <= 12 * 3_600 * 9 / 8 + 60
            simulated.compact(by_hand)
    assert simulated.most_copies >= 1
    assert len(simulated.segments) < SHARE * NEIGHBOURS  # Of 720.


def test_the_policy_is_stored_in_the_directory(tmp_path: Path) -> None:
    """Also with `--compact`, which is given no policy."""
    write(tmp_path, *[(at, at + 4) for at in range(1, 50, 5)])  # A microsecond between two events.
    writer = SegmentWriter(str(tmp_path))
    about = with_policy(writer.manifest.about, Policy(keep_s=8 * 15e-6))
    assert about is not None
    writer.set_about(about)
    compact(writer, Rotation(), by_hand=True)
    assert [each.rows for each in writer.manifest.segments] == [15, 15, 15, 5]
    writer.close()


def test_a_clock_that_is_ahead_keeps_nothing_for_ever(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path))
    ahead = Event(1, 1 << 55, "local", "c", "sent", 1, "m", size=1)
    writer.write(schema.table_of([ahead]))
    writer.write(table(2, 3))
    sealed_us = writer.manifest.segments[0].sealed_us
    policy = Policy(keep_s=60.0)
    assert keep(writer, policy, sealed_us + 59_000_000) == 0
    assert keep(writer, policy, sealed_us + 61_000_000) == 2
    writer.close()
