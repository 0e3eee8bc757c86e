"""`report channels`: how many messages each channel received, completed and failed, and how that changed over time."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.capture.schema import CAME
from unibus.pipeline.reports.answer import Answer, Column
from unibus.pipeline.reports.collecting import collected
from unibus.pipeline.reports.periods import Period, chosen, numbers
from unibus.pipeline.reports.request import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unibus.pipeline.lake import Lake

MINUTE_US: Final = 60_000_000
_COUNTED: Final = ("delivered", "completed", "returned", "dead_lettered", "expired")
_TITLES: Final = {"dead_lettered": "dead", "completed": "done", "returned": "back"}
COLUMNS: Final = [
    Column("domain"),
    Column("channel"),
    Column("came", "count"),
    *[Column(name, "count", _TITLES.get(name, "")) for name in _COUNTED],
    Column("bytes", "bytes"),
    Column("per_s", "rate", "per s"),
    Column("came_over_time", "series", "over time"),
]


def channels(spark: "SparkSession", lake: "Lake", request: ReportRequest) -> Answer:
    rows = chosen(lake.view(spark, "channel_minute"), request, "minute").where(F.col("channel") != "")
    period = Period.of(rows, "minute", MINUTE_US)
    if period is None:
        return Answer(COLUMNS, [])
    found = collected(counted(rows, period).orderBy(F.desc("came"), "domain", "channel").limit(request.limit + 1))
    answer = Answer(COLUMNS, [[*row[:-1], numbers(row[-1])] for row in found[: request.limit]])
    answer.more = len(found) > request.limit
    answer.notes = [period.note()]
    return answer


def counted(rows: "DataFrame", period: Period) -> "DataFrame":
    """One row per channel."""
    came = F.when(F.col("kind").isin(*sorted(CAME), "published"), F.col("n")).otherwise(0)
    size = F.when(F.col("kind").isin(*sorted(CAME), "published"), F.col("bytes")).otherwise(0)
    return rows.groupBy("domain", "channel").agg(
        F.sum(came).alias("came"),
        *[F.sum(F.when(F.col("kind") == name, F.col("n")).otherwise(0)).alias(name) for name in _COUNTED],
        F.sum(size).alias("bytes"),
        (F.sum(came) / F.lit(period.seconds)).alias("per_s"),
        period.sums("minute", came).alias("came_over_time"),
    )
