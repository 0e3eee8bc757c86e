"""The incremental pipeline: a driver loop of our own, one job of Spark per batch.

1. Plan: batch N+1 is a range of history per domain, checked and written down before anything else (plan.py).
2. One job of Spark: each task reads some segments once and computes its share of all tables (jobs/task.py).
3. Each table gets one commit, which carries N+1 as an application transaction (batch.py, delta.py).
4. Last comes the table `batches`; then the plan is removed.

Killed anywhere and started again, every table has each batch exactly once: a table that has N+1 is skipped, one that
has not gets it from the same ranges, and files of the ended attempt are named by no commit. One process at a time
changes a lake (LakeBusy).

Not Structured Streaming: its offsets and ours would have to be kept equal, a batch there starts with jobs of its own,
and there is no commit over several tables in it either.
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
"""Of one batch, unless told otherwise: enough that what a batch costs beside its events is nothing, and few enough that
a driver holds its parts."""
TASK_EVENTS: Final = 250_000
STAGING: Final = ".staging"
_POLL_S: Final = 0.2
STOP_S: Final = 1.0
_TELLING: Final = ("unibus.", "pyarrow.", "OSError", "FileNotFoundError", "ModuleNotFoundError", "ImportError")
"""How the lines begin that say why a task has failed."""

_CALLING: Final = "An error occurred while calling"
"""The first line of an error of Java, which says nothing."""

Progress = Callable[[str, float], None]
"""A step that was done, and which share of the batch that makes. Steps: plan, read (often), each table, done."""


@dataclass(frozen=True)
class BatchResult:
    number: int
    events: int
    closed: int
    """Messages that ended in it."""
    seconds: float
    ranges: tuple[HistoryRange, ...]
    unread: tuple[Unread, ...]
    left: int
    """Events that wait for the next batch."""


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
    """One batch, or None when there is nothing new. LakeBusy, LakeIncomplete, JobFailed. Without a session its tasks
    run here, one after the other.

    A source that is damaged, or is another history than the lake has read, is left out and reported by `set_aside`.
    With None or bad="fail", or where no other source is left, it raises CaptureDamaged, StoreDamaged or LakeMismatch.
    """
    started = time.monotonic()
    tell = progress or (lambda step, share: None)
    with lake.lock():
        exchange(lake)  # A rebuild that was ended at its very end.
        lake.check_folder()
        ready = those_that_open(sources) if load_plan(lake.path) is not None else []
        plan = _unfinished(lake, ready)
        if plan is None:
            before = last_ranges(lake)
            ready = usable(sources, before, None if bad == "fail" else set_aside)
            plan = _next_plan(lake, ready, before, max_events or MAX_EVENTS, bad)
        lake.remember(sources)  # They were not refused, or not all of them.
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
    """Batch after batch, until there is nothing new. A source that is set aside is reported with each of them."""
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
    """The plan of a batch that has begun to count, and is not complete."""
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
            source.settle()  # What the lake has counted is not to be undone at its source by a loss of power.
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
    shutil.rmtree(staging, ignore_errors=True)  # Of an attempt that was ended.
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
    """The batch is complete: a source that was damaged meanwhile is a matter of the next one."""
    try:
        return max(0, source.last() - span.up_to)
    except ERRORS:
        return 0


def _tasks(lake: Lake, plan: BatchPlan, works: Sequence[BatchWork], wanted: list[str]) -> list[BatchTask]:
    """Works that follow each other go to one task: most messages come and end in one, and nobody else hears of them."""
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
    """The job, again if a worker ended: files of such an attempt have names of their own, and no answer names them."""
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
    """Which tasks are done is seen from what they have staged."""
    job: Future[list[TaskResult]] = Future()
    tag = f"unibus-{uuid.uuid4().hex}"
    # A daemon: who ends this process does not wait for it.
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
            raise error  # Whatever Spark says to that.
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
    """The same in one line, where it is an error of Spark."""
    failed = lost(error)
    if failed is None and is_of_spark(error):
        failed = JobFailed(f"the job of Spark ended: {_reason(error)}", "run again; the batch is made once")
    if failed is None:
        return error
    failed.__cause__ = error
    return failed


def _stop(job: "Future[list[TaskResult]]", spark: "SparkSession", tag: str) -> None:
    """Again and again for a moment: a job that has not begun yet is not stopped. Nothing of it counts, whether or not
    it ends in time."""
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
    """The line that says it, out of a trace of two languages."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_CALLING)]
    ours = [line for line in lines if line.startswith(_TELLING)]
    return (ours or lines or [type(error).__name__])[-1 if ours else 0][:300]
