"""Writing into a bus from a session: rows arrive, and a batch that fails or comes again has one effect."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.pipeline.histories import capture, small_bus, url_of
from unibus.sync import MessageBus


def test_rows_arrive_once(spark: SparkSession, tmp_path: Path) -> None:
    url = url_of(tmp_path / "bus.db")
    frame = spark.range(1, 31, numPartitions=3).select(
        f.when(f.col("id") % 2 == 0, "even").otherwise("odd").alias("channel"),
        f.struct("id", f.lit("x").alias("name")).alias("body"),
        f.create_map(f.lit("number"), f.col("id").cast("string")).alias("headers"),
        f.concat(f.lit("m"), f.col("id")).alias("message_id"),
    )
    writing = frame.write.format("unibus").mode("append").options(url=url, query="once", rowsPerTransaction="4")
    for _ in range(2):
        writing.save()
    with MessageBus(url) as bus:
        even, odd = bus.peek("even", 100), bus.peek("odd", 100)
    assert [message.body for message in even] == [{"id": number, "name": "x"} for number in range(2, 31, 2)]
    assert sorted(message.headers["number"] for message in odd) == sorted(str(number) for number in range(1, 31, 2))
    assert [message.id for message in even] == [f"m{number}" for number in range(2, 31, 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bus.db", "bus.db.lock"]


def test_what_was_read_can_be_sent_again(spark: SparkSession, tmp_path: Path) -> None:
    before = small_bus(tmp_path / "bus.db", 3)
    read = spark.read.format("unibus").options(bodies="true", kinds="sent").load(before)
    again = read.select("channel", "body", "content_type", "headers", "message_id", "correlation_id")
    after = url_of(tmp_path / "other.db")
    again.write.format("unibus").mode("append").option("url", after).save()
    with MessageBus(after) as bus:
        orders, bills = bus.peek("orders", 10), bus.peek("bills", 10)
    assert [message.body for message in bills] == [b"\x00raw"]
    assert [(message.body, message.correlation_id) for message in orders] == [({"n": n}, f"c{n}") for n in range(3)]


def test_a_bus_that_somebody_owns_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    url = url_of(tmp_path / "bus.db")
    frame = spark.createDataFrame([("out", "x")], "channel string, body string")
    with MessageBus(url), pytest.raises(Exception, match=r"StoreBusy: bus.db is in use by process \d+") as caught:
        frame.write.format("unibus").mode("append").option("url", url).save()
    assert "a store has one owner" in str(caught.value)
    assert not (tmp_path / "bus.db.staging").exists()


def test_wrong_columns_are_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("out", "x")], "channel string, boddy string")
    with pytest.raises(AnalysisException, match=r"no column 'boddy' .did you mean 'body'"):
        frame.write.format("unibus").mode("append").option("url", url_of(tmp_path / "bus.db")).save()


def test_another_stream_of_the_same_name_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    """Only Spark knows the path of its checkpoint: the tasks have the id that distinguishes it from the first one."""
    url = url_of(tmp_path / "bus.db")
    events = spark.readStream.format("unibus").option("columns", "seq").load(str(capture(tmp_path / "events", 3)))
    rows = events.select(f.lit("out").alias("channel"), f.col("seq").alias("body"))
    setting = "spark.sql.streaming.checkpointLocation"

    def run(place: str) -> None:
        spark.conf.set(setting, str(tmp_path / place))
        try:
            writing = rows.writeStream.format("unibus").options(url=url, query="orders").trigger(availableNow=True)
            writing.start().awaitTermination()
        finally:
            spark.conf.unset(setting)

    run("a")
    with pytest.raises(StreamingQueryException, match="'orders' was written from another checkpoint"):
        run("b")
    with MessageBus(url) as bus:
        assert [message.body for message in bus.peek("out", 100)] == [1, 2, 3]


def test_a_stream_writes_each_row_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """The queue is too small for the first batch: some of it is in the bus, then the query fails, and starts again.

    Bodies hold a random number: the second try computes other rows, and none of them may show.
    """
    url = url_of(tmp_path / "bus.db")
    with MessageBus(url) as bus:
        bus.create_queue("out", max_size_mb=1)
    folder = capture(tmp_path / "events", 150)
    events = spark.readStream.format("unibus").option("columns", "seq").load(str(folder))
    rows = events.select(
        f.lit("out").alias("channel"),
        f.concat_ws(" ", "seq", f.rand().cast("string"), f.repeat(f.lit("x"), 10_000)).alias("body"),
    )
    writing = rows.writeStream.format("unibus").options(url=url, rowsPerTransaction="50").trigger(availableNow=True)

    def run() -> None:
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    with pytest.raises(StreamingQueryException, match="QuotaExceeded"):
        run()
    with MessageBus(url) as bus:
        first = [message.body for message in bus.peek("out", 1_000)]
        bus.update_entity("out", max_size_mb=100)
    run()
    capture(folder, 7)
    run()
    with MessageBus(url) as bus:
        found = [str(message.body) for message in bus.peek("out", 1_000)]
    assert len(first) in (50, 100)
    assert found[: len(first)] == first
    assert [int(body.split()[0]) for body in found] == list(range(1, 158))
    assert not (tmp_path / "checkpoint" / "unibus-staging").exists()
