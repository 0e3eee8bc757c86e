"""The driver of the pipeline, killed with -9 at thirty moments of a run: every sum is that of one pass over all."""

from collections.abc import Callable
from pathlib import Path

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_kills import run_and_kill
from tests.pipeline.lake_reference import expected, tables_of
from unibus.pipeline.lake import Lake

KILLS = 30


def test_thirty_kills_on_spark(tmp_path: Path, seed: str, report: Callable[[str], None]) -> None:
    domains = {name: history(seed, 2_500, name) for seed, name in enumerate(("east", "west"))}
    for name, events in domains.items():
        write_segments(tmp_path / "captures" / name, events, name, 60)
    died = run_and_kill("spark", tmp_path / "captures", tmp_path / "lake", KILLS, seed)
    report(f"pipeline: {died} kills of the driver, seed {seed}")
    assert died == KILLS
    lake = Lake(str(tmp_path / "lake"))
    assert tables_of(lake) == expected([event for events in domains.values() for event in events])
    assert sum(batch["events"] for batch in lake.last_batches(10_000)) == sum(map(len, domains.values()))
