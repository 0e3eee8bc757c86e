"""The data pipeline: everything that crossed a bus, on Spark. The only room that imports pyspark."""
