"""`report failures`: failed messages by channel, reason and signature: how many, since when, and how many over time."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.pipeline.reports.answer import Answer, Column, Plot
from unibus.pipeline.reports.collecting import collected
from unibus.pipeline.reports.periods import Period, chosen, moment, numbers
from unibus.pipeline.reports.request import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unibus.pipeline.lake import Lake

HOUR_US: Final = 3_600_000_000
COLUMNS: Final = [
    Column("domain"),
    Column("channel"),
    Column("kind"),
    Column("reason"),
    Column("signature", "text", "signature"),
    Column("n", "count"),
    Column("first_at", "instant", drawn=False),
    Column("last_at", "when", "last"),
    Column("sample_message_id", "id", "for instance"),
    Column("over_time", "series", "over time"),
]


def failures(spark: "SparkSession", lake: "Lake", request: ReportRequest) -> Answer:
    rows = chosen(lake.view(spark, "failures"), request, "hour", "hour")
    period = Period.of(rows, "hour", HOUR_US)
    if period is None:
        return Answer(COLUMNS, [])
    found = collected(grouped(rows, period).orderBy(F.desc("n"), F.desc("last_at")).limit(request.limit + 1))
    answer = Answer(COLUMNS, [[*row[:-1], numbers(row[-1])] for row in found[: request.limit]])
    answer.more = len(found) > request.limit
    answer.plots = [_plot(rows, period)]
    answer.notes = [f"{period.note()}; time counts by whole hours"]
    return answer


def grouped(rows: "DataFrame", period: Period) -> "DataFrame":
    return rows.groupBy("domain", "channel", "kind", "reason", "signature").agg(
        F.sum("n").alias("n"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.max("sample_message_id").alias("sample_message_id"),
        period.sums("hour", F.col("n")).alias("over_time"),
    )


def _plot(rows: "DataFrame", period: Period) -> Plot:
    """One bar per hour, or per several hours if there would be too many."""
    found = rows.agg(period.sums("hour", F.col("n")).alias("n")).collect()[0]["n"]
    starts = [moment(period.from_us + each * period.piece_us) for each in range(period.pieces)]
    hours = period.piece_us // HOUR_US
    title = "failures per hour" if hours == 1 else f"failures per {hours} hours"
    return Plot(
        f"{title}, from (UTC)", [f"{each:%m-%d %H:%M}" for each in starts], [float(each or 0) for each in found]
    )
