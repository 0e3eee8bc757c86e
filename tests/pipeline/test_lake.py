"""The lake for those who read it, and what keeps it small."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipeline.histories import small_bus
from tests.pipeline.lake_histories import BEGAN_US, history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.sources import open_sources
from unibus.core.lifecycle.events import Event
from unibus.errors import StoreVersion, UsageError
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_all
from unibus.pipeline.storage.delta import DeltaFolder
from unibus.pipeline.storage.tables import CHANNEL_MINUTE, TABLES, LakeTable
from unibus.pipeline.upkeep import MANY_FILES, compact, retain, tidy, vacuum
from unibus.sync import MessageBus

HOUR_US = 3_600_000_000


def lake_of(place: Path, seed: int = 1, batches: int = 4, operations: int = 200) -> tuple[Lake, dict[str, object]]:
    events = history(seed, operations)
    lake = Lake(str(place / "lake"))
    step = len(events) // batches + 1
    for end in range(step, len(events) + step, step):
        sources = open_sources(str(write_segments(place / "capture", events[:end])))
        list(run_all(None, lake, sources))
    return lake, dict(expected(events))


def test_spark_sees_the_tables_and_the_events(spark: SparkSession, tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path)
    lake.register(spark)
    try:
        counted = spark.sql(
            "select count(*), sum(cast(open as int)), (select sum(n) from channel_minute),"
            " (select count(*) from events) from messages"
        ).collect()[0]
        rows = wanted["messages"]
        assert isinstance(rows, list)
        events = sum(each["n"] for each in wanted["channel_minute"])  # type: ignore[attr-defined]
        assert tuple(counted) == (len(rows), sum(row["open"] for row in rows), events, events)
        assert {row["viewName"] for row in spark.sql("show views").collect()} >= {*TABLES, "events", "bodies"}
        assert lake.view(spark, "messages").columns == TABLES["messages"].schema.names
    finally:
        for name in (*TABLES, "events", "bodies"):
            spark.catalog.dropTempView(name)


def test_sparks_own_reader_finds_the_partition_in_the_path(spark: SparkSession, tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path)
    rows = wanted["messages"]
    assert isinstance(rows, list)
    found = spark.read.option("basePath", lake.folder("messages").path).parquet(*lake.files("messages"))
    counted = found.selectExpr("count(*)", "count_if(open = 'true')", "count_if(open is null)").collect()[0]
    assert tuple(counted) == (len(rows), sum(row["open"] for row in rows), 0)


def test_a_segment_that_was_put_aside_does_not_end_queries(spark: SparkSession, tmp_path: Path) -> None:
    capture = write_segments(tmp_path / "capture", history(5, 150), size=30)
    spoiled = sorted((capture / "segments").iterdir())[1]
    spoiled.write_bytes(b"nothing")
    lake = Lake(str(tmp_path / "lake"))
    sources = open_sources(str(capture))
    (result,) = run_all(None, lake, sources)
    lake.register(spark, sources)
    try:
        counted = spark.sql("select count(*), count_if(seq between 31 and 60) from events").collect()[0]
        assert tuple(counted) == (result.events, 0)
    finally:
        for name in (*TABLES, "events", "bodies"):
            spark.catalog.dropTempView(name)


def test_the_history_of_a_store_can_be_asked_too(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    captured = write_segments(tmp_path / "capture", history(5, 50, "east"), "east")
    url = small_bus(tmp_path / "bus.db")
    with MessageBus(url) as bus:
        bus.send("bills", None, headers={"only": "headers"})
    sources = open_sources([url, str(captured)])
    (result,) = run_all(None, lake, sources)
    assert lake.history(spark, "events", sources).count() == result.events
    sent = lake.history(spark, "events", sources).where("domain = 'local' and kind = 'sent'").select("seq").collect()
    stored = lake.history(spark, "bodies", sources).where("domain = 'local'").select("seq").collect()
    assert sorted(stored) == sorted(sent)
    bodies = lake.history(spark, "bodies", sources).where("domain = 'local' and channel = 'orders'").orderBy("seq")
    assert [bytes(row["body"]) for row in bodies.collect()] == [b'{"n":%d}' % number for number in range(10)]


def test_an_empty_lake_has_empty_tables_and_makes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    assert lake.view(spark, "messages").count() == 0
    assert (lake.tables(), lake.done(), lake.positions(), lake.sources(), lake.last_batch()) == ([], 0, {}, [], None)
    assert not (tmp_path / "lake").exists()


def test_others_read_it_as_plain_delta(tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path)
    rows = pa.table(DeltaTable(lake.folder("messages").path).to_pyarrow_dataset().to_table())
    assert rows.num_rows == len(wanted["messages"])  # type: ignore[arg-type]
    assert sum(rows["open"].to_pylist()) == sum(row["open"] for row in wanted["messages"])  # type: ignore[attr-defined]


def test_a_lake_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lake.json").write_text('{"format": 2, "sources": []}')
    with pytest.raises(StoreVersion, match="format 2"):
        Lake(str(tmp_path))


def test_compaction_changes_no_result_and_few_files_are_left(tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path, seed=2, batches=6)
    found = compact(lake)
    for name in ("channel_minute", "latency_hist", "failures", "traces", "batches"):
        assert found[name] == (found[name][0], 1)
        assert found[name][0] > 3
    assert tables_of(lake) == wanted
    assert lake.positions()["local"] == lake.last_batch()["ranges"][0]["up_to"]  # type: ignore[index]
    assert compact(lake)["traces"] == (1, 1)


def test_a_loop_that_runs_long_keeps_files_few(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    folder = lake.folder("channel_minute")
    row = dict.fromkeys(CHANNEL_MINUTE.schema.names) | {"n": 1, "bytes": 2, "kind": "sent"}
    part = pa.Table.from_pylist([row], schema=CHANNEL_MINUTE.schema)
    folder.commit([folder.write(part, 1) for _ in range(MANY_FILES - 1)], batch=1)
    tidy(lake)
    assert len(folder.files()) == MANY_FILES - 1
    folder.commit([folder.write(part, 2)], batch=2)
    tidy(lake)
    (file,) = folder.files()
    assert folder.read([file])["n"].to_pylist() == [MANY_FILES]


def test_retention_removes_what_is_old_and_leaves_what_is_open(tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path, seed=3)
    rows = wanted["messages"]
    assert isinstance(rows, list)
    closed = sorted(row["last_at"] for row in rows if not row["open"])
    middle = closed[len(closed) // 2]
    kept_us = 10 * HOUR_US
    now_us = int(middle.timestamp() * 1_000_000) + kept_us
    gone = retain(lake, {"messages": kept_us, "channel_minute": kept_us}, now_us)
    assert gone["messages"] == sum(moment < middle for moment in closed)
    left = tables_of(lake)
    assert left["messages"] == [row for row in rows if row["open"] or row["last_at"] >= middle]
    assert all(row["minute"] >= middle for row in left["channel_minute"])
    assert left["traces"] == wanted["traces"]
    assert retain(lake, {"batches": 0}, time.time_ns()) == {"batches": lake.done() - 1}
    assert lake.positions()["local"] > 0
    with pytest.raises(UsageError, match="channels"):
        retain(lake, {"channels": 1}, now_us)


def test_vacuum_removes_what_no_commit_names(tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path)
    folder = lake.folder("channel_minute")
    stray = Path(folder.path) / "b00000009-of-an-attempt-that-was-ended.parquet"
    stray.write_bytes(b"")
    compact(lake)
    assert vacuum(lake, hours=24) == []
    assert stray.exists()
    gone = vacuum(lake, hours=0)
    assert not stray.exists()
    assert len(gone) > 10
    assert tables_of(lake) == wanted


def test_a_column_that_is_new_is_null_in_older_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake, wanted = lake_of(tmp_path, batches=2)
    grown = LakeTable(
        CHANNEL_MINUTE.name,
        CHANNEL_MINUTE.schema.append(pa.field("retries", pa.int64())),
        adds={**CHANNEL_MINUTE.adds, "retries": "sum"},
        moment="minute",
    )
    old = lake.folder("channel_minute")
    new = DeltaFolder(old.path, grown)
    lake._folders["channel_minute"] = new  # A version of tomorrow looks at the lake of today.
    assert lake.view(spark, "channel_minute").selectExpr("count(retries)", "sum(n) > 0").collect()[0][:] == (0, True)
    row = dict.fromkeys(grown.schema.names) | {"n": 1, "bytes": 0, "retries": 7}
    new.commit([new.write(pa.Table.from_pylist([row], schema=grown.schema), 9)], batch=9)
    assert lake.view(spark, "channel_minute").selectExpr("sum(retries)").collect()[0][0] == 7
    compact(lake, ["channel_minute"])
    assert new.read(new.files()).num_rows == len(wanted["channel_minute"]) + 1  # type: ignore[arg-type]
    # And the version of today reads what tomorrow's has written.
    today = Lake(lake.path)
    assert today.view(spark, "channel_minute").columns[-1] == "retries"
    assert today.folder("channel_minute").read(old.files())["n"].null_count == 0


def test_open_messages_that_did_not_move_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files of at most three rows."""
    monkeypatch.setattr("unibus.pipeline.batch.OPEN_ROWS", 3)
    monkeypatch.setattr("unibus.pipeline.batch._SMALL_ROWS", 0)
    events = [Event(seq, BEGAN_US + seq, "local", "orders", "sent", seq, f"m{seq}") for seq in range(1, 8)]
    events.append(Event(8, BEGAN_US + 8, "local", "orders", "delivered", 2, "m2", delivery_count=1))
    events.append(Event(9, BEGAN_US + 9, "local", "orders", "dropped", 7))
    lake = Lake(str(tmp_path / "lake"))
    batches: list[list[str]] = []
    for end in (7, 8, 9):
        list(run_all(None, lake, open_sources(str(write_segments(tmp_path / "capture", events[:end])))))
        assert tables_of(lake) == expected(events[:end])
        batches.append(sorted(file.name[:9] for file in lake.folder("messages").files() if file.open))
    assert batches == [["b00000001"] * 3, ["b00000001", "b00000001", "b00000002"], []]
