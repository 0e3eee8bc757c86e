"""A purge in the process that owns the store: the work of a purge job, without a server.

It removes the messages that exist at its start, in batches: those up to the last sequence of that moment. Locked
messages are skipped. It may be stopped between two batches; a new run continues with the remaining messages.
"""

from collections.abc import Callable
from contextlib import nullcontext

from unibus.bus.dead_letters.steps import walk
from unibus.bus.dead_letters.sweep import Guard
from unibus.bus.management.jobs.job_records import Job, JobRecord, JobRequest
from unibus.bus.management.jobs.job_work import measure, prepare
from unibus.bus.queues.operations import Queues

Progress = Callable[[int, int], object]


class Purge:
    """The purge of one entity, or of its dead-letter queue, as it is at creation. EntityNotFound if unknown."""

    def __init__(self, queues: Queues, entity: str, dry_run: bool = False) -> None:
        request = JobRequest("purge", entity=entity, dry_run=dry_run)
        request.check()
        self._queues = queues
        now_ns = self._queues.now_ns()
        # Measured when it is created, so that a command can show the number and ask before it runs.
        total, limits = walk(measure(self._queues, request, now_ns))
        self._job = Job(JobRecord(0, "purge", "running", request, "", now_ns, total=total, started_ns=now_ns), limits)

    @property
    def total(self) -> int:
        return self._job.record.total

    def run(self, progress: Progress, guard: Guard = nullcontext) -> JobRecord:
        """Remove the messages. `guard` is a context manager around each batch and its progress call (sweep.py)."""
        work = walk(prepare(self._queues, self._job))
        size = self._job.record.request.batch_size
        record = self._job.set(**work.progress())
        while work.left:
            with guard():
                work.step(size)
                record = self._job.set(**work.progress())
                progress(record.done, record.total)
        return self._job.set(state="done", ended_ns=self._queues.now_ns())
