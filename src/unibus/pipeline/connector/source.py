"""`format("unibus")`: history as a table and as a stream, and rows as messages.

    spark.read.format("unibus").load("capture")            a capture directory, a folder of them, or a store's URL
    spark.readStream.format("unibus").load("capture")      the same, as it grows
    df.write.format("unibus").option("url", …)             rows become messages: see sink.py

Spark finds it without registration, through the package `pyspark_unibus`. Spark creates these objects again in every
process that plans or reads, so they hold only options, and open the source in each call.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from unibus.capture.event_source import EventSource
from unibus.capture.schema import BODIES, EVENTS
from unibus.capture.sources import open_sources
from unibus.counting import counted
from unibus.errors import StoreUnavailable, UsageError
from unibus.pipeline.connector import offsets
from unibus.pipeline.connector.cursor import move_cursor
from unibus.pipeline.connector.filters import Pushed, pushed_of, wanted_of
from unibus.pipeline.connector.offsets import EARLIEST, LATEST, Offset, StoredOffset
from unibus.pipeline.connector.options import ReadOptions, near, only_for_streams, read_options, write_options
from unibus.pipeline.connector.planning import check_exists, one_line
from unibus.pipeline.connector.reading import BODY_COLUMNS, ReadTask
from unibus.pipeline.connector.sink import BatchWriter, StreamWriter
from unibus.pipeline.connector.slices import HistorySlice, check_missing, slices_of

log = logging.getLogger("unibus")

FORMAT: Final = "unibus"


class UnibusSource(DataSource):
    """Creates readers and writers for Spark."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @one_line()
    def schema(self) -> StructType:
        return schema_of(read_options(self.options))

    @one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if names := only_for_streams(options):
            raise UsageError(f"option {names[0]} is only for readStream", "leave it out")
        return (PushingReader if options.pushdown else EventReader)(options, schema)

    @one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = read_options(self.options)
        if options.ending:
            raise UsageError(
                "option endingOffsets is only for read: a stream has no end", "use trigger(availableNow=True)"
            )
        if options.pushdown:
            raise UsageError("option pushdown is only for read", "leave it out; the options channels and kinds work")
        return EventStreamReader(options, schema)

    @one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(write_options(self.options), schema, overwrite)

    @one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(write_options(self.options), schema, overwrite)


# Schemas


def schema_of(options: ReadOptions) -> StructType:
    """The default schema: all columns, or those of the option `columns`."""
    known = _arrow_columns(options.bodies)
    names = options.columns or tuple(known)
    for name in names:
        if name not in known:
            raise UsageError(f"there is no column {name!r}", near(name, known))
    return from_arrow_schema(pa.schema([known[name] for name in names]))


def _arrow_columns(bodies: bool) -> dict[str, pa.Field]:
    names = {field.name: field for field in EVENTS}
    return {**names, **{name: BODIES.field(name) for name in BODY_COLUMNS}} if bodies else names


def checked_schema(schema: StructType, options: ReadOptions) -> pa.Schema:
    """Arrow's schema for one of Spark, which the user may have given."""
    known = from_arrow_schema(pa.schema(list(_arrow_columns(options.bodies).values())))
    types = {field.name: field.dataType.simpleString() for field in known}
    for field in schema:
        if field.name not in types:
            hint = "set bodies to true" if field.name in BODY_COLUMNS else near(field.name, types)
            raise UsageError(f"there is no column {field.name!r}", hint)
        if field.dataType.simpleString() != types[field.name]:
            raise UsageError(
                f"column {field.name!r} has the type {types[field.name]}, not {field.dataType.simpleString()}",
                "read it with its type, and cast it afterwards",
            )
    return to_arrow_schema(schema, timezone="UTC")


def task_of(options: ReadOptions, schema: StructType) -> ReadTask:
    return ReadTask(
        checked_schema(schema, options),
        wanted_of(options.channels, options.kinds),
        options.mode,
        options.quarantine,
        options.fail_on_data_loss,
    )


@contextlib.contextmanager
def opened(options: ReadOptions) -> Iterator[list[EventSource]]:
    check_exists(options.where)
    sources = open_sources(options.where)
    try:
        yield sources
    finally:
        for source in sources:
            source.close()


def _now_us() -> int:
    return time.time_ns() // 1_000


# Batch


class EventReader(DataSourceReader):
    """Reads a range of history once."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._task = task_of(options, schema)

    @one_line()
    def partitions(self) -> Sequence[InputPartition]:
        options, now_us = self._options, _now_us()
        starting = offsets.bound_of("startingOffsets", options.starting, EARLIEST, now_us)
        ending = offsets.bound_of("endingOffsets", options.ending, LATEST, now_us)
        after, up_to = self._task.wanted.seqs()
        with opened(options) as sources:
            start = offsets.offset_at("startingOffsets", starting, sources)
            end = offsets.offset_at("endingOffsets", ending, sources)
            start = {domain: max(seq, after) for domain, seq in start.items()}
            end = {domain: min(seq, up_to) for domain, seq in end.items()}
            for source in sources:
                if start[source.domain] < end[source.domain]:
                    check_missing(source, start[source.domain], end[source.domain], options.fail_on_data_loss)
            return slices_of(sources, start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # If there are no partitions, Spark passes one of its own.
        return self._task.read(partition) if isinstance(partition, HistorySlice) else iter(())


class PushingReader(EventReader):
    """An EventReader that applies filters of Spark. Only with the option `pushdown`: Spark rejects a reader with
    `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is set."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        taken: list[Pushed] = []
        left = []
        for each in filters:
            pushed = pushed_of(each)
            if pushed is None:
                left.append(each)
            else:
                taken.append(pushed)
        self._task = replace(self._task, wanted=replace(self._task.wanted, pushed=tuple(taken)))
        return left


# Stream


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows history. Its state between two calls affects only when a batch begins, not what is in it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._task = task_of(options, schema)
        self._target: Offset | None = None
        self._waiting_since_s: float | None = None
        self._shown: Offset = {}
        self._lost = 0

    def initialOffset(self) -> StoredOffset:
        starting = offsets.bound_of("startingOffsets", self._options.starting, EARLIEST, _now_us())
        with opened(self._options) as sources:
            return offsets.initial(offsets.offset_at("startingOffsets", starting, sources))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_events:
            return ReadMaxRows(options.max_events)
        return ReadMinRows(options.min_events) if options.min_events else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends({})[1]

    def reportLatestOffset(self) -> StoredOffset:
        return offsets.to_stored(self._ends({})[1])

    def latestOffset(self, start: StoredOffset, limit: ReadLimit) -> StoredOffset:
        self.commit(start)
        begin, end = self._ends(offsets.plain(start))
        if self._target is not None:
            end = {domain: max(min(seq, self._target.get(domain, 0)), begin[domain]) for domain, seq in end.items()}
        elif not isinstance(limit, ReadAllAvailable) and self._holds_back(offsets.distance(begin, end)):
            return start
        if isinstance(limit, ReadMaxRows):
            end = offsets.limited(begin, end, limit.max_rows)
        return offsets.reached(start, begin, end)

    def _ends(self, begin: Offset) -> tuple[Offset, Offset]:
        """The start of every domain for this query, and its last seq, which Spark expects not to be before the start.

        A new domain is read from its beginning.
        """
        with opened(self._options) as sources:
            begins = {**{source.domain: max(source.first() - 1, 0) for source in sources}, **begin}
            last = {source.domain: source.last() for source in sources}
            for source in sources:
                source.settle()  # A power cut must not remove events from the source that a stream has read.
        for domain, seq in begin.items():
            if last.get(domain, -1) < seq:
                self._gone(domain, seq, last.get(domain))
                last[domain] = seq
        return begins, dict(sorted(last.items()))

    def _gone(self, domain: str, seq: int, last: int | None) -> None:
        """The history of a domain ends before the position of the query."""
        is_now = "is missing now" if last is None else f"ends at {last} now"
        what = f"{domain!r} was read up to {seq}, and it {is_now}"
        if self._options.fail_on_data_loss:
            raise StoreUnavailable(
                what, "if it is another history, use a new checkpoint, or set failOnDataLoss to false"
            )
        log.warning("%s; the query waits for it", what)

    def _holds_back(self, waiting: int) -> bool:
        """Whether to wait for more events, because of `minEventsPerTrigger`."""
        least = self._options.min_events
        if not waiting or waiting >= least:
            self._waiting_since_s = None
            return False
        now_s = time.monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s - self._waiting_since_s < self._options.max_delay_s:
            return True
        self._waiting_since_s = None
        return False

    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[InputPartition]:
        begin, until = offsets.between(start, end)
        with opened(self._options) as sources:
            for domain in until.keys() - {source.domain for source in sources}:
                self._gone(domain, until[domain], None)
            for source in sources:
                first = begin.get(source.domain, 0)
                if first < until.get(source.domain, 0):
                    fails = self._options.fail_on_data_loss
                    self._lost += check_missing(source, first, until[source.domain], fails)
            if self._lost:
                log.warning("this query has lost %s since it was started", counted(self._lost, "event"))
            return slices_of(sources, begin, until)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._task.read(partition) if isinstance(partition, HistorySlice) else iter(())

    def commit(self, end: StoredOffset) -> None:
        """All events up to `end` are processed. Spark calls it after the next batch; `latestOffset` does so earlier."""
        reached = offsets.plain(end)
        if self._options.cursor and reached != self._shown:
            with opened(self._options) as sources:
                for source in sources:
                    if source.domain in reached:
                        move_cursor(source, self._options.cursor, reached[source.domain])
            self._shown = reached

    def stop(self) -> None:
        """Nothing to close: no call leaves a source open."""
