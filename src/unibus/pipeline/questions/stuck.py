"""`report stuck`: messages that somebody ought to have dealt with, the oldest first, and what each of them waits for.

Ages are as of the last thing that the lake knows of, not of now: what has happened since then nobody has told it. The
message that it happened to may be forgotten by now; then the minute counts, which is kept apart from messages.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.core.deadletter import SUB_QUEUE
from unibus.pipeline.questions.answer import Answer, Column, Plot, Value
from unibus.pipeline.questions.periods import like, moment
from unibus.pipeline.questions.request import Request

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
    Column("untouched_us", "us", "untouched", spare=True),
    Column("deliveries", "count", "tries", spare=True),
    Column("consumer", spare=True),
    Column("enqueued_at", "instant", drawn=False),
]
_TAKEN: Final = ("domain", "channel", "sequence", "message_id", "state", "reason", "delivery_count", "consumer")
_MOMENTS: Final = {"enqueued_at": "enqueued_us", "last_at": "touched_us"}
_WHY: Final = {
    "active": "nobody has received it",
    "deferred": "it was deferred",
    "locked": "a consumer has it",
    "scheduled": "its time has come, and it was not activated",
}


def stuck(spark: "SparkSession", lake: "Lake", request: Request) -> Answer:
    """`since_us`: only those to which nothing has happened since then."""
    messages = lake.view(spark, "messages")
    now_us = last_us(messages, lake.view(spark, "channel_minute"))
    if now_us is None:
        return Answer(COLUMNS, [])
    rows = waiting(messages, request, now_us)
    oldest = rows.orderBy("enqueued_at", "domain", "channel", "sequence").limit(request.limit + 1)
    found = oldest.select(*_TAKEN, *[F.unix_micros(name).alias(alias) for name, alias in _MOMENTS.items()]).collect()
    answer = Answer(COLUMNS, [_row(row, now_us) for row in found[: request.limit]], more=len(found) > request.limit)
    if found:
        answer.plots = [_plot(rows)]
        answer.notes = [f"as of the last event that the lake has: {moment(now_us):%Y-%m-%d %H:%M:%S} UTC"]
    return answer


def last_us(messages: "DataFrame", minutes: "DataFrame") -> int | None:
    """When the last event was that the lake knows of."""
    moments = messages.select(F.col("last_at").alias("at")).unionAll(minutes.select("minute"))
    found: int | None = moments.agg(F.unix_micros(F.max("at"))).collect()[0][0]
    return found


def waiting(messages: "DataFrame", request: Request, now_us: int) -> "DataFrame":
    """Open, and neither due later nor in the hands of a consumer whose lock has not ended."""
    now = F.timestamp_micros(F.lit(now_us))
    rows = messages.where(F.col("open") & (F.col("due_at").isNull() | (F.col("due_at") <= now)))
    if request.channel is not None:
        rows = rows.where(F.col("channel").like(like(request.channel)))
    if request.since_us is not None:
        rows = rows.where(F.col("last_at") < F.timestamp_micros(F.lit(request.since_us)))
    return rows


def _row(row: "Row", now_us: int) -> list[Value]:
    enqueued_us, touched_us = row["enqueued_us"], row["touched_us"]
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
        return "a dead letter waits for an operator"
    if row["state"] == "locked":
        return "its lock has ended, and it was not returned"
    if row["state"] == "active" and row["delivery_count"]:
        reason = f" ({row['reason']})" if row["reason"] else ""
        return f"it came back{reason} and waits again"
    return _WHY.get(row["state"], row["state"] or "")


def _plot(rows: "DataFrame") -> Plot:
    found = rows.groupBy("domain", "channel").count().orderBy(F.desc("count")).limit(CHANNELS_SHOWN).collect()
    labels = [f"{row['domain']} {row['channel']}" for row in found]
    return Plot("most of them are in", labels, [float(row["count"]) for row in found])
