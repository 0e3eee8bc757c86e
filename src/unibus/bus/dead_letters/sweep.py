"""Bulk operations: many dead-lettered messages moved or discarded, in batches. Each batch of the store is atomic.

    find (one moment) ─▶ [ wait for the rate ─▶ decide ─▶ one batch of the store ─▶ count, progress ]…
                                                            │ refused as a whole
                                                            ▼
                                                       the two halves, recursively

Only messages that were dead-lettered at the start are processed, and a processed message has left the dead-letter
queue. So a sweep may be stopped anywhere, by an error or by kill -9: a new run continues with the remaining messages,
and none is lost or duplicated. A message that cannot be moved is an error of this message only; the rest of its batch
is moved.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from unibus.bus.dead_letters.dead_message import own_ttl_ns
from unibus.bus.dead_letters.finding import EntityLookup, FoundMessages
from unibus.bus.dead_letters.record import RECOVERY_HEADER, number_in, record_of, recovered_overlay, source_in
from unibus.bus.dead_letters.results import ProcessingResult
from unibus.bus.dead_letters.rules import RecoveryAction
from unibus.bus.dead_letters.steps import Steps, pause
from unibus.bus.queues.operations import Queues
from unibus.core.flow.limiter import TokenBucket
from unibus.core.lifecycle.commands import MOVE_REDIRECT, MOVE_RETRY, Move, Remove
from unibus.core.lifecycle.state.states import LOCKED
from unibus.counting import counted
from unibus.errors import BusClosed, BusError, ConfigInvalid, StoreFailed, StoreFull, StoreUnavailable, UsageError
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.stores.seam.message_record import MessageKey, MessageRecord
from unibus.stores.seam.store import Store

Progress: TypeAlias = Callable[[int, int], object]
Guard: TypeAlias = Callable[[], AbstractContextManager[object]]
Decide: TypeAlias = Callable[[MessageRecord], tuple[RecoveryAction, str]]

BATCH_SIZE: Final = 500
STEPS_PER_SECOND: Final = 10
"""With a rate, a batch holds the messages of a tenth of a second at most, so that the rate is even."""

STOPPED: Final = (StoreFailed, StoreFull, StoreUnavailable, BusClosed)
"""Errors of the store, not of one message: they end the sweep."""

READ_BYTES: Final = 4 * 1024 * 1024
"""The bytes of messages that are read at once."""

_MOVES: Final = (RecoveryAction.RETRY, RecoveryAction.REDIRECT)
DISCARDED: Final = "discarded from the dead letters"
"""The reason of the event. It is stored in the history of every store, and queries compare it: never change it."""


@dataclass(frozen=True)
class Bulk:
    """Options of a bulk operation. `progress` is called after each batch with (done, total); an exception from it ends
    the sweep.

    `guard` is a context manager around each batch, with its commit and its progress call: a caller that handles
    signals defers them with it to the end of the batch.
    """

    dry_run: bool = False
    rate: float | None = None
    batch_size: int = BATCH_SIZE
    progress: Progress | None = None
    force: bool = False
    keep_record: bool = False
    guard: Guard = nullcontext

    def __post_init__(self) -> None:
        size = self.batch_size
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= BATCH_COMMANDS_MAX:
            raise UsageError(f"batch_size must be a whole number from 1 to {BATCH_COMMANDS_MAX}, got {size!r}")
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"rate must be more than 0 messages per second, got {self.rate!r}")

    def step(self) -> int:
        if self.rate is None:
            return self.batch_size
        return min(self.batch_size, max(1, int(self.rate / STEPS_PER_SECOND)))


class SweepTask(NamedTuple):
    """The command for one message."""

    id: str
    action: RecoveryAction
    command: Move | Remove


class SweepRefusal(NamedTuple):
    """Why a message is not moved; `review` if an operator has to decide."""

    why: str
    review: bool = False


def task_for(
    entry: MessageRecord,
    ttl_ns: int,
    action: RecoveryAction,
    target: str,
    entities: EntityLookup,
    recoveries_max: int,
    bulk: Bulk,
) -> SweepTask | SweepRefusal:
    """The command for one message, or why it is refused. `ttl_ns` is its own time-to-live (`own_ttls`)."""
    message_id, place = entry.who.message_id, entry.entity
    if action is RecoveryAction.DISCARD:
        return SweepTask(message_id, action, Remove(place, entry.sequence, DISCARDED))
    if action is RecoveryAction.RETRY:
        overlay = record_of(entry)
        recoveries = number_in(overlay, RECOVERY_HEADER)
        # A message that fails each time would otherwise be retried for ever.
        if recoveries >= recoveries_max and not bulk.force:
            times = counted(recoveries, "time")
            return SweepRefusal(f"it was recovered {times} and failed again; force=True retries it once more", True)
        target = source_in(overlay)
        if not target:
            return SweepRefusal("its record names no source; redirect it")
    refusal = entities.why_refused(target)
    if refusal:
        return SweepRefusal(refusal)
    command = Move(place, entry.sequence, target)
    command.action = MOVE_RETRY if action is RecoveryAction.RETRY else MOVE_REDIRECT
    command.overlay = recovered_overlay(entry, bulk.keep_record)
    command.ttl_ns = ttl_ns
    return SweepTask(message_id, action, command)


def own_ttls(store: Store, entries: list[MessageRecord]) -> Steps[dict[MessageKey, int]]:
    """The time-to-live that each message was sent with, in nanoseconds; 0 for none. Settled messages are left out.

    Only the message itself holds it, so the messages are read, at most READ_BYTES at a time.
    """
    # A settled message has no body any more: it is missing in the result, and the store refuses its command.
    found: dict[MessageKey, int] = {}
    some: list[MessageKey] = []
    size = 0
    for at, entry in enumerate(entries, 1):
        some.append(entry.key)
        size += entry.who.size
        if size >= READ_BYTES or at == len(entries):
            read: dict[MessageKey, bytes] = yield store.read_bodies(some)
            found.update({key: own_ttl_ns(data) for key, data in read.items()})
            some, size = [], 0
    return found


class Sweep:
    """One run over the messages that were found."""

    def __init__(self, queues: Queues, found: FoundMessages, recoveries_max: int, bulk: Bulk) -> None:
        # Counts only what is durable: a sweep that ends by an error has reported nothing that a crash could undo.
        self.result = ProcessingResult(errors=found.errors, dry_run=bulk.dry_run)
        self._queues = queues
        self._found = found
        self._recoveries_max = recoveries_max
        self._bulk = bulk

    def run(self, decide: Decide) -> Steps[ProcessingResult]:
        entries, size = self._found.entries, self._bulk.step()
        bucket = None
        if self._bulk.rate is not None and not self._bulk.dry_run:
            bucket = _bucket(self._bulk.rate, size, self._queues.now_ns())
        for start in range(0, len(entries), size):
            chunk = entries[start : start + size]
            # Outside of the guard: a signal may interrupt the pause, but not the batch.
            if bucket is not None:
                yield from self._wait_for(bucket, len(chunk), chunk[0].entity)
            with self._bulk.guard():
                yield from self.batch(chunk, decide)
                if self._bulk.progress is not None:
                    self._bulk.progress(start + len(chunk), len(entries))
        return self.result

    def batch(self, entries: list[MessageRecord], decide: Decide) -> Steps[None]:
        """Apply the decisions about these messages in one batch of the store, and count them once it is durable."""
        tasks = yield from self._tasks(entries, decide)
        yield from self._apply(tasks)

    def _wait_for(self, bucket: TokenBucket, count: int, place: str) -> Steps[None]:
        while not bucket.try_acquire(count, self._queues.now_ns()):
            missing_s = bucket.wait_s(count, self._queues.now_ns())
            yield from pause(self._queues.store, self._queues.timers, place, int(missing_s * 1e9) + 1)

    def _tasks(self, entries: list[MessageRecord], decide: Decide) -> Steps[list[SweepTask]]:
        tasks: list[SweepTask] = []
        # `decide` may be code of the user. It runs before any command is made: if it raises, nothing of the batch is
        # changed.
        decisions = [(entry, *decide(entry)) for entry in entries]
        # Bodies are read only for messages that are really moved: a discard and a dry run need none.
        moved = [entry for entry, action, _ in decisions if action in _MOVES and not self._bulk.dry_run]
        ttls = yield from own_ttls(self._queues.store, moved)
        for entry, action, target in decisions:
            if action is RecoveryAction.MANUAL_REVIEW:
                self.result.manual_review += 1
                continue
            task = task_for(
                entry, ttls.get(entry.key, 0), action, target, self._found.entities, self._recoveries_max, self._bulk
            )
            if isinstance(task, SweepTask):
                task.command.raises = False  # A message that was settled meanwhile is skipped, not an error.
                if self._bulk.dry_run and entry.state == LOCKED:
                    self.result.skipped += 1
                else:
                    tasks.append(task)
            elif task.review:
                self.result.manual_review += 1
            else:
                self.result.errors.append((entry.who.message_id, task.why))
        return tasks

    def _apply(self, tasks: list[SweepTask]) -> Steps[None]:
        if not tasks or self._bulk.dry_run:
            self._count(tasks, [True] * len(tasks))
            return
        try:
            results = yield self._queues.store.apply([task.command for task in tasks])
        except STOPPED:
            # The store is full, closed or not reachable, or the outcome is unknown. Halving could fail for each half,
            # and after StoreFailed it is unknown whether the batch is applied: the next run only sees what remains.
            raise
        except BusError as error:
            if len(tasks) == 1:
                self.result.errors.append((tasks[0].id, str(error)))
                return
        else:
            self._count(tasks, results)
            return
        # One command made the store refuse the whole batch, and nothing was changed. Apply the halves, recursively: the
        # valid ones are applied, and the invalid one ends alone in its batch.
        half = len(tasks) // 2
        yield from self._apply(tasks[:half])
        yield from self._apply(tasks[half:])

    def _count(self, tasks: list[SweepTask], results: list[object]) -> None:
        for task, result in zip(tasks, results, strict=True):
            if result is None or result is False:  # Locked or settled since the scan, or not accepted by a topic.
                self.result.skipped += 1
            else:
                self.result.count(task.action)


def _bucket(rate: float, burst: int, now_ns: int) -> TokenBucket:
    try:
        return TokenBucket(float(rate), float(burst), now_ns)
    except (ConfigInvalid, TypeError, ValueError):
        raise UsageError(f"rate must be more than 0 messages per second, got {rate!r}") from None
