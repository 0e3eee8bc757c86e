"""A program that drives the pipeline on a cluster: a process has one kind of session, and the tests have a local one.

Its argument is an order as JSON. The job itself is `work`, and the tests call the same for their own session.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tests.pipeline.cluster import executors
from unibus.capture.sources import open_sources
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_once
from unibus.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Order(msgspec.Struct, frozen=True):
    """`folder` gets a lake and the answers. `captures` are what the sources were, batch after batch; of these batches
    `made` are there already."""

    folder: str
    captures: list[str]
    made: int = 0
    master: str | None = None
    connect: str | None = None


def work(spark: "SparkSession", order: Order) -> None:
    """All tables in several batches, one question over them, and the history as Spark's reader gives it."""
    lake = Lake(os.path.join(order.folder, "lake"))
    assert lake.done() == order.made
    for capture in order.captures[order.made :]:
        sources = open_sources(capture)
        try:
            assert run_once(spark, lake, sources) is not None
            assert run_once(spark, lake, sources) is None
        finally:
            for source in sources:
                source.close()
    _keep(order, "question", lake.view(spark, "messages").groupBy("domain", "channel", "outcome").count().toArrow())
    _keep(order, "application", pa.table({"id": [spark.conf.get("spark.app.id")]}))
    _keep(order, "events", spark.read.format("unibus").load(order.captures[0]).toArrow())


def _keep(order: Order, name: str, table: pa.Table) -> None:
    pq.write_table(table, os.path.join(order.folder, f"{name}.parquet"))


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    on_a_cluster = executors() if order.master else None
    spark = open_session(order.master, order.connect, on_a_cluster, quick=True)
    try:
        work(spark, order)
    finally:
        spark.stop()


def command(order: Order) -> list[str]:
    return [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.pipeline.cluster_driver",
        json.dumps(msgspec.to_builtins(order)),
    ]


def kept(folder: Path, name: str) -> pa.Table:
    return pq.read_table(folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
