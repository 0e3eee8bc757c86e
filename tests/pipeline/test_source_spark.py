"""`format("unibus")` in a session: found without registering, equal to the store's own history, once over restarts."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.pipeline.histories import capture, event, small_bus
from unibus.core.lifecycle.events import Event
from unibus.stores.sqlite.outside_cursors import shown_cursors
from unibus.sync import MessageBus


def test_a_batch_is_the_history_of_the_store(spark: SparkSession, tmp_path: Path) -> None:
    url = small_bus(tmp_path / "bus.db")
    with MessageBus(url) as bus, bus.transaction() as block:
        events, _ = block.store.history.events_after(0)
        # The bus is open, and read beside its owner.
        found = spark.read.format("unibus").load(url).orderBy("seq").collect()
    assert len(events) > 15
    assert [_event_of(row) for row in found] == events


def _event_of(row: Any) -> Event:
    values = row.asDict()
    values["ts"] = round(values["ts"].timestamp() * 1_000_000)
    return Event(**{name: values[name] for name in Event.__struct_fields__})


def test_few_columns_of_few_rows(spark: SparkSession, tmp_path: Path) -> None:
    folder = capture(tmp_path / "ten", 4, 6)
    reader = spark.read.format("unibus").option("channels", "bill*").schema("kind string, seq long")
    found = reader.option("endingOffsets", "8").load(str(folder))
    assert [tuple(row) for row in found.collect()] == [("sent", 3), ("sent", 6)]
    # What is counted needs no column at all.
    assert spark.read.format("unibus").load(str(folder)).count() == 10


def test_filters_are_pushed_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    folder = capture(tmp_path / "ten", 4, 6)
    asked = spark.read.format("unibus").option("pushdown", "true").load(str(folder))
    wanted = (
        "seq > 2 AND ts < timestamp'2026-09-21 14:13:28' AND channel = 'orders' AND message_id IN ('m4', 'm5', 'm10')"
    )
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        chosen = asked.where(wanted)
        assert sorted(row.seq for row in chosen.collect()) == [4, 5]
        plan = chosen._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert "Filter (" not in plan


def test_a_wrong_option_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"no option 'chanels' .did you mean 'channels'"):
        spark.read.format("unibus").option("chanels", "x").load(str(tmp_path))


class Taken:
    """What batches brought, for `foreachBatch`; on wish it fails before it has taken one."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fails_at = -1

    def __call__(self, frame: DataFrame, number: int) -> None:
        if number == self.fails_at:
            raise RuntimeError("lost on the way")
        assert number not in self.batches
        self.batches[number] = sorted(row.seq for row in frame.select("seq").collect())


def test_a_stream_reads_every_event_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """The very first batch fails. `latest` is another place by then, and what lies between must not be lost."""
    folder = capture(tmp_path / "events", 4, 4)
    taken = Taken()
    taken.fails_at = 0

    def run(**options: str) -> StreamingQuery:
        stream = spark.readStream.format("unibus").options(cursor="watch", columns="seq,kind", **options)
        writing = stream.load(str(folder)).writeStream.foreachBatch(taken)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    with pytest.raises(StreamingQueryException, match="lost on the way"):
        run(startingOffsets="1", maxEventsPerTrigger="5")
    capture(folder, 2)
    taken.fails_at = 2
    with pytest.raises(StreamingQueryException, match="lost on the way"):
        run(startingOffsets="latest", maxEventsPerTrigger="3")
    assert taken.batches == {0: [2, 3, 4, 5, 6], 1: [7, 8, 9]}
    capture(folder, 2)
    taken.fails_at = -1
    query = run(startingOffsets="latest")
    assert taken.batches == {0: [2, 3, 4, 5, 6], 1: [7, 8, 9], 2: [10], 3: [11, 12]}
    assert shown_cursors(f"{folder}/capture") == {"watch": 12}
    assert query.lastProgress is not None
    assert query.lastProgress.sources[0].latestOffset == '{"local": 12}'


def test_the_generated_events_are_what_these_tests_say() -> None:
    assert [(event(seq).channel, event(seq).kind) for seq in (1, 2, 3)] == [
        ("orders", "delivered"),
        ("orders", "completed"),
        ("bills", "sent"),
    ]
