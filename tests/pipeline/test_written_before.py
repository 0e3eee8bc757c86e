"""A capture and a lake that an earlier version wrote (tests/contract/written): reports and runs read them."""

import shutil
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unibus.capture.sources import open_sources
from unibus.pipeline.lake import Lake
from unibus.pipeline.reports.asking import answer
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.run import run_all

WRITTEN = Path(__file__).parents[1] / "contract" / "written" / "lake.zip"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.unpack_archive(WRITTEN, tmp_path)
    return tmp_path


def test_a_report_on_the_lake(spark: SparkSession, folder: Path) -> None:
    found = answer(spark.newSession(), Lake(str(folder / "lake")), ReportRequest("failures"))
    rows = [(row["channel"], row["kind"], row["reason"], row["n"], row["first_at"]) for row in found.records()]
    at = [datetime.fromisoformat(str(row[-1])).strftime("%Y-%m-%d %H") for row in rows]
    assert sorted(zip([row[:-1] for row in rows], at, strict=True)) == [
        (("news/Subscriptions/all", "dead_lettered", "Unread", 1), "2026-01-01 01"),
        (("orders", "dead_lettered", "Broken", 1), "2026-01-01 00"),
        (("orders", "returned", "abandoned", 1), "2026-01-01 00"),
    ]


def test_a_run_knows_which_events_the_lake_has(folder: Path) -> None:
    sources = open_sources(str(folder / "captures"))
    assert [(source.domain, source.last()) for source in sources] == [("local", 72)]
    assert list(run_all(None, Lake(str(folder / "lake")), sources)) == []
    batches = list(run_all(None, Lake(str(folder / "fresh")), open_sources(str(folder / "captures"))))
    assert [(batch.events, batch.closed) for batch in batches] == [(72, 6)], "the capture itself is readable too"
