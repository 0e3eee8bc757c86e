"""Capture: history becomes sealed Parquet segments, beside the bus and without Spark.

    store ──changes──▶ columns ──▶ SegmentWriter ──▶ segments/*.parquet, bodies/*.parquet, then a line of manifest.jsonl
    (read beside its owner)         (segments)                         │
                                                                       ▼
                                             EventSource (sources): every reader, mainly the pipeline

| file | what it holds |
|---|---|
| `schema` | the columns, the numbers of kinds, and what each kind means for a message |
| `manifest` | which segments count: the one truth about a capture directory |
| `segments` | writing a segment atomically (the whole file or none), and verifying one |
| `event_source`, `sources`, `unopened` | reading: one interface for capture directories and stores |
| `columns`, `bodies` | from changes to Arrow columns, many at a time |
| `redaction`, `settings` | what must not be stored, as data; the settings of a directory |
| `capturing` | the loop that `unibus capture` runs |
| `retention`, `compacting` | removal by age; few large segments out of many small ones |
| `child` | a capture that a bus starts and ends with itself (`?capture=DIR`) |
| `status` | position, lag, size and age of a capture |

The invariant: a file belongs to the capture when the manifest names it, and the manifest names it only after the file
is synced to the disk. So a crash at any point leaves a consistent directory, and the next writer continues after the
last line of the manifest.
"""
