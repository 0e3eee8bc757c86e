"""A damaged source, or one restored from a backup, does not stop the others, and continues when it is repaired."""

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.event_source import EventSource
from unibus.capture.sources import open_sources
from unibus.capture.unopened import UnopenedSource
from unibus.core.lifecycle.events import Event
from unibus.errors import BusError, CaptureDamaged, DomainTaken, LakeIncomplete, LakeMismatch
from unibus.pipeline.lake import Lake
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.reports.status import read_status
from unibus.pipeline.run import run_all, run_once
from unibus.pipeline.set_aside import SetAside

EAST, WEST = history(1, 90, "east"), history(2, 90, "west")
HALF = 40
Spoil = Callable[[Path, Path], None]


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Both have half of their history."""
    for name, events in (("east", EAST), ("west", WEST)):
        write_segments(tmp_path / "all" / name, events[:HALF], name)
    return tmp_path / "all"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def junk(west: Path, backup: Path) -> None:
    with open(west / "manifest.jsonl", "ab") as file:
        file.write(b"junk\n")


def no_about(west: Path, backup: Path) -> None:
    (west / "capture.json").write_bytes(b"{")


def restored(west: Path, backup: Path) -> None:
    shutil.rmtree(west)
    shutil.copytree(backup, west)


def another(west: Path, backup: Path) -> None:
    shutil.rmtree(west)
    write_segments(west, history(7, 200, "west"), "west")


SPOILED: dict[str, tuple[Spoil, type[BusError], str]] = {
    "junk": (junk, CaptureDamaged, "no part of a record|line"),
    "no_about": (no_about, CaptureDamaged, "capture.json is damaged"),
    "restored": (restored, LakeMismatch, "ends at event 20, but the lake has read 'west' up to event 40"),
    "another": (another, LakeMismatch, "has a different event 40"),
}


@pytest.fixture(params=SPOILED)
def spoiled(request: pytest.FixtureRequest, captures: Path, lake: Lake, tmp_path: Path) -> tuple[str, Path]:
    """The lake has what there was. Now east has more, and west is spoiled; gives how, and a folder with it whole."""
    backup, whole = tmp_path / "backup", tmp_path / "whole"
    write_segments(backup, WEST[:20], "west")
    list(run_all(None, lake, open_sources(str(captures))))
    write_segments(captures / "east", EAST, "east")
    shutil.copytree(captures / "west", whole)
    SPOILED[request.param][0](captures / "west", backup)
    return request.param, whole


def put_back(captures: Path, whole: Path) -> None:
    shutil.rmtree(captures / "west")
    shutil.copytree(whole, captures / "west")
    write_segments(captures / "west", WEST, "west")


def positions(lake: Lake) -> dict[str, int]:
    return lake.positions()


def test_the_others_go_on_and_a_repaired_source_does_so_later(
    lake: Lake, captures: Path, spoiled: tuple[str, Path]
) -> None:
    how, whole = spoiled
    aside: list[SetAside] = []
    sources = open_sources(str(captures), keep_damaged=True)
    results = list(run_all(None, lake, sources, max_events=30, set_aside=aside.append))
    assert len(results) > 1
    assert positions(lake) == {"east": len(EAST), "west": HALF}
    assert tables_of(lake) == expected([*EAST, *WEST[:HALF]])
    assert {each.where for each in aside} == {str(captures / "west")}
    assert all(re.search(SPOILED[how][2], each.reason) for each in aside)
    assert lake.sources() == [str(captures)]

    put_back(captures, whole)
    aside.clear()
    list(run_all(None, lake, sources, set_aside=aside.append))  # The very same, as in a loop that runs for long.
    assert aside == []
    assert tables_of(lake) == expected([*EAST, *WEST])


def test_status_names_it(lake: Lake, captures: Path, spoiled: tuple[str, Path]) -> None:
    _, whole = spoiled
    found = {each.domain: each for each in read_status(lake, open_sources(str(captures), keep_damaged=True)).domains}
    assert (found["west"].set_aside, found["west"].up_to) == (True, HALF)
    assert found["west"].where == str(captures / "west")
    assert found["west"].error
    assert (found["east"].set_aside, found["east"].error) == (False, "")
    assert found["east"].events_behind == len(EAST) - HALF
    put_back(captures, whole)
    found = {each.domain: each for each in read_status(lake, open_sources(str(captures))).domains}
    assert (found["west"].set_aside, found["west"].error) == (False, "")


def test_without_a_report_it_ends_the_run(lake: Lake, captures: Path, spoiled: tuple[str, Path]) -> None:
    how, _ = spoiled
    before = tables_of(lake)
    for given in ({"bad": "fail"}, {"set_aside": None}):
        sources = open_sources(str(captures), keep_damaged=True)
        with pytest.raises(SPOILED[how][1]):
            list(run_all(None, lake, sources, **given))  # type: ignore[arg-type]
    assert tables_of(lake) == before


def test_where_no_other_is_left_it_ends_the_run(lake: Lake, captures: Path, spoiled: tuple[str, Path]) -> None:
    how, _ = spoiled
    with pytest.raises(SPOILED[how][1]):
        run_once(None, lake, open_sources(str(captures / "west"), keep_damaged=True))


@pytest.mark.parametrize("spoiled", ["junk", "no_about"], indirect=True)
def test_a_rebuild_does_not_lose_what_is_set_aside(lake: Lake, captures: Path, spoiled: tuple[str, Path]) -> None:
    before = tables_of(lake)
    with pytest.raises((CaptureDamaged, LakeMismatch)):
        list(rebuild(None, lake, open_sources(str(captures), keep_damaged=True)))
    assert tables_of(lake) == before


@pytest.mark.parametrize("spoiled", ["restored"], indirect=True)
def test_it_is_logged_where_no_report_was_asked_for(
    lake: Lake, captures: Path, spoiled: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        list(run_all(None, lake, open_sources(str(captures))))
    assert "'west'" in caplog.text
    assert "is set aside" in caplog.text
    assert "ends at event 20" in caplog.text


class Stopped(Exception):
    pass


def test_a_batch_that_was_begun_needs_what_it_was_planned_with(lake: Lake, captures: Path) -> None:
    def stop(step: str, share: float) -> None:
        if step == "messages":
            raise Stopped

    with pytest.raises(Stopped):
        run_once(None, lake, open_sources(str(captures)), progress=stop)
    whole = (captures / "west" / "capture.json").read_bytes()
    no_about(captures / "west", captures)
    with pytest.raises(LakeIncomplete, match="'west'"):
        run_once(None, lake, open_sources(str(captures), keep_damaged=True))
    (captures / "west" / "capture.json").write_bytes(whole)
    list(run_all(None, lake, open_sources(str(captures), keep_damaged=True)))
    assert tables_of(lake) == expected([*EAST[:HALF], *WEST[:HALF]])


def test_a_source_that_is_opened_later_may_not_have_the_name_of_another(lake: Lake, captures: Path) -> None:
    no_about(captures / "west", captures)
    sources: list[EventSource] = open_sources(str(captures), keep_damaged=True)
    assert [type(each) is UnopenedSource for each in sources] == [False, True]
    shutil.rmtree(captures / "west")
    events: list[Event] = history(3, 30, "east")
    write_segments(captures / "west", events, "east")
    with pytest.raises(DomainTaken):
        run_once(None, lake, sources)
