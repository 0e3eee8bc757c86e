"""Whether a source is the history that a lake has read, and which sources a lake is made from."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.capturing import Capturing
from unibus.capture.compacting import compact
from unibus.capture.event_source import EventSource
from unibus.capture.retention import keep
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation
from unibus.capture.sources import CaptureSource, StoreSource, open_sources
from unibus.errors import LakeMismatch, StoreUnavailable, UsageError
from unibus.pipeline.lake import Lake
from unibus.pipeline.plan import make_plan, save_plan
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import BatchResult, run_all
from unibus.stores.schemes import open_history
from unibus.stores.sqlite.history import SqliteHistory
from unibus.sync import MessageBus


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def run(lake: Lake, *places: Path | str, max_events: int | None = None) -> list[BatchResult]:
    sources = open_sources([str(place) for place in places])
    try:
        return list(run_all(None, lake, sources, max_events=max_events))
    finally:
        for source in sources:
            source.close()


def filled(path: Path, count: int) -> str:
    url = f"sqlite:///{path}"
    with MessageBus(url) as bus:
        for number in range(count):
            bus.send("orders", number)
    return url


def test_a_longer_history_of_another_bus_is_refused(tmp_path: Path, lake: Lake) -> None:
    run(lake, write_segments(tmp_path / "one", history(1, 60)))
    before = tables_of(lake)
    with pytest.raises(LakeMismatch, match="a different event"):
        run(lake, write_segments(tmp_path / "two", history(2, 200)))
    assert tables_of(lake) == before


@pytest.mark.parametrize("max_events", [None, 7])
def test_a_store_that_was_made_anew_is_refused(tmp_path: Path, lake: Lake, max_events: int | None) -> None:
    url = filled(tmp_path / "bus.db", 10)
    run(lake, url, max_events=max_events)
    for path in tmp_path.glob("bus.db*"):
        path.unlink()
    filled(tmp_path / "bus.db", 40)
    with pytest.raises(LakeMismatch, match="a different event"):
        run(lake, url)


def test_the_same_history_is_known_again_after_compaction(tmp_path: Path, lake: Lake) -> None:
    events = history(3, 300)
    capture = write_segments(tmp_path / "capture", events[:90], size=10)
    run(lake, capture, max_events=45)  # Up to the middle of a segment, and then to the end of one.
    write_segments(capture, events[90:150], size=10)
    writer = SegmentWriter(str(capture), "local")
    compact(writer, Rotation(), by_hand=True)
    writer.close()
    assert len(CaptureSource(str(capture)).manifest().segments) == 1
    run(lake, capture)
    write_segments(capture, events)
    run(lake, capture)
    assert tables_of(lake) == expected(events)


def test_a_store_and_its_capture_are_one_history(tmp_path: Path, lake: Lake) -> None:
    url = filled(tmp_path / "bus.db", 10)
    with closing(open_history(url)) as reader, closing(Capturing(reader, str(tmp_path / "capture"))) as capturing:
        capturing.finish()
    run(lake, url)
    filled(tmp_path / "bus.db", 5)
    with closing(open_history(url)) as reader, closing(Capturing(reader, str(tmp_path / "capture"))) as capturing:
        capturing.finish()
    run(lake, tmp_path / "capture")
    assert len(tables_of(lake)["messages"]) == 15
    with closing(StoreSource(url)) as store:
        capture = CaptureSource(str(tmp_path / "capture"))
        assert store.last() == capture.last()
        tails = [store.tail(seq) for seq in range(1, store.last() + 1)]
        assert tails == [capture.tail(seq) for seq in range(1, store.last() + 1)]
        assert len({*tails, 0}) == len(tails) + 1
        assert store.tail(store.last() + 1) == 0 == capture.tail(store.last() + 1)


def test_what_retention_has_emptied_has_nothing_new(tmp_path: Path, lake: Lake) -> None:
    events = history(4, 120)
    capture = write_segments(tmp_path / "capture", events[:40])
    run(lake, capture)
    before = tables_of(lake)
    writer = SegmentWriter(str(capture), "local")
    keep(writer, Policy(keep_s=1e-6))
    writer.close()
    source = CaptureSource(str(capture))
    assert (source.first(), source.last(), source.pieces(0, 100)) == (41, 40, [])
    assert run(lake, capture) == []
    assert tables_of(lake) == before
    write_segments(capture, events)
    run(lake, capture)
    assert tables_of(lake) == expected(events)


def test_a_store_is_settled_before_it_is_counted(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[bool] = []
    monkeypatch.setattr(SqliteHistory, "settle", lambda self: settled.append((tmp_path / "lake/plan.json").exists()))
    run(lake, filled(tmp_path / "bus.db", 3))
    assert settled == [False]


def test_what_cannot_be_read_now_ends_the_run_and_is_counted_later(tmp_path: Path, lake: Lake) -> None:
    events = history(5, 60)
    capture = write_segments(tmp_path / "capture", events)
    segment = sorted((capture / "segments").iterdir())[0]
    away = segment.rename(tmp_path / "away")
    segment.mkdir()  # Not even root can read that.
    with pytest.raises(StoreUnavailable, match="cannot be read now"):
        run(lake, capture)
    segment.rmdir()
    away.rename(segment)
    run(lake, capture)
    assert tables_of(lake) == expected(events)


def test_a_folder_of_captures_is_looked_into_each_time(tmp_path: Path, lake: Lake) -> None:
    east, west = history(1, 30, "east"), history(2, 30, "west")
    write_segments(tmp_path / "all" / "east", east, "east")
    run(lake, tmp_path / "all")
    assert lake.sources() == [str(tmp_path / "all")]
    write_segments(tmp_path / "all" / "west", west, "west")
    run(lake, *lake.sources())
    assert tables_of(lake) == expected([*east, *west])


def test_rebuilding_loses_no_domain_unless_told_to(tmp_path: Path, lake: Lake) -> None:
    east, west = history(1, 30, "east"), history(2, 30, "west")
    places = [write_segments(tmp_path / name, events, name) for name, events in (("east", east), ("west", west))]
    run(lake, *places)
    run(lake, places[1])
    sources: list[EventSource] = open_sources(lake.sources())
    with pytest.raises(LakeMismatch, match="--forget east"):
        list(rebuild(None, lake, sources))
    assert tables_of(lake) == expected([*east, *west])
    list(rebuild(None, lake, sources, forget=["east"]))
    assert tables_of(lake) == expected(west)
    assert list(lake.positions()) == ["west"]


def test_a_name_given_twice_is_opened_once(tmp_path: Path) -> None:
    write_segments(tmp_path / "all" / "east", history(1, 30, "east"), "east")
    inner, outer = str(tmp_path / "all" / "east"), str(tmp_path / "all")
    assert [source.named for source in open_sources([inner, outer])] == [inner]
    assert [source.named for source in open_sources([os.path.join(outer, ".", "east")])] == [inner]


def test_a_source_that_was_refused_is_not_remembered(tmp_path: Path, lake: Lake) -> None:
    run(lake, write_segments(tmp_path / "one", history(1, 60)))
    with pytest.raises(LakeMismatch):
        run(lake, write_segments(tmp_path / "two", history(2, 20)))
    assert lake.sources() == [str(tmp_path / "one")]


def test_a_source_without_anything_new_is_remembered(tmp_path: Path, lake: Lake) -> None:
    SegmentWriter(str(tmp_path / "empty"), "local").close()
    assert run(lake, tmp_path / "empty") == []
    assert lake.exists()
    assert lake.sources() == [str(tmp_path / "empty")]


def test_a_capture_that_cannot_be_looked_at_is_not_left_out(tmp_path: Path, lake: Lake) -> None:
    write_segments(tmp_path / "all" / "east", history(1, 30, "east"), "east")
    west = tmp_path / "all" / "west"
    west.symlink_to(west)  # Not even root can enter that.
    with pytest.raises(StoreUnavailable, match=r"west/capture\.json cannot be read"):
        run(lake, tmp_path / "all")
    assert not lake.exists()


def test_a_folder_of_somebody_else_is_no_lake(tmp_path: Path) -> None:
    capture = write_segments(tmp_path / "capture", history(1, 30))
    theirs = tmp_path / "theirs" / "messages"
    theirs.mkdir(parents=True)
    for folder in (theirs.parent, capture):
        with pytest.raises(UsageError, match="is not a lake"):
            run(Lake(str(folder)), capture)
        assert not (folder / "lake.json").exists()
    run(Lake(str(tmp_path / "theirs" / "new")), capture)


@pytest.mark.parametrize("left", ["plan.json", "lake.json.new", "serve.lock"])
def test_a_first_start_that_was_ended_is_gone_on_with(tmp_path: Path, lake: Lake, left: str) -> None:
    events = history(1, 30)
    capture = write_segments(tmp_path / "capture", events)
    Path(lake.path).mkdir()
    if left == "plan.json":
        plan = make_plan(1, [], open_sources(str(capture)), 1_000, "quarantine")
        assert plan is not None
        save_plan(lake.path, plan)
    else:
        (Path(lake.path) / left).write_bytes(b"")
    run(lake, capture)
    assert tables_of(lake) == expected(events)
