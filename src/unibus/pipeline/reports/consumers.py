"""`report consumers`: what each consumer has completed and failed, how long it took, and what it has in flight."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.pipeline.reports.answer import Answer, Column
from unibus.pipeline.reports.collecting import collected
from unibus.pipeline.reports.periods import chosen
from unibus.pipeline.reports.request import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import Column as Column_
    from pyspark.sql import DataFrame, SparkSession

    from unibus.pipeline.lake import Lake

COLUMNS: Final = [
    Column("domain"),
    Column("channel"),
    Column("consumer"),
    Column("completed", "count", "done"),
    Column("dead_lettered", "count", "dead"),
    Column("in_hand", "count", "in flight"),
    Column("deliveries", "number", "tries"),
    Column("work_mean_us", "us", "work mean"),
    Column("work_max_us", "us", "work max"),
    Column("last_seen", "when", "last seen"),
]


def consumers(spark: "SparkSession", lake: "Lake", request: ReportRequest) -> Answer:
    rows = chosen(lake.view(spark, "messages"), request, "last_at", "microsecond")
    ordered = worked(rows).orderBy(F.desc("completed"), "domain", "channel", "consumer")
    found = collected(ordered.limit(request.limit + 1))
    answer = Answer(COLUMNS, found[: request.limit], more=len(found) > request.limit)
    if found:
        answer.notes = ["work is the time from the first delivery to the end, including redeliveries"]
    return answer


def worked(rows: "DataFrame") -> "DataFrame":
    """One row per channel and consumer, of messages that a consumer has settled or has in flight. Receivers without a
    name count as one consumer, whose name is null."""
    named = F.when(F.col("consumer") != "", F.col("consumer"))
    took = F.unix_micros("last_at") - F.unix_micros("first_delivered_at")
    done = (~F.col("open")) & F.col("first_delivered_at").isNotNull()

    def count(which: "Column_") -> "Column_":
        return F.sum(F.when(which, 1).otherwise(0))

    return (
        rows.withColumn("consumer", named)
        .where(F.col("consumer").isNotNull() | F.col("first_delivered_at").isNotNull())
        .groupBy("domain", "channel", "consumer")
        .agg(
            count(F.col("outcome") == "completed").alias("completed"),
            count(F.col("outcome") == "dead_lettered").alias("dead_lettered"),
            count(F.col("open") & (F.col("state") == "locked")).alias("in_hand"),
            F.round(F.avg(F.when(done, F.col("delivery_count"))), 2).alias("deliveries"),
            F.avg(F.when(done, took)).alias("work_mean_us"),
            F.max(F.when(done, took)).alias("work_max_us"),
            F.max("last_at").alias("last_seen"),
        )
    )
