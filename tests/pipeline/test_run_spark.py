"""Batches as jobs of Spark: the same tables, readers that go on reading, and a job that fails."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from tests.unit.pipeline.test_run import opened, quarantined, run
from tests.unit.pipeline.test_run_same import in_random_batches
from unibus.errors import JobFailed
from unibus.pipeline.lake import Lake
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import run_once


def test_where_batches_begin_makes_no_difference_on_spark_either(spark: SparkSession, tmp_path: Path) -> None:
    domains = {"east": history(7, 250, "east"), "west": history(8, 120, "west")}
    lake = Lake(str(tmp_path / "lake"))
    in_random_batches(spark, lake, tmp_path / "captures", domains, 2)
    assert lake.done() > 1
    assert tables_of(lake) == expected([event for events in domains.values() for event in events])


def test_a_repaired_segment_comes_in_by_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    more = history(6, 220)
    events = more[:120]
    capture = write_segments(tmp_path / "capture", events, size=30)
    segment = sorted((capture / "segments").iterdir())[2]
    kept = segment.read_bytes()
    segment.write_bytes(kept[:-100])
    lake = Lake(str(tmp_path / "lake"))
    run(lake, capture)
    assert quarantined(lake) == [("local", 61, 90, "size")]
    before = lake.done()
    segment.write_bytes(kept)
    assert run(lake, capture) == []  # It was dealt with.
    readable = lake.view(spark, "channel_minute")
    counted = readable.selectExpr("sum(n)").collect()[0][0]
    assert counted == len(events) - 30
    assert len(list(rebuild(spark, lake, opened(capture), max_events=60))) == 2
    assert tables_of(lake) == expected(events)
    assert quarantined(lake) == []
    assert lake.done() > before
    assert lake.positions() == {"local": len(events)}
    assert readable.selectExpr("sum(n)").collect()[0][0] == counted  # A reader keeps the files that it has.
    write_segments(capture, more)
    assert [result.number for result in run(lake, capture)] == [lake.done()]
    assert tables_of(lake) == expected(more)


def test_a_job_that_fails_says_why_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    events = history(12, 60)
    capture = write_segments(tmp_path / "capture", events)
    lake = Lake(str(tmp_path / "lake"))
    segment = sorted((capture / "segments").iterdir())[0]

    def lose(step: str, share: float) -> None:
        if step == "plan":
            os.rename(segment, tmp_path / "away")

    with pytest.raises(JobFailed, match=segment.name):
        run_once(spark, lake, opened(capture), progress=lose)
    os.rename(tmp_path / "away", segment)
    run(lake, capture)
    assert tables_of(lake) == expected(events)
