"""One batch after the other: stopped anywhere and gone on with, damaged input, another history, one at a time."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.histories import spoil
from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.event_source import EventSource
from unibus.capture.segments import SegmentWriter
from unibus.capture.sources import open_sources
from unibus.core.lifecycle.events import Event
from unibus.errors import CaptureDamaged, LakeBusy, LakeIncomplete, LakeMismatch, UsageError
from unibus.pipeline.lake import Lake
from unibus.pipeline.plan import load_plan
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import BatchResult, run_all, run_once
from unibus.pipeline.storage.tables import TABLES
from unibus.sync import MessageBus

STATES = ("active", "locked", "scheduled", "deferred")
STEPS = ("plan", *(name for name in TABLES if name != "batches"), "batches", "done")


class Stopped(Exception):
    pass


def stop_at(wanted: str) -> Callable[[str, float], None]:
    def tell(step: str, share: float) -> None:
        assert 0 <= share <= 1
        if step == wanted:
            raise Stopped

    return tell


def opened(place: Path) -> list[EventSource]:
    return open_sources(str(place))


def quarantined(lake: Lake) -> list[tuple[str, int, int, str]]:
    folder = lake.folder("quarantine")
    rows = folder.read(folder.files()).to_pylist()
    return sorted((row["domain"], row["first"], row["last"], row["reason"]) for row in rows)


def run(lake: Lake, place: Path) -> list[BatchResult]:
    return list(run_all(None, lake, opened(place)))


@pytest.mark.parametrize("step", STEPS)
def test_stopped_after_any_step_and_run_again_every_table_has_the_batch_once(tmp_path: Path, step: str) -> None:
    events = history(11, 320)
    capture = write_segments(tmp_path / "capture", events[:130])
    lake = Lake(str(tmp_path / "lake"))
    run(lake, capture)
    write_segments(capture, events[130:190])
    with pytest.raises(Stopped):
        run_once(None, lake, opened(capture), progress=stop_at(step))
    write_segments(capture, events[190:])  # More has come since, which must not get into the batch that was stopped.
    results = run(Lake(lake.path), capture)
    assert tables_of(lake) == expected(events)
    assert sum(batch["events"] for batch in lake.last_batches(10)) == len(events)
    assert [batch["number"] for batch in lake.last_batches(10)] == list(range(lake.done(), 0, -1))
    assert load_plan(lake.path) is None
    complete = step in ("batches", "done")
    assert sum(result.events for result in results) == len(events) - (190 if complete else 130)


def test_a_result_tells_what_was_done(tmp_path: Path) -> None:
    events = history(3, 90)
    capture = write_segments(tmp_path / "capture", events, size=10)
    lake = Lake(str(tmp_path / "lake"))
    steps: list[str] = []
    first = run_once(None, lake, opened(capture), max_events=40, progress=lambda step, share: steps.append(step))
    assert first is not None
    assert (first.number, first.events, first.left) == (1, 40, len(events) - 40)
    assert [(each.domain, each.after, each.up_to) for each in first.ranges] == [("local", 0, 40)]
    assert [step for step in steps if step != "read"] == list(STEPS)
    rest = run(lake, capture)
    assert [result.number for result in rest] == [2]
    assert rest[-1].left == 0
    assert first.closed + rest[0].closed == sum(not row["open"] for row in tables_of(lake)["messages"])
    assert run_once(None, lake, opened(capture)) is None
    assert lake.sources() == [str(capture)]
    assert lake.positions() == {"local": len(events)}


def test_a_damaged_segment_is_put_aside_and_nothing_of_it_is_counted(tmp_path: Path) -> None:
    events = history(5, 150)
    capture = write_segments(tmp_path / "capture", events, size=30)
    spoil(capture, 1)
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(CaptureDamaged) as caught:
        run_once(None, lake, opened(capture), bad="fail")
    assert caught.value.reason == "crc"
    assert lake.done() == 0
    (result,) = run(lake, capture)
    assert [(each.first, each.last, each.reason) for each in result.unread] == [(31, 60, "crc")]
    assert quarantined(lake) == [("local", 31, 60, "crc")]
    assert tables_of(lake) == expected([event for event in events if not 31 <= event.seq <= 60])


@pytest.mark.parametrize("table", list(TABLES))
def test_a_rebuild_that_stops_while_tables_are_exchanged_is_gone_on_with(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = history(9, 120)
    capture = write_segments(tmp_path / "capture", events[:80])
    lake = Lake(str(tmp_path / "lake"))
    spoiled = spoil(capture, 0)
    run(lake, capture)
    shutil.rmtree(capture)
    write_segments(capture, events[:80])
    assert spoiled.exists()
    folder = lake.folder(table)

    def fail(*_: object, **__: object) -> None:
        raise Stopped

    monkeypatch.setattr(folder, "commit", fail)
    with pytest.raises(Stopped):
        list(rebuild(None, lake, opened(capture)))
    write_segments(capture, events)
    again = Lake(lake.path)
    run(again, capture)
    assert tables_of(again) == expected(events)
    assert not (tmp_path / "lake" / ".rebuild").exists()
    assert not (tmp_path / "lake" / "swap.json").exists()


def test_what_a_store_forgot_and_what_was_removed_is_noted(tmp_path: Path) -> None:
    events = history(4, 120)
    capture = write_segments(tmp_path / "capture", events[20:90], size=30)
    writer = SegmentWriter(str(capture), "local")
    writer.gap(91, 100)
    writer.close()
    write_segments(capture, events[100:])
    lake = Lake(str(tmp_path / "lake"))
    run(lake, capture)
    assert quarantined(lake) == [("local", 1, 20, "gap"), ("local", 91, 100, "gap")]
    assert tables_of(lake) == expected([*events[20:90], *events[100:]])


def test_a_segment_that_is_lost_while_its_batch_is_half_done_is_an_error_until_it_is_back(tmp_path: Path) -> None:
    events = history(12, 100)
    capture = write_segments(tmp_path / "capture", events)
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(Stopped):
        run_once(None, lake, opened(capture), progress=stop_at("messages"))
    segment = sorted((capture / "segments").iterdir())[0]
    os.rename(segment, tmp_path / "away")
    with pytest.raises(LakeIncomplete, match="was interrupted"):
        run(lake, capture)
    os.rename(tmp_path / "away", segment)
    run(lake, capture)
    assert tables_of(lake) == expected(events)


def test_before_the_first_commit_it_is_put_aside_instead(tmp_path: Path) -> None:
    events = history(12, 100)
    capture = write_segments(tmp_path / "capture", events)
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(Stopped):
        run_once(None, lake, opened(capture), progress=stop_at("plan"))
    spoil(capture, 0)
    run(lake, capture)
    assert tables_of(lake) == expected(events[40:])


def test_another_history_under_the_same_name_is_refused(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    run(lake, write_segments(tmp_path / "one", history(1, 80)))
    with pytest.raises(LakeMismatch, match="another history"):
        run(lake, write_segments(tmp_path / "two", history(2, 20)))


@pytest.mark.parametrize("name", ["per%20cent", "back\\slash", "tab\tstop"])
def test_a_path_that_delta_cannot_find_again_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be at"):
        Lake(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["100%", "two words", "[a]{b}*?", "grün", "a'b\"c"])
def test_a_lake_may_lie_in_many_places(tmp_path: Path, name: str) -> None:
    events = history(1, 40)
    lake = Lake(str(tmp_path / name))
    run(lake, write_segments(tmp_path / "capture", events))
    assert tables_of(Lake(lake.path)) == expected(events)


def test_domains_come_and_go(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    east, west = history(1, 60, "east"), history(2, 60, "west")
    run(lake, write_segments(tmp_path / "east", east[:30], "east"))
    run(lake, write_segments(tmp_path / "west", west, "west"))
    assert lake.positions() == {"east": 30, "west": len(west)}
    run(lake, write_segments(tmp_path / "east", east, "east"))
    assert tables_of(lake) == expected([*east, *west])


def test_one_at_a_time(tmp_path: Path) -> None:
    capture = write_segments(tmp_path / "capture", history(1, 20))
    lake, other = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "lake"))
    with lake.lock(), pytest.raises(LakeBusy, match=f"process {os.getpid()}"):
        run(other, capture)
    run(other, capture)


def busy(bus: MessageBus) -> None:
    """Something of everything."""
    bus.create_queue("orders", max_delivery_count=2)
    bus.create_queue("gone")
    bus.create_topic("news")
    bus.create_subscription("news", "all")
    for number in range(12):
        bus.send("orders", {"n": number}, message_id=f"m{number}")
        bus.send("gone" if number % 2 else "news", {"n": number})
    verbs = ("dead_letter", "dead_letter", "abandon", "defer", "complete", "complete", "complete")
    taken = bus.receive_batch("orders", 8, 1.0)
    for message, verb in zip(taken, verbs, strict=False):
        getattr(message, verb)()
    bus.receive_batch("news/subscriptions/all", 2, 1.0)[0].abandon(delay=600)
    late = time.time() + 3_600
    cancelled = bus.schedule("orders", {"n": -1}, late)
    bus.schedule("orders", {"n": -2}, late)
    bus.cancel_scheduled("orders", cancelled)
    bus.delete_entity("gone")


def test_a_real_bus_is_counted_as_it_counts_itself(tmp_path: Path) -> None:
    """Straight from its store, while it is open."""
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    lake = Lake(str(tmp_path / "lake"))
    with MessageBus(url) as bus:
        busy(bus)
        sources = open_sources(url)
        try:
            list(run_all(None, lake, sources, max_events=10))
        finally:
            for source in sources:
                source.close()
        held = {(each.name, state): getattr(each, state) for each in bus.entities() for state in STATES}
    rows = tables_of(lake)["messages"]
    counted = Counter((row["channel"], row["state"]) for row in rows if row["open"])
    assert counted == Counter({key: count for key, count in held.items() if count})
    assert {state for _name, state in counted} == set(STATES)
    ends = Counter(row["outcome"] for row in rows if not row["open"])
    assert ends == {"completed": 3, "dead_lettered": 2, "cancelled": 1, "dropped": 6}


def test_events_are_counted_as_such(tmp_path: Path) -> None:
    def only(events: list[Event], kind: str) -> int:
        return sum(event.kind == kind for event in events)

    events = history(21, 200)
    lake = Lake(str(tmp_path / "lake"))
    run(lake, write_segments(tmp_path / "capture", events))
    minutes = tables_of(lake)["channel_minute"]
    assert sum(row["n"] for row in minutes) == len(events)
    assert sum(row["n"] for row in minutes if row["kind"] == "sent") == only(events, "sent")


@pytest.mark.skipif(os.name != "posix", reason="modes mean nothing there")
def test_a_lake_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        capture = write_segments(tmp_path / "capture", history(3, 90), size=30)
        lake = Lake(str(tmp_path / "lake"))
        run(lake, capture)
    finally:
        os.umask(before)
    for folder in (Path(lake.path), capture):
        assert folder.stat().st_mode & 0o777 == 0o700
    # delta-rs makes its logs with modes of its own: the folder above protects them.
    ours = [path for path in (*capture.rglob("*"), *Path(lake.path).rglob("*")) if "_delta_log" not in path.parts]
    assert {path.stat().st_mode & 0o777 for path in ours if path.is_file()} == {0o600}
    assert {path.suffix for path in ours} >= {".parquet", ".jsonl", ".json", ".lock"}
    assert {path.stat().st_mode & 0o777 for path in capture.rglob("*") if path.is_dir()} == {0o700}
