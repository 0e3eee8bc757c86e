"""`report stuck`: messages that should have been processed, the oldest first, and what each of them waits for.

An age is counted up to the last event of the message's own domain in the lake, not up to now: the lake does not know
what happened since, and the capture of one domain may be further behind than that of another. If retention has removed
the message of that last event, the table `channel_minute` still has its minute.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.core.flow.deadletter import SUB_QUEUE
from unibus.pipeline.reports.answer import Answer, Column, Plot, Value
from unibus.pipeline.reports.periods import like, moment
from unibus.pipeline.reports.request import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from unibus.pipeline.lake import Lake

CHANNELS_SHOWN: Final = 12
COLUMNS: Final = [
    Column("domain"),
    Column("channel"),
    Column("sequence", "number", "#"),
    Column("message_id", "id", "message"),
    Column("state", drawn=False),
    Column("why"),
    Column("age_us", "us", "age"),
    Column("untouched_us", "us", "untouched"),
    Column("deliveries", "count", "tries"),
    Column("consumer"),
    Column("enqueued_at", "instant", drawn=False),
]
_TAKEN: Final = ("domain", "channel", "sequence", "message_id", "state", "reason", "delivery_count", "consumer")
_MOMENTS: Final = {"enqueued_at": "enqueued_us", "last_at": "touched_us"}
_NOW: Final = "now_us"
"""The last event of the domain of a message."""
_WHY: Final = {
    "active": "it was never received",
    "deferred": "it was deferred",
    "locked": "a consumer has it",
    "scheduled": "its time has come, and it was not activated",
}


def stuck(spark: "SparkSession", lake: "Lake", request: ReportRequest) -> Answer:
    """`since_us`: only messages without an event since then."""
    messages = lake.view(spark, "messages")
    last = last_us(messages, lake.view(spark, "channel_minute"))
    if not last:
        return Answer(COLUMNS, [])
    rows = waiting(messages, request, last)
    age = F.col(_NOW) - F.unix_micros("enqueued_at")
    oldest = rows.orderBy(age.desc_nulls_first(), "domain", "channel", "sequence").limit(request.limit + 1)
    moments = [F.unix_micros(name).alias(alias) for name, alias in _MOMENTS.items()]
    found = oldest.select(*_TAKEN, *moments, _NOW).collect()
    answer = Answer(COLUMNS, [_row(row) for row in found[: request.limit]], more=len(found) > request.limit)
    if found:
        answer.plots = [_plot(rows)]
        answer.notes = [_as_of(last)]
    return answer


def last_us(messages: "DataFrame", minutes: "DataFrame") -> dict[str, int]:
    """The time of the last event of each domain in the lake."""
    moments = messages.select("domain", F.col("last_at").alias("at")).unionAll(minutes.select("domain", "minute"))
    found = moments.groupBy("domain").agg(F.unix_micros(F.max("at")).alias("us")).collect()
    return {row["domain"]: row["us"] for row in found if row["us"] is not None}


def _as_of(last: dict[str, int]) -> str:
    first, latest = (f"{moment(us):%Y-%m-%d %H:%M:%S}" for us in (min(last.values()), max(last.values())))
    if len(last) == 1:
        return f"as of the last event in the lake: {latest} UTC"
    return f"as of the last event of each domain in the lake: {first} to {latest} UTC"


def waiting(messages: "DataFrame", request: ReportRequest, last: dict[str, int]) -> "DataFrame":
    """Open messages, without those that are scheduled for later or whose lock has not ended."""
    known = F.create_map(*[F.lit(value) for pair in last.items() for value in pair])
    rows = messages.where("open").withColumn(_NOW, known[F.col("domain")].cast("long"))
    rows = rows.where(F.col("due_at").isNull() | (F.unix_micros("due_at") <= F.col(_NOW)))
    if request.channel is not None:
        rows = rows.where(F.col("channel").like(like(request.channel)))
    if request.since_us is not None:
        rows = rows.where(F.col("last_at") < F.timestamp_micros(F.lit(request.since_us)))
    return rows


def _row(row: "Row") -> list[Value]:
    enqueued_us, touched_us, now_us = row["enqueued_us"], row["touched_us"], row[_NOW]
    return [
        row["domain"],
        row["channel"],
        row["sequence"],
        row["message_id"],
        row["state"],
        why(row),
        None if enqueued_us is None else now_us - enqueued_us,
        None if touched_us is None else now_us - touched_us,
        row["delivery_count"],
        row["consumer"],
        None if enqueued_us is None else moment(enqueued_us).isoformat(),
    ]


def why(row: "Row") -> str:
    if row["channel"].endswith(SUB_QUEUE):
        return "dead-lettered: it waits for an operator"
    if row["state"] == "locked":
        return "its lock has ended, and it was not returned"
    if row["state"] == "active" and row["delivery_count"]:
        reason = f" ({row['reason']})" if row["reason"] else ""
        return f"it was returned{reason} and not received again"
    return _WHY.get(row["state"], row["state"] or "")


def _plot(rows: "DataFrame") -> Plot:
    found = rows.groupBy("domain", "channel").count().orderBy(F.desc("count")).limit(CHANNELS_SHOWN).collect()
    labels = [f"{row['domain']} {row['channel']}" for row in found]
    return Plot("most of them are in", labels, [float(row["count"]) for row in found])
