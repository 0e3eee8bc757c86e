"""Killed with -9 and started again: every table has each event once. The same on Spark, and thirty times, is a soak."""

from pathlib import Path

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_kills import run_and_kill
from tests.pipeline.lake_reference import expected, tables_of
from unibus.pipeline.lake import Lake

KILLS = 4


def test_killed_and_started_again_nothing_is_lost_and_nothing_counted_twice(tmp_path: Path) -> None:
    domains = {"east": history(31, 420, "east"), "west": history(32, 300, "west")}
    for name, events in domains.items():
        write_segments(tmp_path / "captures" / name, events, name, 30)
    died = run_and_kill("here", tmp_path / "captures", tmp_path / "lake", KILLS, seed=KILLS)
    assert died == KILLS
    lake = Lake(str(tmp_path / "lake"))
    assert tables_of(lake) == expected([event for events in domains.values() for event in events])
    assert sum(batch["events"] for batch in lake.last_batches(100)) == sum(map(len, domains.values()))
