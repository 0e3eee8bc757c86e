"""Spark for benchmarks: one session with the settings of the pipeline, on all cores of this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.cpu import Family

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def session() -> Iterator["SparkSession"]:
    from unibus.pipeline.session import local_session

    spark = local_session()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def family_of(spark: "SparkSession") -> Family:
    """This process, the virtual machine, which has no parent here, and its Python workers."""
    assert spark._jvm is not None
    return Family(os.getpid(), int(spark._jvm.java.lang.ProcessHandle.current().pid()))


def thrown_away(frame: "DataFrame") -> None:
    """Every row is made, with all of its columns, and given to a sink that does nothing with it."""
    frame.write.format("noop").mode("overwrite").save()
