"""One run of one job, on the server's loop: from its start to the state in which it ends.

    prepare ─▶ [ wait for the rate ─▶ a batch in a thread ─▶ progress ]… ─▶ done, paused, cancelled, interrupted, failed

Between two batches it checks whether to stop: on request of an operator, when the server stops, or when the store has
failed. The rate is measured by the clock of the bus.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

from unibus.bus.api.broker import Broker
from unibus.bus.dead_letters.steps import walk
from unibus.bus.dead_letters.sweep import STOPPED
from unibus.bus.management.jobs.job_records import Job, JobState
from unibus.bus.management.jobs.job_work import STEP_MAX, in_thread, prepare
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.queues.operations import Queues
from unibus.core.flow.limiter import TokenBucket
from unibus.errors import BusError, StoreFailed
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")


class BrokerHolder(Protocol):
    """Holds the broker of a process that may reopen its store: `unibus serve`, or a program with the HTTP endpoint.

    Callers read `broker` again after each await: after a failure of the store it is another object.
    """

    @property
    def broker(self) -> Broker:
        """StoreUnavailable while the store is being reopened."""

    @property
    def interrupted(self) -> asyncio.Event:
        """Set when the server stops, and when the store has failed: waiting receives have to end."""

    def report(self, error: BaseException) -> None:
        """Report an error of an operation. A store that has stopped is reopened."""


class Ending(NamedTuple):
    """The state at the end of a run, and the reason for an early end."""

    state: JobState
    reason: str = ""


class JobRun:
    """`progressed` is awaited after each batch. `stop` may be called at any time, also before the start."""

    def __init__(self, holder: BrokerHolder, job: Job, progressed: Callable[[], Awaitable[None]]) -> None:
        self.job = job
        self._holder = holder
        self._progressed = progressed
        self._wanted: Ending | None = None
        self._stopping = asyncio.Event()

    def stop(self, state: JobState, reason: str = "") -> None:
        """End between two batches in this state. A later pause does not replace a cancellation."""
        # The first cancellation counts: it cannot be taken back by a pause, nor by the stop of the server.
        if self._wanted is None or self._wanted.state != "cancelled":
            self._wanted = Ending(state, reason)
        # Also ends the wait for the rate, which may take minutes.
        self._stopping.set()

    async def carry_out(self) -> Ending:
        """Run the job to its end. Raises only CancelledError; every other error becomes the reason of the ending."""
        try:
            return await self._carry_out()
        # Before BusError, of which these are kinds: the job itself is fine, and can be resumed when the store is open
        # again.
        except STOPPED as error:
            if isinstance(error, StoreFailed):
                self._holder.report(error)
            return Ending("interrupted", error.what)
        except BusError as error:
            return Ending("failed", str(error))
        except Exception as error:
            log.exception("job %d failed unexpectedly", self.job.record.id)
            return Ending("failed", f"{type(error).__name__}: {error}"[:500])

    async def _carry_out(self) -> Ending:
        # Read once, on purpose: after a reopen of the store these belong to the old one. Its operations raise, and the
        # run ends as interrupted instead of continuing with references to messages of a closed store.
        queues, interrupted = self._holder.broker.queues, self._holder.interrupted
        work = await in_thread(lambda: walk(prepare(queues, self.job)))
        request = self.job.record.request
        size = min(request.bulk().step(), STEP_MAX)
        rate = None if request.dry_run else request.rate
        # As large as a batch: a batch is atomic, so it needs all its tokens at once.
        bucket = None if rate is None else TokenBucket(rate, float(size), queues.now_ns())
        self.job.set(**work.progress())
        while work.left:
            if (ending := self._ending(interrupted)) is not None:
                return ending
            # `continue` and not a second wait: whether to stop is checked first in each round.
            if bucket is not None and not await self._may_go(queues, bucket, min(size, work.left), interrupted):
                continue
            # Never interrupted in the middle. The progress is set on the loop afterwards, so a record is never half
            # updated.
            await in_thread(partial(work.step, size))
            self.job.set(**work.progress())
            await self._progressed()
        return Ending("done")

    def _ending(self, interrupted: asyncio.Event) -> Ending | None:
        if self._wanted is not None:
            return self._wanted
        if not interrupted.is_set():
            return None
        try:
            # Only to learn the reason: after a failure of the store this raises its error.
            self._holder.broker.now_ns()
        except BusError as error:
            return Ending("interrupted", error.what)
        return Ending("interrupted", "the server stopped")

    async def _may_go(self, queues: Queues, bucket: TokenBucket, count: int, interrupted: asyncio.Event) -> bool:
        """Whether the rate allows `count` messages now. If not, wait until it may, or until the run has to stop."""
        if bucket.try_acquire(count, queues.now_ns()):
            return True
        due = asyncio.Event()
        delay_ns = int(bucket.wait_s(count, queues.now_ns()) * 1e9) + 1
        # The timers of a closing bus never run; `interrupted` ends the wait then.
        queues.timers.after(delay_ns, partial(notify_loop, asyncio.get_running_loop(), due.set))
        # The caller checks everything again, whatever has ended the wait: hence always False.
        waiting = [asyncio.ensure_future(each.wait()) for each in (due, self._stopping, interrupted)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return False
