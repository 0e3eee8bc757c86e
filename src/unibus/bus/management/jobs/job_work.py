"""The work of a job, batch by batch, in a thread: a sweep (bus/dead_letters) bounded to the messages at its creation.

    measure   at creation: the number of selected messages, and for each entity their last sequence (the limits)
    prepare   at the start and at each resume: which of these messages remain
    step      one batch of the store with the decisions about the next messages

A batch is atomic, and a moved message is not found again. So a job may end between two batches for any reason, kill -9
included, and continue later with the remaining messages. The limits exclude messages that arrived later: sequences only
increase, also those of an entity that was deleted and created again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec

from unibus.bus.dead_letters.finding import EntityLookup, FoundMessages, find
from unibus.bus.dead_letters.purge import PurgeSweep, find_purged
from unibus.bus.dead_letters.rules import Judge, RecoveryAction
from unibus.bus.dead_letters.steps import Steps, walk
from unibus.bus.dead_letters.sweep import Decide, Sweep
from unibus.bus.management.jobs.job_records import ERROR_CHARS_MAX, ERRORS_MAX, Job, JobCounts, JobError, JobRequest
from unibus.bus.queues.operations import Queues
from unibus.errors import EntityNotFound, UsageError
from unibus.stores.seam.message_record import MessageRecord

T = TypeVar("T")

STEP_MAX: Final = 100
"""The upper limit of messages in one batch of a job, whatever its batch_size: a batch holds the store's lock, and all
other requests wait for it. About 2 ms compiled, 8 ms plain."""

_ACTIONS: Final = {
    "retry": RecoveryAction.RETRY,
    "redirect": RecoveryAction.REDIRECT,
    "discard": RecoveryAction.DISCARD,
}


class Measured(NamedTuple):
    total: int
    limits: dict[str, int]


def measure(queues: Queues, request: JobRequest, now_ns: int) -> Steps[Measured]:
    """Select the messages of a new job. EntityNotFound for a target or an entity that does not exist."""
    found = yield from _found(queues, request, now_ns)
    # Only for its checks: a job with a missing target is refused at its creation.
    _decide(queues, request, found.entities, now_ns)
    limits: dict[str, int] = {}
    for entry in found.entries:
        name = entry.entity
        # The highest selected sequence of each entity: later messages have higher ones.
        limits[name] = max(limits.get(name, 0), entry.sequence)
    return Measured(len(found.entries), limits)


def _found(queues: Queues, request: JobRequest, now_ns: int) -> Steps[FoundMessages]:
    """All messages that the request selects now; ages count from `now_ns`."""
    if request.filter is not None:
        return (yield from find(queues.store, request.filter.as_filter(), now_ns))
    return (yield from find_purged(queues, request.entity or ""))


def _decide(queues: Queues, request: JobRequest, entities: EntityLookup, now_ns: int) -> "Decide | _ByRules":
    if request.kind == "rules":
        rules = request.recovery_rules()
        # The time of the creation of the job: a rule about ages decides the same at each resume.
        return _ByRules(Judge(rules, now_ns, lambda name: entities.find(name) is not None))
    target = request.target or ""
    if target and entities.find(target) is None:
        raise EntityNotFound(f"there is no queue, topic or subscription {target!r:.80}", "`unibus declare` creates it")
    action = _ACTIONS.get(request.kind, RecoveryAction.DISCARD)
    return lambda entry: (action, target)


class _ByRules:
    """Decides by rules, and counts the decisions of each."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.counts = [0] * (len(judge.rules) + 1)

    def __call__(self, entry: MessageRecord) -> tuple[RecoveryAction, str]:
        number = self._judge.rule_for(entry)
        self.counts[number] += 1
        if number == len(self._judge.rules):
            return RecoveryAction.MANUAL_REVIEW, ""
        rule = self._judge.rules[number]
        return rule.action, rule.target or ""


class JobWork:
    """The remaining messages of a job, and its progress. Its methods are called by one thread at a time."""

    def __init__(
        self, sweep: Sweep, entries: list[MessageRecord], decide: "Decide | _ByRules", before: JobCounts
    ) -> None:
        self._sweep = sweep
        self._entries = entries
        self._decide = decide
        self._at = 0
        self._before = before
        self._errors: list[JobError] = []
        self._error_count = 0
        self._is_purge = isinstance(sweep, PurgeSweep)

    @property
    def left(self) -> int:
        return len(self._entries) - self._at

    def place(self) -> str:
        """The entity of the next message."""
        return self._entries[self._at].entity

    def step(self, size: int) -> None:
        """Process one batch; it blocks. If it raises, nothing was changed, unless the store failed."""
        # The list is not shortened: `place` and `left` are positions in it.
        chunk = self._entries[self._at : self._at + size]
        # If this raises, `_at` is unchanged. The run ends, and the next one finds by the store what remains.
        walk(self._sweep.batch(chunk, self._decide))
        self._at += len(chunk)
        errors = self._sweep.result.errors
        self._error_count += len(errors)
        for message_id, text in errors[: max(0, ERRORS_MAX - len(self._errors))]:
            self._errors.append(JobError(message_id, text[:ERROR_CHARS_MAX]))
        errors.clear()  # A job over a million messages must not collect a million errors.

    def progress(self) -> dict[str, object]:
        """The fields of the record that a step changes."""
        result, before = self._sweep.result, self._before
        counts = JobCounts(
            before.retried + result.retried,
            before.redirected + result.redirected,
            # A purge discards by the same sweep; its count has a name of its own in the record.
            before.discarded + (0 if self._is_purge else result.discarded),
            before.purged + (result.discarded if self._is_purge else 0),
            result.manual_review,
            result.skipped,
            self._error_count,
            before.gone,
        )
        by_rule = tuple(self._decide.counts) if isinstance(self._decide, _ByRules) else ()
        return {"counts": counts, "done": counts.all(), "errors": tuple(self._errors), "by_rule": by_rule}


def prepare(queues: Queues, job: Job) -> Steps[JobWork]:
    """The remaining work of a job. It includes the messages that earlier runs left in place (skipped, errors)."""
    record = job.record
    request = record.request
    # Selected again and not stored with the job: messages that this job has moved, or that others have settled, are not
    # found any more. That makes a resume safe after kill -9.
    found = yield from _found(queues, request, record.created_ns)
    decide = _decide(queues, request, found.entities, record.created_ns)
    entries = [entry for entry in found.entries if _is_within_limits(entry, found.entities, job)]
    found.entries = []  # The work keeps its own list; this one would hold settled messages in memory.
    kind = PurgeSweep if request.kind == "purge" else Sweep
    sweep = kind(queues, found, request.max_recoveries, request.bulk())
    return JobWork(sweep, entries, decide, _carried_over(record.counts, record.total, len(entries)))


def _is_within_limits(entry: MessageRecord, entities: EntityLookup, job: Job) -> bool:
    """Whether the message existed when the job was created.

    If another file has replaced the store, sequences begin again; its entities are younger than the job.
    """
    info = entities.find(entry.entity)
    if info is None or info.created_ns > job.record.created_ns:
        return False
    return entry.sequence <= job.limits.get(entry.entity, -1)


def _carried_over(counts: JobCounts, total: int, left: int) -> JobCounts:
    """The counts of earlier runs that still hold: moved messages. The rest is processed again, or has left."""
    moved = msgspec.structs.replace(counts, manual_review=0, skipped=0, errors=0)
    return msgspec.structs.replace(moved, gone=moved.gone + max(0, total - left - moved.settled()))


def check_same_store(queues: Queues, job: Job) -> None:
    """UsageError if the store was replaced or restored: its sequences then belong to other messages."""
    for name, sequence in job.limits.items():
        entity = queues.store.catalog.find(name)
        if entity is not None and entity.last_sequence < sequence:
            raise UsageError(
                f"job {job.record.id} does not match the store: {name!r:.80} never had a message #{sequence}",
                "the store was replaced or restored after the job was created: create a new job",
            )


async def in_thread(call: Callable[[], T]) -> T:
    """Run `call` in a worker thread. A cancellation takes effect only after the thread has finished, so that the
    caller never runs at the same time as its abandoned work."""
    import asyncio  # Here: a purge by a command runs without an event loop.

    # A task of its own, behind the shield: a cancellation of the caller must not cancel the wait for the thread.
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # A second cancellation ends this wait, too; the thread then continues alone.
        await asyncio.wait([running])
        if not running.cancelled() and running.exception() is not None:
            raise asyncio.CancelledError from running.exception()
        raise
