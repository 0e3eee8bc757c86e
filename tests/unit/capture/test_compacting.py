"""Which segments are put together: by hand what fits, by itself what is small and many."""

from pathlib import Path

from tests.unit.capture.rows import plain, rows_of
from tests.unit.capture.test_manifest import segment
from tests.unit.capture.test_segments import events, write
from unibus.capture.compacting import NEIGHBOURS, compact, worthwhile
from unibus.capture.manifest import Segment
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Roll


def line(*sizes: int, first: int = 1) -> list[Segment]:
    found = []
    for size in sizes:
        found.append(segment(first, first + size - 1))
        first += size
    return found


def chosen(segments: list[Segment], roll: Roll, by_hand: bool) -> list[list[int]]:
    return [[each.rows for each in run] for run in worthwhile(segments, roll, by_hand)]


def test_by_hand_everything_that_fits() -> None:
    assert chosen(line(5, 5, 5, 5, 5), Roll(rows=12), True) == [[5, 5], [5, 5]]
    assert chosen(line(20, 5, 5, 20, 3), Roll(rows=12), True) == [[5, 5]]
    assert chosen(line(12), Roll(rows=12), True) == []
    assert chosen([], Roll(), True) == []


def test_not_over_a_gap() -> None:
    assert chosen([*line(5, 5), *line(5, 5, first=20)], Roll(), True) == [[5, 5], [5, 5]]


def test_by_itself_when_there_are_enough_of_one_size() -> None:
    few = [1] * (NEIGHBOURS - 1)
    assert chosen(line(*few), Roll(), False) == []
    assert chosen(line(*few, 1), Roll(), False) == [[*few, 1]]
    assert chosen(line(100_000, *few, 1), Roll(), False) == [[*few, 1]]  # The large one is not copied with them.
    assert chosen(line(*[NEIGHBOURS] * NEIGHBOURS, *few), Roll(), False) == [[*[NEIGHBOURS] * NEIGHBOURS, *few]]


def test_by_itself_when_they_fill_a_segment() -> None:
    assert chosen(line(*[30_000] * 9), Roll(rows=120_000), False) == [[30_000] * 4, [30_000] * 4]
    assert chosen(line(*[30_000] * 4), Roll(rows=120_000), False) == []  # The next may still fit.
    assert chosen(line(*[40_000] * 9), Roll(rows=120_000), False) == []  # Three are not worth a copy.


def test_by_bytes_too() -> None:
    assert chosen(line(1, 1, 1, 1), Roll(bytes=20), True) == [[1, 1], [1, 1]]


def test_rows_stay_what_they_were(tmp_path: Path) -> None:
    write(tmp_path, *[(at, at + 4) for at in range(1, 50, 5)])
    writer = SegmentWriter(str(tmp_path))
    assert compact(writer, Roll(rows=20), by_hand=True) == 7
    assert [each.rows for each in writer.manifest.segments] == [20, 20, 10]
    rows = [row for each in writer.manifest.segments for row in plain(writer.read(each))]
    assert rows == rows_of(events(1, 50))
    writer.close()
