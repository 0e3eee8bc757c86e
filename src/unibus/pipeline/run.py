"""The incremental pipeline: a driver loop with one Spark job per batch.

1. Plan: batch N+1 is a range of history per domain. The plan is checked and durable before anything else (plan.py).
2. One Spark job: each task reads some segments once and computes its share of all tables (jobs/task.py).
3. Each table gets one commit, which carries N+1 as an application transaction (batch.py, delta.py).
4. The table `batches` is committed last; then the plan is removed.

Every table has each batch exactly once, wherever a process is killed: after a restart a table that has N+1 is skipped,
a table that has not gets it from the same ranges, and no commit names the files of the interrupted attempt. One process
at a time changes a lake (LakeBusy).

Structured Streaming was rejected: its offsets and ours would have to agree, each of its batches starts with jobs of its
own, and it has no commit over several tables either.
"""

import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from unibus.capture.event_source import EventSource
from unibus.errors import JobFailed, WorkerLost
from unibus.pipeline.batch import Batch
from unibus.pipeline.jobs.task import BatchTask, BatchWork, TaskResult, perform, perform_all
from unibus.pipeline.lake import Lake
from unibus.pipeline.lost import ATTEMPTS, is_of_spark, lost
from unibus.pipeline.plan import (
    Bad,
    BatchPlan,
    HistoryRange,
    Unread,
    drop_plan,
    has_begun,
    last_ranges,
    load_plan,
    make_plan,
    recheck,
    save_plan,
    works_of,
)
from unibus.pipeline.set_aside import ERRORS, ReportSetAside, log_set_aside, those_that_open, usable
from unibus.pipeline.storage.tables import BATCHES, TABLES
from unibus.pipeline.swap import exchange
from unibus.pipeline.upkeep import tidy
from unibus.stores.files.private import make_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("unibus")

MAX_EVENTS: Final = 5_000_000
"""The default for one batch: enough that the fixed cost of a batch does not matter, and few enough for the memory of
the driver."""
TASK_EVENTS: Final = 250_000
STAGING: Final = ".staging"
_POLL_S: Final = 0.2
STOP_S: Final = 1.0
_REASONS: Final = ("unibus.", "pyarrow.", "OSError", "FileNotFoundError", "ModuleNotFoundError", "ImportError")
"""The beginnings of lines that say why a task has failed."""

_CALLING: Final = "An error occurred while calling"
"""The first line of an error of Java, which has no information."""

Progress = Callable[[str, float], None]
"""Called with a step that is done, and the share of the batch. Steps: plan, read (often), each table, done."""


@dataclass(frozen=True)
class BatchResult:
    number: int
    events: int
    closed: int
    """Messages whose last event is in this batch."""
    seconds: float
    ranges: tuple[HistoryRange, ...]
    unread: tuple[Unread, ...]
    left: int
    """Events that the next batches have to read."""


def run_once(
    spark: "SparkSession | None",
    lake: Lake,
    sources: Sequence[EventSource],
    *,
    max_events: int | None = None,
    bad: Bad = "quarantine",
    progress: Progress | None = None,
    set_aside: ReportSetAside | None = log_set_aside,
) -> BatchResult | None:
    """Run one batch. None if there are no new events. Raises LakeBusy, LakeIncomplete, JobFailed.

    Without a session the tasks run in this process, one after the other. A source that is damaged, or is another
    history than the lake has read, is left out and reported by `set_aside`. With set_aside=None, with bad="fail", or if
    no other source is left, it raises CaptureDamaged, StoreDamaged or LakeMismatch.
    """
    started = time.monotonic()
    tell = progress or (lambda step, share: None)
    with lake.lock():
        exchange(lake)  # Of a rebuild that was interrupted while it exchanged its tables.
        lake.check_folder()
        ready = those_that_open(sources) if load_plan(lake.path) is not None else []
        plan = _unfinished(lake, ready)
        if plan is None:
            before = last_ranges(lake)
            ready = usable(sources, before, None if bad == "fail" else set_aside)
            plan = _next_plan(lake, ready, before, max_events or MAX_EVENTS, bad)
        lake.remember(sources)  # Not before: at least one of them was accepted.
        if plan is None:
            return None
        tell("plan", 0.05)
        return _make(spark, lake, ready, plan, started, tell)


def run_all(
    spark: "SparkSession | None",
    lake: Lake,
    sources: Sequence[EventSource],
    *,
    max_events: int | None = None,
    bad: Bad = "quarantine",
    progress: Progress | None = None,
    set_aside: ReportSetAside | None = log_set_aside,
) -> Iterator[BatchResult]:
    """Run batches until there are no new events. A source that is set aside is reported with each of them."""
    with lake.lock():
        while True:
            result = run_once(
                spark, lake, sources, max_events=max_events, bad=bad, progress=progress, set_aside=set_aside
            )
            if result is None:
                tidy(lake)
                return
            yield result


def _unfinished(lake: Lake, sources: Sequence[EventSource]) -> BatchPlan | None:
    """The plan of an interrupted batch that at least one table has committed."""
    plan = load_plan(lake.path)
    if plan is None:
        return None
    if not has_begun(lake, plan):
        drop_plan(lake.path)
        return None
    recheck(plan, sources)
    return plan


def _next_plan(
    lake: Lake, sources: Sequence[EventSource], before: Sequence[HistoryRange], max_events: int, bad: Bad
) -> BatchPlan | None:
    plan = make_plan(lake.done() + 1, before, sources, max_events, bad)
    if plan is not None:
        for source in sources:
            source.settle()  # A power cut must not remove events from the source that the lake has counted.
        save_plan(lake.path, plan)
    return plan


def _make(
    spark: "SparkSession | None",
    lake: Lake,
    sources: Sequence[EventSource],
    plan: BatchPlan,
    started: float,
    tell: Progress,
) -> BatchResult:
    staging = os.path.join(lake.path, STAGING)
    shutil.rmtree(staging, ignore_errors=True)  # Of an interrupted attempt.
    wanted = [name for name in TABLES if name != BATCHES.name and lake.folder(name).done() < plan.number]
    tasks = _tasks(lake, plan, works_of(plan, sources, TASK_EVENTS), wanted)
    answers = _run(spark, tasks, staging, lambda share: tell("read", 0.05 + 0.75 * share))
    tell("read", 0.8)
    batch = Batch(lake, plan, answers, wanted, lambda table: tell(table, 0.9))
    batch.commit()
    events, closed = batch.finish(time.monotonic() - started)
    shutil.rmtree(staging, ignore_errors=True)
    drop_plan(lake.path)
    tell("done", 1.0)
    left = sum(_left(source, each) for source in sources for each in plan.ranges if each.domain == source.domain)
    seconds = time.monotonic() - started
    return BatchResult(plan.number, events, closed, seconds, tuple(plan.ranges), tuple(plan.unread), left)


def _left(source: EventSource, span: HistoryRange) -> int:
    """The batch is complete: if the source is damaged now, the next batch reports it."""
    try:
        return max(0, source.last() - span.up_to)
    except ERRORS:
        return 0


def _tasks(lake: Lake, plan: BatchPlan, works: Sequence[BatchWork], wanted: list[str]) -> list[BatchTask]:
    """Consecutive works go to one task: most messages begin and end in one task, which then needs no merge."""
    groups: list[list[BatchWork]] = []
    size = 0
    for work in works:
        rows = work.rows or work.last - work.first + 1
        if not groups or size + rows > TASK_EVENTS * 1.2 or groups[-1][-1].where != work.where:
            groups.append([])
            size = 0
        groups[-1].append(work)
        size += rows
    staging = os.path.join(lake.path, STAGING)
    return [BatchTask(plan.number, lake.path, staging, group, wanted) for group in groups]


def _run(
    spark: "SparkSession | None", tasks: list[BatchTask], staging: str, tell: Callable[[float], None]
) -> list[TaskResult]:
    """Run the job, again if a worker ended. The files of a failed attempt have unique names that no result names."""
    if not tasks or spark is None:
        return [perform(task) for task in tasks]
    make_folder(staging)
    for _ in range(ATTEMPTS - 1):
        try:
            return _run_job(spark, tasks, staging, tell)
        except WorkerLost as error:
            log.warning("%s; the job is started again", error.what)
    return _run_job(spark, tasks, staging, tell)


def _run_job(
    spark: "SparkSession", tasks: list[BatchTask], staging: str, tell: Callable[[float], None]
) -> list[TaskResult]:
    """Progress is the number of folders that the tasks have staged."""
    job: Future[list[TaskResult]] = Future()
    tag = f"unibus-{uuid.uuid4().hex}"
    # A daemon thread: the process can end without waiting for the job.
    threading.Thread(target=_settle, args=(job, spark, tasks, tag), name="job", daemon=True).start()
    try:
        while not job.done():
            if len(tasks) > 1:
                tell(min(1.0, len(os.listdir(staging)) / len(tasks)))
            _wait(job)
    except BaseException as error:
        try:
            _stop(job, spark, tag)
        finally:
            raise error  # Not an error of Spark about the interruption.
    return job.result()


def _settle(job: "Future[list[TaskResult]]", spark: "SparkSession", tasks: list[BatchTask], tag: str) -> None:
    try:
        spark.addTag(tag)
        job.set_result(_answers(spark, tasks))
    except Exception as error:
        job.set_exception(_failure(error))
    except BaseException as error:
        job.set_exception(error)


def _failure(error: Exception) -> Exception:
    """An error of Spark as a JobFailed with one line; any other error unchanged."""
    failed = lost(error)
    if failed is None and is_of_spark(error):
        failed = JobFailed(f"the Spark job failed: {_reason(error)}", "run it again; no event is counted twice")
    if failed is None:
        return error
    failed.__cause__ = error
    return failed


def _stop(job: "Future[list[TaskResult]]", spark: "SparkSession", tag: str) -> None:
    """Cancel the job repeatedly: a job that has not started yet ignores it. No commit names its files in any case."""
    ends_s = time.monotonic() + STOP_S
    while not job.done() and time.monotonic() < ends_s:
        spark.interruptTag(tag)
        _wait(job)


def _wait(job: "Future[list[TaskResult]]") -> None:
    try:
        job.exception(_POLL_S)
    except TimeoutError:
        return


def _answers(spark: "SparkSession", tasks: list[BatchTask]) -> list[TaskResult]:
    def share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return perform_all(tasks, batches)

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(share, "answer string").collect()
    return [msgspec.json.decode(row["answer"], type=TaskResult) for row in rows]


def _reason(error: Exception) -> str:
    """The line with the reason, from a traceback of Java and Python."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_CALLING)]
    ours = [line for line in lines if line.startswith(_REASONS)]
    return (ours or lines or [type(error).__name__])[-1 if ours else 0][:300]
