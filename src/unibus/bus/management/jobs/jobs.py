"""The jobs of a server: bulk operations that continue when the caller disconnects, one job after the other.

    create ─▶ measure (thread) ─▶ list + file ─▶ queued ─▶ _begin_next ─▶ JobRun ─▶ ended: file, then list ─▶ next

One job runs at a time, the others are queued: two jobs never decide about one message at the same time, and the second
does not find what the first has moved. The list is used on the server's loop only; threads run one batch at a time.

A job starts after it is in the jobs file, and its progress is saved at most once a second (job_file.py). After a
restart of the server, running and queued jobs are listed as interrupted. They are not resumed automatically: if an
operator stopped the server in order to stop a job, the job must not run again.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from unibus.bus.dead_letters.steps import walk
from unibus.bus.management.jobs.job_file import JobFile, path_of
from unibus.bus.management.jobs.job_records import AT_REST, JOBS_MAX, Job, JobRecord, JobRequest, JobState
from unibus.bus.management.jobs.job_run import BrokerHolder, Ending, JobRun
from unibus.bus.management.jobs.job_work import check_same_store, in_thread, measure
from unibus.errors import BusError, JobEnded, JobNotFound, QuotaExceeded

SAVE_EVERY_S: Final = 1.0


class Jobs:
    """All methods are called on the loop of the server. The list is read from its file on first use."""

    def __init__(self, holder: BrokerHolder, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._holder = holder
        self._monotonic = monotonic
        # All fields belong to the loop. `_loading` lets one task read the file; `_saving` keeps the order of writes, so
        # that an older list never replaces a newer one.
        self._jobs: dict[int, Job] = {}
        self._last_id = 0
        self._file: JobFile | None = None
        self._loading = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._saved_s = 0.0
        self._run: JobRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.changed = asyncio.Event()
        """Set with the next change of any job; each change replaces it by a new event."""

    # Reading

    async def records(self) -> list[JobRecord]:
        """All jobs, the newest first."""
        await self._load()
        return [job.record for job in reversed(self._jobs.values())]

    async def get(self, number: int) -> JobRecord:
        return (await self._find(number)).record

    async def _find(self, number: int) -> Job:
        await self._load()
        job = self._jobs.get(number)
        if job is None:
            raise JobNotFound(f"there is no job {number}", "`unibus dlq jobs ls` lists the latest jobs")
        return job

    # Acting

    async def create(self, request: JobRequest, by: str) -> JobRecord:
        """Check the request, select its messages, save the job, and start or queue it. `by` is the caller's rule."""
        request.check()
        await self._load()
        self._check_count()
        queues = self._holder.broker.queues
        # The moment that ages in the filter count from, now and after each resume: the job always means the same
        # messages.
        now_ns = queues.now_ns()
        total, limits = await in_thread(lambda: walk(measure(queues, request, now_ns)))
        self._check_count()  # Others may have been created meanwhile.
        # No await from here to the entry in the list: two requests never get the same number.
        self._last_id += 1
        record = JobRecord(self._last_id, request.kind, "queued", request, by, now_ns, total=total, rate=request.rate)
        job = self._jobs[record.id] = Job(record, limits)
        self._remove_oldest()
        await self._save_and_begin()
        return job.record

    async def pause(self, number: int) -> JobRecord:
        """Stop the job between two batches. A job that does not run keeps its state."""
        return await self._end_early(number, "paused")

    async def cancel(self, number: int) -> JobRecord:
        """Stop the job between two batches; it cannot be resumed."""
        return await self._end_early(number, "cancelled")

    async def resume(self, number: int) -> JobRecord:
        """Queue the job again for its remaining messages. A running or queued job keeps its state."""
        # The checks and the change are one step, without an await in between: two requests cannot resume a job twice.
        job = await self._find(number)
        self._check_unended(job, "resumed")
        if job.record.state in AT_REST:
            # Before any change: the limits are sequences, which mean other messages in a restored store.
            check_same_store(self._holder.broker.queues, job)
            job.set(state="queued", reason="", hint="", ended_ns=0)
            await self._save_and_begin()
        return job.record

    async def _save_and_begin(self) -> None:
        """Save the list, then start a queued job."""
        try:
            await self._save()
        finally:
            # Also if the caller is cancelled: nothing else would start the queued job. `_carry_out` saves the list
            # again before the first batch, so a job that changes messages is always listed after a crash.
            self._begin_next()

    async def _end_early(self, number: int, state: JobState) -> JobRecord:
        job = await self._find(number)
        if job.record.state == state:
            return job.record
        self._check_unended(job, state)
        if self._run is not None and self._run.job is job:
            self._run.stop(state)
            # The caller gets the final record: the batch that runs now is finished first.
            # `changed` is read in each round: every change replaces the event by a new one.
            while self._run is not None and self._run.job is job:
                await self.changed.wait()
            job = await self._find(number)
        elif state == "cancelled" or job.record.state == "queued":
            job = self._jobs[number] = self._ended(job, Ending(state))
            await self._save()
            self._notify()
        return job.record

    def _check_unended(self, job: Job, verb: str) -> None:
        if job.is_ended:
            raise JobEnded(f"job {job.record.id} is {job.record.state}: it cannot be {verb}", "create a new job")

    def _check_count(self) -> None:
        if sum([not job.is_ended for job in self._jobs.values()]) >= JOBS_MAX:
            raise QuotaExceeded(f"there are {JOBS_MAX} unfinished jobs", "resume or cancel some of them")

    def _remove_oldest(self) -> None:
        # In the order of creation. Unfinished jobs stay: `_check_count` limits them.
        for number in [number for number, job in self._jobs.items() if job.is_ended]:
            if len(self._jobs) <= JOBS_MAX:
                return
            del self._jobs[number]

    # Running

    def _begin_next(self) -> None:
        if self._run is not None or self._is_stopped:
            return
        # The oldest first: ids increase, and the dict keeps their order.
        job = next((job for job in self._jobs.values() if job.record.state == "queued"), None)
        if job is None:
            return
        # `_run` is set in the same step, without an await: two callers never start two jobs.
        job.set(state="running", started_ns=self._now_ns(job))
        self._run = JobRun(self._holder, job, self._progressed)
        self._task = asyncio.get_running_loop().create_task(self._carry_out(self._run))
        self._notify()

    async def _carry_out(self, run: JobRun) -> None:
        ending = Ending("interrupted", "the server's loop ended")
        try:
            # On disk as running before the first batch: after a crash the job is listed as interrupted, and not as
            # queued.
            await self._save()
            ending = await run.carry_out()
        finally:
            # Also if the task is cancelled. Saved before it is shown: a client never sees a state that is not on disk.
            ended = self._ended(run.job, ending)
            await self._save(ended)
            self._jobs[ended.record.id] = ended
            self._run = None
            self._notify()
            self._begin_next()

    def _ended(self, job: Job, ending: Ending) -> Job:
        hint = f"`unibus dlq jobs resume {job.record.id}` continues it; the server does not resume jobs itself"
        is_over = ending.state in ("done", "cancelled")
        record = msgspec.structs.replace(
            job.record,
            state=ending.state,
            reason=ending.reason,
            hint="" if is_over else hint,
            ended_ns=0 if ending.state == "paused" else self._now_ns(job),
        )
        return Job(record, {} if is_over else job.limits)

    def _now_ns(self, job: Job) -> int:
        try:
            return self._holder.broker.now_ns()
        except BusError:  # The store is being reopened, and its clock is not available.
            return max(time.time_ns(), job.record.started_ns)

    async def _progressed(self) -> None:
        self._notify()
        if self._monotonic() - self._saved_s >= SAVE_EVERY_S:
            await self._save()

    def _notify(self) -> None:
        # Replaced before it is set: a client that waits again in the same turn waits for the next change.
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def stop(self) -> None:
        """The server stops: the running job ends between two batches, and no other starts."""
        # First: the end of the running job would otherwise begin the next one.
        self._is_stopped = True
        if self._run is not None and self._task is not None:
            self._run.stop("interrupted", "the server stopped")
            # Waits for the batch in its thread, which must not outlive the store.
            await asyncio.wait([self._task])

    # The file

    async def _load(self) -> None:
        if self._file is not None:
            return
        async with self._loading:
            # Checked again: another task may have loaded it while this one waited. `_file` is set last, so no task uses
            # a list that is half loaded.
            if self._file is None:
                file = JobFile(path_of(self._holder.broker.queues.store.url))
                self._last_id, jobs = await in_thread(file.load)
                self._jobs = {job.record.id: job for job in jobs}
                for job in jobs:
                    if job.record.state in ("running", "queued"):
                        before = "while it ran" if job.record.state == "running" else "before it began"
                        ending = Ending("interrupted", f"the server ended {before}")
                        self._jobs[job.record.id] = self._ended(job, ending)
                self._file = file

    async def _save(self, ended: Job | None = None) -> None:
        """Save the list. `ended` replaces the job of the same number in the file, before it does so in the list."""
        async with self._saving:
            assert self._file is not None
            shown = self._jobs if ended is None else {**self._jobs, ended.record.id: ended}
            file, jobs = self._file, list(shown.values())
            self._saved_s = self._monotonic()
            await in_thread(lambda: file.save(self._last_id, jobs))
