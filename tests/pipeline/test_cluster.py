"""The same job on three kinds of Spark: in this process, on a standalone cluster, and through Spark Connect.

One cluster for all tests, from the pip package. Whatever it is made by, a lake has the same rows.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipeline.cluster import WORKERS, Cluster, run, running
from tests.pipeline.cluster_driver import Order, command, kept, work
from unibus.capture.schema import EVENTS
from unibus.capture.sources import open_sources
from unibus.pipeline.generator.generate import generate
from unibus.pipeline.generator.world import WorldPlan
from unibus.pipeline.storage.tables import TABLES

SEGMENT_ROWS = 600
DIFFERENT = {"batches": {"at", "seconds"}, "quarantine": {"at"}}
"""Columns with the time of a batch. They differ from run to run."""


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A folder with some history of three domains, and the same some time later, when a segment has been damaged."""
    folder = tmp_path_factory.mktemp("captures")
    later = folder / "later"
    generate(str(later), WorldPlan(1_500, domains=3, channels=10, hours=2.0), segment_rows=SEGMENT_ROWS)
    shutil.copytree(later, folder / "sooner")
    for manifest in (folder / "sooner").glob("*/manifest.jsonl"):
        lines = manifest.read_text("utf-8").splitlines(keepends=True)
        assert len(lines) > 1
        manifest.write_text("".join(lines[: len(lines) // 2]), "utf-8")
    damaged = max((later / "shop" / "segments").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-100])
    return [str(folder / "sooner"), str(later)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster")) as running_one:
        yield running_one


@pytest.fixture(scope="module")
def here(spark: SparkSession, captures: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this process makes of it, by which the others are measured."""
    folder = tmp_path_factory.mktemp("here")
    work(spark, Order(str(folder), captures))
    return folder


@pytest.fixture(scope="module", params=["master", "connect"])
def there(
    request: pytest.FixtureRequest, cluster: Cluster, captures: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the cluster makes of it. Through Connect the first batch is made by the command, as a user does it."""
    folder = tmp_path_factory.mktemp(request.param)
    place = {request.param: getattr(cluster, request.param)}
    made = 0
    try:
        if request.param == "connect":
            asked = ["--once", "--connect", cluster.connect, "--from", captures[0], "--lake", str(folder / "lake")]
            run("command", Path(cluster.folder), [sys.executable, "-m", "unibus", "pipeline", "run", *asked])
            made = 1
        run(f"job-{request.param}", Path(cluster.folder), command(Order(str(folder), captures, made, **place)))
    except RuntimeError as error:
        pytest.fail(f"{error}\n{cluster.logs()}")
    return folder


def rows(table: pa.Table, without: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """In an order of their own, and comparable whatever they hold."""
    names = sorted(name for name in table.column_names if name not in without)
    return sorted(json.dumps(row, default=str) for row in table.select(names).to_pylist())


def table_of(folder: Path, name: str) -> pa.Table:
    """By delta-rs alone."""
    return pa.table(DeltaTable(folder / "lake" / name).to_pyarrow_table())


def test_this_process_makes_every_table(here: Path, captures: list[str]) -> None:
    """Else the comparison below would compare nothing."""
    counts = {name: table_of(here, name).num_rows for name in TABLES}
    assert min(counts.values()) > 0, counts
    assert counts["batches"] == 2
    assert counts["quarantine"] == 1
    segments = [piece for source in open_sources(captures[1]) for piece in source.pieces(0, source.last())]
    lost = table_of(here, "quarantine").to_pylist()[0]
    expected = sum(piece.rows for piece in segments) - (lost["last"] - lost["first"] + 1)
    assert sum(table_of(here, "channel_minute")["n"].to_pylist()) == expected


def test_tables_made_there_are_those_made_here(here: Path, there: Path) -> None:
    for name in TABLES:
        without = DIFFERENT.get(name, set())
        assert rows(table_of(there, name), without) == rows(table_of(here, name), without), name


def test_a_question_has_the_same_answer(here: Path, there: Path) -> None:
    assert rows(kept(there, "question")) == rows(kept(here, "question"))


def test_the_reader_gives_the_same_rows(here: Path, there: Path, captures: list[str]) -> None:
    """The events that are in the segments."""
    found = kept(there, "events")
    stored = [batch for s in open_sources(captures[0]) for piece in s.pieces(0, s.last()) for batch in s.read(piece)]
    assert found.column_names == EVENTS.names
    assert rows(found) == rows(kept(here, "events")) == rows(pa.Table.from_batches(stored))


def test_every_worker_had_a_share(cluster: Cluster, there: Path) -> None:
    application = kept(there, "application")["id"][0].as_py()
    for number in range(1, WORKERS + 1):
        logs = list(Path(cluster.folder, f"worker{number}", application).glob("*/stderr"))
        assert any("Running task" in log.read_text("utf-8", "replace") for log in logs), f"worker {number} did nothing"
