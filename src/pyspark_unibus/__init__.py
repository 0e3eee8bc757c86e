"""Where Spark looks for `format("unibus")`: it imports all packages called pyspark_… and asks for this name."""

from unibus.pipeline.connector.source import UnibusSource as DefaultSource

__all__ = ["DefaultSource"]
