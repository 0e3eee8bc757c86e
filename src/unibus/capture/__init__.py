"""Capture: history becomes sealed Parquet segments, beside the bus and without Spark.

    store ──changes──▶ columns ──▶ SegmentWriter ──▶ segments/*.parquet, bodies/*.parquet, then a line of manifest.jsonl
    (read beside its owner)         (segments)                         │
                                                                       ▼
                                             EventSource (sources): whoever reads, the pipeline first of all

| file | what it holds |
|---|---|
| `schema` | the columns, the numbers of kinds, and what each kind means for a message |
| `manifest` | which segments count: the one truth about a capture directory |
| `segments` | writing a segment so that it is there or not, and checking one |
| `sources` | reading: capture directories and stores behind one face; the one place to add another |
| `columns`, `bodies` | from changes to Arrow columns, many at a time |
| `redaction`, `settings` | what must not be kept, as data; what a directory was told to do |
| `capturing` | the loop that `unibus capture` runs |
| `keeping`, `compacting` | retention; few large segments out of many small ones |
| `status` | how far it is, how large, how old |

The rule of the room: a file counts when the manifest names it, and the manifest names it when it is on the disk. So a
crash anywhere leaves a directory that is true, and whoever goes on does so after the last line.
"""
