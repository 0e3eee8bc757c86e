"""What a batch computes, as pure functions from Arrow tables to Arrow tables.

Spark gives each task some segments (`task.py`); the task reads them once, with Arrow, and calls all of these on what it
has read. So a batch is one job of Spark without a shuffle, each column is read once for all tables, and rows never go
through the Java machine. The same as DataFrame queries needs more processor time: for reading the segments again for
each table, for writing Parquet, and for the shuffle of traces and of open messages.

| file | what it holds |
|---|---|
| `names` | which channels there are, and their names put beside their keys |
| `adding` | rows of one key become one row |
| `minutes`, `latency`, `failures`, `traces` | the additive tables, in parts |
| `closed` | closed messages: what their last events tell |
| `opened` | open messages: where those stand that have not ended |
| `task` | the one pass over some segments, on an executor |
"""
