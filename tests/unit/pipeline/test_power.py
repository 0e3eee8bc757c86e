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
from unibus.core.lifecycle.events import Event
from unibus.errors import LakeIncomplete
from unibus.pipeline.lake import SWAP, Lake
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import run_once
from unibus.pipeline.upkeep import compact, vacuum

ALL: tuple[Left, ...] = get_args(Left)
WORST: tuple[Left, ...] = ("lost", "torn")
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
        self._place = place
        self.left: list[Lake] = []

    def batches(self, count: int) -> None:
        for _ in range(count):
            run_once(None, self.lake, opened(self.capture), max_events=15)

    @contextmanager
    def power(self, *unsynced: Left) -> Iterator[None]:
        """Until the block is left, or raises what ends it. Then there is a lake for each thing that a cut may leave."""
        with self.disk.watched():
            try:
                yield
            except (PowerCut, Stopped):
                pass
            for each in unsynced:
                self.disk.left(self._place / each, each)
                self.left.append(Lake(str(self._place / each)))

    def check(self) -> None:
        """The next start reads the rest, and every event is counted once."""
        assert self.left
        for lake in self.left:
            run(lake, self.capture)
            assert tables_of(lake) == tables_expected(), lake.path
            assert sum(batch["events"] for batch in lake.last_batches(99)) == len(self.events), lake.path
            assert quarantined(lake) == [], lake.path
            assert not lake.is_interrupted(), lake.path


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


@pytest.mark.parametrize(
    ("step", "batches"),
    # A table's nineteenth batch comes with a checkpoint of its log.
    [*((step, 1) for step in STEPS), ("messages", 19)],
)
def test_in_a_batch(case: Case, step: str, batches: int) -> None:
    with case.power(*ALL):
        case.batches(batches - 1)
        run_once(None, case.lake, opened(case.capture), max_events=15, progress=stop_at(step))
    case.check()
    assert {lake.last_batches(99)[-batches]["number"] for lake in case.left} == {batches}


def test_a_batch_that_was_complete_stays(case: Case) -> None:
    with case.power(*WORST):
        case.batches(3)
    assert [lake.done() for lake in case.left] == [3, 3]
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


def test_while_an_old_log_gives_way(case: Case) -> None:
    with case.power(*WORST):
        with_an_old_log(case)
        run_once(None, case.lake, opened(case.capture), max_events=15, progress=stop_at("messages"))
    case.check()


@pytest.mark.parametrize("syncs", SYNCS)
def test_in_a_rebuild(case: Case, syncs: int) -> None:
    with case.power(*WORST):
        run(case.lake, case.capture)
        case.disk.syncs_left = syncs
        list(rebuild(None, case.lake, opened(case.capture)))
    case.check()


def test_between_a_rebuild_and_its_exchange(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(lake: Lake) -> None:
        if os.path.exists(os.path.join(lake.path, SWAP)):
            raise PowerCut

    with case.power(*WORST):
        run(case.lake, case.capture)
        with monkeypatch.context() as patch:
            patch.setattr("unibus.pipeline.rebuild.exchange", cut)
            list(rebuild(None, case.lake, opened(case.capture)))
    case.check()


@pytest.mark.parametrize("syncs", SYNCS)
def test_in_upkeep(case: Case, syncs: int) -> None:
    with case.power(*WORST):
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
