"""`report latency`: how long completed messages took, from histograms.

A percentile of a histogram is exact within the width of a bucket, and histograms of any periods can be added. The
maximum and the mean are exact.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unibus.pipeline.reports.answer import Answer, Column, Plot, Value
from unibus.pipeline.reports.periods import chosen
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.storage.histogram import lower_us, quantile_us, upper_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from unibus.pipeline.lake import Lake

SHARES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
COLUMNS: Final = [
    Column("domain"),
    Column("channel"),
    Column("completed", "count", "done"),
    *[Column(f"{name}_us", "us", name) for name in SHARES],
    Column("max_us", "us", "max"),
    Column("mean_us", "us", "mean"),
    Column("waiting_p50_us", "us", "wait p50"),
    Column("waiting_p95_us", "us", "wait p95"),
    Column("distribution", "series"),
]
ERROR: Final = math.sqrt(upper_us(20) / lower_us(20)) - 1
"""A percentile is the geometric middle of its bucket: this is its largest relative error."""

Counts = list[tuple[int, int]]


def latency(spark: "SparkSession", lake: "Lake", request: ReportRequest) -> Answer:
    rows = chosen(lake.view(spark, "latency_hist"), request, "minute").where(F.col("outcome") == "completed")
    found = by_channel(rows).orderBy(F.desc("n"), "domain", "channel").collect()
    answer = Answer(COLUMNS, [_row(row) for row in found[: request.limit]], more=len(found) > request.limit)
    if found:
        total = _added(_counts(row["total"]) for row in found)
        answer.plots = [_plot(total)]
        answer.notes = [
            f"percentiles are from a histogram, with an error of at most {ERROR:.0%}; max and mean are exact"
        ]
    return answer


def by_channel(rows: "DataFrame") -> "DataFrame":
    """One row per channel, with both histograms as lists of (bucket, n)."""
    total = F.col("measure") == "total"
    parts = rows.groupBy("domain", "channel", "measure", "bucket").agg(
        F.sum("n").alias("n"), F.sum("sum_us").alias("sum_us"), F.max("max_us").alias("max_us")
    )
    pair = F.struct("bucket", "n")
    return parts.groupBy("domain", "channel").agg(
        F.sum(F.when(total, F.col("n")).otherwise(0)).alias("n"),
        F.sum(F.when(total, F.col("sum_us")).otherwise(0)).alias("sum_us"),
        F.max(F.when(total, F.col("max_us"))).alias("max_us"),
        F.collect_list(F.when(total, pair)).alias("total"),
        F.collect_list(F.when(F.col("measure") == "waiting", pair)).alias("waiting"),
        F.max(F.when(F.col("measure") == "waiting", F.col("max_us"))).alias("waiting_max_us"),
    )


def _row(row: "Row") -> list[Value]:
    total, waiting = _counts(row["total"]), _counts(row["waiting"])
    top = row["max_us"]
    mean = row["sum_us"] / row["n"] if row["n"] else None
    shares = [quantile(total, share, top) for share in SHARES.values()]
    waits = [quantile(waiting, share, row["waiting_max_us"]) for share in (0.50, 0.95)]
    return [row["domain"], row["channel"], row["n"], *shares, top, mean, *waits, _doublings(total)[1]]


def quantile(counts: Counts, share: float, top: int | None) -> float | None:
    """At most the maximum."""
    found = quantile_us(counts, share)
    return found if found is None or top is None else min(found, float(top))


def _counts(pairs: "Iterable[Row]") -> Counts:
    return [(pair["bucket"], pair["n"]) for pair in pairs]


def _added(many: Iterable[Counts]) -> Counts:
    total: dict[int, int] = {}
    for counts in many:
        for bucket, n in counts:
            total[bucket] = total.get(bucket, 0) + n
    return sorted(total.items())


def _doublings(counts: Counts) -> tuple[list[int], list[Value]]:
    """Counts by power of two, from the first to the last that is not empty."""
    by_double: dict[int, int] = {}
    for bucket, n in counts:
        double = math.floor(math.log2(max(lower_us(bucket), 1.0)) + 1e-9)
        by_double[double] = by_double.get(double, 0) + n
    places = list(range(min(by_double, default=0), max(by_double, default=-1) + 1))
    return places, [by_double.get(each, 0) for each in places]


def _plot(counts: Counts) -> Plot:
    places, values = _doublings(counts)
    labels = [f"{short(2.0**each)} – {short(2.0 ** (each + 1))}" for each in places]
    return Plot("from enqueued to completed", labels, [float(each) for each in values if isinstance(each, int)])


def short(us: float) -> str:
    for unit, length_us in (("h", 3_600e6), ("m", 60e6), ("s", 1e6), ("ms", 1e3)):
        if us >= length_us:
            return f"{us / length_us:.3g} {unit}"
    return f"{us:.0f} µs"
