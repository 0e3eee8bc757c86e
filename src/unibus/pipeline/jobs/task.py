"""One pass over some segments, on an executor.

A task reads its works one after the other, collects the parts of each table, and writes two kinds of files:

    final rows (closed messages, traces)    Parquet, in the folders of their tables; a commit of the driver adds them
    parts that the driver has to combine    Arrow, in the staging folder of the batch

All names are unique, so Spark may run a task twice: only the files that the used result names become part of a table.
"""

import os
import uuid
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unibus.capture.event_source import EventPiece
from unibus.capture.schema import EVENTS
from unibus.capture.segments import row_groups
from unibus.capture.sources import open_source
from unibus.errors import JobFailed, LakeIncomplete
from unibus.pipeline.jobs.aggregate import all_added_up
from unibus.pipeline.jobs.channel_minutes import minutes_of
from unibus.pipeline.jobs.closed_messages import closed_of
from unibus.pipeline.jobs.failures import failures_of
from unibus.pipeline.jobs.latency import latencies_of
from unibus.pipeline.jobs.names import distinct, names_of
from unibus.pipeline.jobs.open_messages import drops_of, merged, opened_of
from unibus.pipeline.jobs.traces import IDS, events_with, trace_rows, traces_of
from unibus.pipeline.storage.files import File, write_file
from unibus.pipeline.storage.tables import CHANNEL_MINUTE, FAILURES, LATENCY_HIST, MESSAGES, TRACES
from unibus.stores.files.private import make_file, make_folder

COLUMNS: Final = tuple(name for name in EVENTS.names if name != "kind")
_FEW: Final = ("domain", "channel", "reason", "signature", "consumer")


class BatchWork(msgspec.Struct, frozen=True):
    """A range of a source. `path` is the Parquet file that has it; None for a store."""

    where: str
    first: int
    last: int
    rows: int
    path: str | None = None


class BatchTask(msgspec.Struct, frozen=True):
    batch: int
    lake: str
    staging: str
    works: list[BatchWork]
    wanted: list[str]
    """Tables that do not have this batch yet."""


class TaskResult(msgspec.Struct):
    """The result of a task: the files that it wrote, and how many events it has read."""

    events: int = 0
    closed: list[File] = []
    traces: list[File] = []
    staged: str = ""


class _Parts:
    """The parts of all tables that a task has computed so far."""

    def __init__(self, task: BatchTask) -> None:
        self._wanted = frozenset(task.wanted)
        self.names: list[pa.Table] = []
        self.minutes: list[pa.Table] = []
        self.latencies: list[pa.Table] = []
        self.failures: list[pa.Table] = []
        self.traces: dict[str, list[pa.Table]] = {kind: [] for kind in IDS}
        self.closed: list[pa.Table] = []
        self.opened: list[pa.Table] = []
        self.ends: list[pa.Table] = []
        self.drops: list[pa.Table] = []

    def take(self, events: pa.Table) -> None:
        self.names.append(names_of(events))
        if CHANNEL_MINUTE.name in self._wanted:
            self.minutes.append(minutes_of(events))
        if LATENCY_HIST.name in self._wanted:
            self.latencies.append(latencies_of(events))
        if FAILURES.name in self._wanted:
            self.failures.append(failures_of(events))
        if TRACES.name in self._wanted:
            for kind, column in IDS.items():
                self.traces[kind].append(events_with(events, column))
        if MESSAGES.name in self._wanted:
            self.closed.append(closed_of(events))
            opened, ends = opened_of(events)
            self.opened.append(opened)
            self.ends.append(ends)
            self.drops.append(drops_of(events))

    def staged(self) -> dict[str, pa.Table]:
        found = {"names": distinct(pa.concat_tables(self.names))}
        for table, parts in ((CHANNEL_MINUTE, self.minutes), (LATENCY_HIST, self.latencies), (FAILURES, self.failures)):
            if parts:
                found[table.name] = all_added_up(parts, table.adds)
        if self.opened:
            ends = pa.concat_tables(self.ends)
            found["opened"] = merged(pa.concat_tables(self.opened), ends)
            found["ends"] = ends
            found["drops"] = pa.concat_tables(self.drops)
        return found


def perform(task: BatchTask) -> TaskResult:
    parts = _Parts(task)
    done = TaskResult(staged=os.path.join(task.staging, uuid.uuid4().hex))
    for work in task.works:
        events = read(work)
        done.events += events.num_rows
        if events.num_rows:
            parts.take(events)
    if done.events:
        done.closed = _write_closed(task, parts)
        done.traces = _write_traces(task, parts)
        for name, table in parts.staged().items():
            stage(done.staged, name, table)
    return done


def _write_closed(task: BatchTask, parts: _Parts) -> list[File]:
    rows = pa.concat_tables(parts.closed).unify_dictionaries() if parts.closed else None
    if rows is None or not rows.num_rows:
        return []
    folder = os.path.join(task.lake, MESSAGES.name)
    return [write_file(folder, _name(task), rows, MESSAGES, open_=False)]


def _write_traces(task: BatchTask, parts: _Parts) -> list[File]:
    names = distinct(pa.concat_tables(parts.names))
    by_kind = {kind: pa.concat_tables(found).combine_chunks() for kind, found in parts.traces.items() if found}
    found = [trace_rows(traces_of(rows, IDS[kind]), kind, names) for kind, rows in by_kind.items()]
    rows = pa.concat_tables(found).unify_dictionaries() if found else None
    if rows is None or not rows.num_rows:
        return []
    return [write_file(os.path.join(task.lake, TRACES.name), _name(task), rows, TRACES)]


def _name(task: BatchTask) -> str:
    return f"b{task.batch:08}-{uuid.uuid4().hex}.parquet"


def stage(folder: str, name: str, table: pa.Table) -> None:
    make_folder(folder)
    path = os.path.join(folder, name)
    make_file(path)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def staged(folder: str, name: str) -> pa.Table:
    """Read what a task has staged for the driver. JobFailed if the driver cannot see the file."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        raise JobFailed(
            f"a task has written {path}, and the driver cannot see it",
            "the lake must be on storage that all machines of the cluster share, under the same path",
        )
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()


def read(work: BatchWork) -> pa.Table:
    """The events of a range in one chunk, with repeated texts as dictionaries."""
    if work.path is not None:
        return _read_file(work, work.path)
    source = open_source(work.where)
    try:
        found = list(source.read(EventPiece(work.first, work.last, work.rows, 0), COLUMNS))
    finally:
        source.close()
    events = pa.Table.from_batches(found) if found else EVENTS.empty_table().select(COLUMNS)
    if events.num_rows < work.rows:
        raise LakeIncomplete(
            f"{work.where} has pruned some events of {work.first} to {work.last} since the batch was planned",
            "run it again; if that fails too, run `unibus pipeline rebuild`",
        )
    for name in _FEW:
        events = events.set_column(events.column_names.index(name), name, events[name].dictionary_encode())
    return events.unify_dictionaries().combine_chunks()


def _read_file(work: BatchWork, path: str) -> pa.Table:
    with pq.ParquetFile(path, read_dictionary=list(_FEW), memory_map=True) as file:
        groups = row_groups(file, work.first, work.last)
        there = [name for name in COLUMNS if name in file.schema_arrow.names]
        events = file.read_row_groups(groups, columns=there, use_threads=False)
    for name in COLUMNS:
        if name not in there:  # The file is older than the column.
            events = events.append_column(name, pa.nulls(events.num_rows, EVENTS.field(name).type))
    events = events.select(COLUMNS)
    seqs = pc.min_max(events["seq"])
    if events.num_rows and (seqs["min"].as_py() < work.first or seqs["max"].as_py() > work.last):
        inside = pc.and_(pc.greater_equal(events["seq"], work.first), pc.less_equal(events["seq"], work.last))
        events = events.filter(inside)
    return events.unify_dictionaries().combine_chunks()


def perform_all(tasks: list[BatchTask], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for Spark's mapInArrow over the numbers of the tasks."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            answer = msgspec.json.encode(perform(tasks[number])).decode()
            yield pa.RecordBatch.from_pydict({"answer": [answer]})
