"""Rows a second through `format("unibus")`: read from segments, all columns and a few, and written into a bus.

Reading: history of the generator, every row read and thrown away by Spark's own sink for that. The limit is Spark
reading the same files as plain Parquet, the same columns: what a virtual machine does without a Python in between.
Writing: rows of a few hundred bytes into a queue on SQLite, from the data frame to the answer of the bus, staging
included. The peer is what one would write by hand: a loop that sends as many rows in batches, without Spark and
without a memory of what was sent; a sink cannot be quicker than that. All in one session that is warm.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.disk import scratch
from benchmarks.durable_bus import url
from benchmarks.durable_load import BODY, QUEUE, in_batches
from benchmarks.measure import Options, check_delivered, rounds_of
from benchmarks.report import Figure, Report
from benchmarks.spark import session, thrown_away
from unibus.pipeline.generator.generate import generate
from unibus.pipeline.generator.world import WorldPlan
from unibus.sync import MessageBus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 500_000
"""Some two million events."""
WRITTEN = 100_000
LOOP_BATCH = 2_000
"""As many as the sink puts into one transaction."""
ROUNDS_MAX = 3
FEW = ("seq", "ts", "channel", "kind_code")

Trial = Callable[[int], float]


def run(options: Options) -> Report:
    few = Options(min(options.rounds, ROUNDS_MAX), options.quick)
    with scratch() as folder, session() as spark:
        figures = [*_reading(spark, folder, few), *_writing(spark, folder, few)]
    return Report("connector", tuple(figures))


def _reading(spark: "SparkSession", folder: Path, options: Options) -> list[Figure]:
    made = generate(str(folder / "history"), WorldPlan(options.count(MESSAGES)))
    files = [str(path) for path in sorted((folder / "history").glob("*/segments/*.parquet"))]
    history = spark.read.parquet(*files)
    ours = spark.read.format("unibus").load(str(folder / "history"))
    pruned = spark.read.format("unibus").option("columns", ",".join(FEW)).load(str(folder / "history"))
    frames = {
        "all": ours,
        "few": pruned,
        "files all": history,
        "files few": history.select(*FEW),
    }
    for frame in (ours, history):
        check_delivered(frame.select("seq").count(), made.events)
    trials = {name: partial(_read, frame) for name, frame in frames.items()}
    best = {name: max(rates) for name, rates in rounds_of(trials, made.events, options).items()}
    return [
        Figure("read, all columns", "rows/s", best["all"], limit=best["files all"]),
        Figure(f"read, {len(FEW)} columns", "rows/s", best["few"], limit=best["files few"]),
    ]


def _read(frame: "DataFrame", count: int) -> float:
    start = perf_counter()
    thrown_away(frame)
    return count / (perf_counter() - start)


def _writing(spark: "SparkSession", folder: Path, options: Options) -> list[Figure]:
    turns = iter(range(1_000_000))

    def fresh() -> Path:
        return folder / f"bus-{next(turns)}.db"

    trials: dict[str, Trial] = {
        "ours": lambda count: _sink(spark, fresh(), count),
        "loop": lambda count: _loop(fresh(), count),
    }
    best = {name: max(rates) for name, rates in rounds_of(trials, options.count(WRITTEN), options).items()}
    return [Figure("write", "rows/s", best["ours"], peers={"a loop of send_many": best["loop"]})]


def _sink(spark: "SparkSession", path: Path, count: int) -> float:
    _with_queue(path)
    text = BODY.decode()
    rows = spark.range(count).selectExpr("concat('m', id) AS message_id", f"'{text}' AS body")
    start = perf_counter()
    rows.write.format("unibus").option("url", url(path)).option("channel", QUEUE).mode("append").save()
    elapsed = perf_counter() - start
    _check_there(path, count)
    return count / elapsed


def _loop(path: Path, count: int) -> float:
    _with_queue(path)
    start = perf_counter()
    with MessageBus(url(path)) as bus:
        for batch in in_batches(count, LOOP_BATCH):
            bus.send_many(QUEUE, batch)
        elapsed = perf_counter() - start
    _check_there(path, count)
    return count / elapsed


def _with_queue(path: Path) -> None:
    with MessageBus(url(path)) as bus:
        bus.create_queue(QUEUE)


def _check_there(path: Path, count: int) -> None:
    with MessageBus(url(path)) as bus:
        (queue,) = [entity for entity in bus.entities() if entity.name == QUEUE]
        check_delivered(queue.active, count)
