"""The data pipeline: the history of buses as Delta tables, computed with Spark. Only this package imports pyspark."""

from unibus.pipeline.spark_python import register

__all__ = ["register"]
