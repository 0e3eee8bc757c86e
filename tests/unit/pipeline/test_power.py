"""The power goes at any moment: the next start has every batch once, and what counted before still counts."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_power import Disk, Left, PowerCut
from tests.pipeline.lake_reference import expected, tables_of
from tests.unit.pipeline.test_run import STEPS, Stopped, opened, quarantined, run, stop_at
from unibus.core.life.events import Event
from unibus.errors import LakeIncomplete
from unibus.pipeline.lake import SWAP, Lake
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import run_once
from unibus.pipeline.upkeep import compact, vacuum

ALL = pytest.mark.parametrize("unsynced", get_args(Left))
WORST = pytest.mark.parametrize("unsynced", ["lost", "torn"])
DAY_S = 86_400
EVENTS: list[Event] = history(12, 420)
SYNCS = (2, 9, 20, 35, 54)
"""Moments of a rebuild, or of some upkeep: the power goes after so many syncs."""


class Case:
    """A lake on a disk that can lose its power, and the history that it is made from."""

    def __init__(self, place: Path, capture: Path) -> None:
        self.events = EVENTS
        self.capture = capture
        self.disk = Disk(place / "lake")
        self.lake = Lake(str(place / "lake"))
        self._left = place / "left"

    def batches(self, count: int) -> None:
        for _ in range(count):
            run_once(None, self.lake, opened(self.capture), max_events=15)

    @contextmanager
    def power(self, unsynced: Left) -> Iterator[None]:
        """Until the block is left, or raises what ends it."""
        with self.disk.watched():
            try:
                yield
            except (PowerCut, Stopped):
                pass
            self.disk.left(self._left, unsynced)

    def check(self) -> Lake:
        """Whoever starts next reads the rest, and everything is there once."""
        left = Lake(str(self._left))
        run(left, self.capture)
        assert tables_of(left) == tables_expected()
        assert sum(batch["events"] for batch in left.last_batches(99)) == len(self.events)
        assert quarantined(left) == []
        assert not left.is_interrupted()
        return left


@cache
def tables_expected() -> dict[str, list[dict[str, Any]]]:
    return expected(EVENTS)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for all: a pipeline only reads it."""
    return write_segments(tmp_path_factory.mktemp("capture"), EVENTS, size=15)


@pytest.fixture
def case(folder: Path, capture: Path) -> Case:
    """In memory, if possible: what a sync keeps is decided by `Disk`, wherever the files are."""
    return Case(folder, capture)


@ALL
@pytest.mark.parametrize(
    ("step", "batches"),
    # A table's nineteenth batch comes with a checkpoint of its log.
    [*((step, 1) for step in STEPS), ("messages", 19)],
)
def test_in_a_batch(case: Case, step: str, batches: int, unsynced: Left) -> None:
    with case.power(unsynced):
        case.batches(batches - 1)
        run_once(None, case.lake, opened(case.capture), max_events=15, progress=stop_at(step))
    assert case.check().last_batches(99)[-batches]["number"] == batches


@WORST
def test_a_batch_that_was_complete_stays(case: Case, unsynced: Left) -> None:
    with case.power(unsynced):
        case.batches(3)
    left = Lake(str(case._left))
    assert left.done() == 3
    case.check()


def with_an_old_log(case: Case) -> None:
    """The next batch comes with a checkpoint."""
    case.batches(18)
    old = time.time() - 3 * DAY_S
    for path in Path(case.lake.path).glob("*/_delta_log/*.json"):
        os.utime(path, (old, old))


def test_an_old_log_gives_way_to_a_checkpoint(case: Case) -> None:
    with_an_old_log(case)
    case.batches(1)
    assert len(list(Path(case.lake.path, "messages", "_delta_log").glob("*.json"))) < 3
    run(case.lake, case.capture)
    assert tables_of(Lake(case.lake.path)) == tables_expected()


@WORST
def test_while_an_old_log_gives_way(case: Case, unsynced: Left) -> None:
    with case.power(unsynced):
        with_an_old_log(case)
        run_once(None, case.lake, opened(case.capture), max_events=15, progress=stop_at("messages"))
    case.check()


@WORST
@pytest.mark.parametrize("syncs", SYNCS)
def test_in_a_rebuild(case: Case, syncs: int, unsynced: Left) -> None:
    with case.power(unsynced):
        run(case.lake, case.capture)
        case.disk.syncs_left = syncs
        list(rebuild(None, case.lake, opened(case.capture)))
    case.check()


@WORST
def test_between_a_rebuild_and_its_exchange(case: Case, unsynced: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(lake: Lake) -> None:
        if os.path.exists(os.path.join(lake.path, SWAP)):
            raise PowerCut

    with case.power(unsynced):
        run(case.lake, case.capture)
        monkeypatch.setattr("unibus.pipeline.rebuild.exchange", cut)
        list(rebuild(None, case.lake, opened(case.capture)))
    case.check()


@WORST
@pytest.mark.parametrize("syncs", SYNCS)
def test_in_upkeep(case: Case, syncs: int, unsynced: Left) -> None:
    with case.power(unsynced):
        case.batches(3)
        case.disk.syncs_left = syncs
        compact(case.lake)
        vacuum(case.lake, 0)
    case.check()


def test_what_nobody_was_writing_is_not_mended(case: Case) -> None:
    case.batches(2)
    commit = sorted(Path(case.lake.path, "messages", "_delta_log").glob("*.json"))[-1]
    commit.write_bytes(commit.read_bytes()[:-9])
    with pytest.raises(LakeIncomplete, match="cannot be read"):
        run(Lake(case.lake.path), case.capture)
