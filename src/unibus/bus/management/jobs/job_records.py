"""Jobs as data: what is asked for, and what is known of one. A server, its clients and the file of jobs share them.

    queued ──▶ running ──▶ done
      ▲           ├──▶ paused ───────┐
      │           ├──▶ interrupted ──┤  the server stopped, was killed, or its store failed
      │           ├──▶ failed ───────┤  an error that the job itself met
      └───────────┼── resume ◀───────┘
                  └──▶ cancelled         also from every state but done

What a job acts on is decided when it is created: of each entity the messages up to one sequence (`limits`). A message
that dies again afterwards has a higher sequence, so a job that is resumed does not move it a second time.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from unibus.bus.dead_letters.rules import RecoveryRule
from unibus.bus.dead_letters.sweep import BATCH_SIZE, Bulk
from unibus.bus.management.jobs.dead_letters import FilterRecord
from unibus.errors import UsageError
from unibus.limits import DEAD_LETTER_RECOVERIES_MAX, RATE_PER_S_MAX

JobKind: TypeAlias = Literal["retry", "redirect", "discard", "rules", "purge"]
JobState: TypeAlias = Literal["queued", "running", "paused", "done", "failed", "cancelled", "interrupted"]

JOBS_MAX: Final = 100
"""Jobs that are listed. Beyond it the oldest that have ended are forgotten; more unfinished ones are refused."""

ERRORS_MAX: Final = 100
ERROR_CHARS_MAX: Final = 500
"""Errors of single messages in a record: the first ones, cut. All of them are counted."""

RATE_PER_S_MIN: Final = 0.001
"""A message each quarter of an hour: a job that is slower is as good as paused."""

ENDED: Final = frozenset({"done", "cancelled"})
"""States that a job never leaves."""

AT_REST: Final = frozenset({"done", "cancelled", "paused", "failed", "interrupted"})
"""States in which nothing happens until an operator acts."""

_OWN_FIELDS: Final = {"target": "redirect", "rules": "rules", "entity": "purge", "force": "retry"}
"""Fields that belong to one kind of job."""


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a job shall do.

    `filter` says which dead-lettered messages are meant, and has to be given, `{}` for all of them; a purge has an
    `entity` in its place, which may be a dead-letter queue. `rules` is the text of a file of rules; the default ones
    without it. `rate` is messages a second, `batch_size` how many go in one batch of the store at most.
    """

    kind: JobKind
    filter: FilterRecord | None = None
    entity: str | None = None
    target: str | None = None
    rules: str | None = None
    dry_run: bool = False
    rate: float | None = None
    batch_size: int = BATCH_SIZE
    force: bool = False
    max_recoveries: int = DEAD_LETTER_RECOVERIES_MAX

    def check(self) -> None:
        """UsageError for what no job can be, whatever the store holds."""
        for name, kind in _OWN_FIELDS.items():
            if getattr(self, name) and self.kind != kind:
                raise UsageError(f"{name} in a job to {self.kind}", f"it belongs to a job to {kind}")
        if self.kind == "purge":
            if not self.entity or self.filter is not None:
                raise UsageError("a purge has an entity and no filter", "entity: a queue, or name/$DeadLetterQueue")
        elif self.filter is None:
            raise UsageError(f"a job to {self.kind} needs a filter", "filter: {} means every dead-lettered message")
        else:
            self.filter.as_filter()
        if self.kind == "redirect" and not self.target:
            raise UsageError("a job to redirect needs a target", "a queue, a topic or a subscription")
        if not 0 <= self.max_recoveries < 2**31:
            raise UsageError(f"max_recoveries is {self.max_recoveries}", "a whole number from 0 up")
        if self.rate is not None and not RATE_PER_S_MIN <= self.rate <= RATE_PER_S_MAX:
            raise UsageError(f"rate is {self.rate}", f"messages a second, from {RATE_PER_S_MIN} to {RATE_PER_S_MAX:g}")
        self.recovery_rules()
        self.bulk()

    def bulk(self) -> Bulk:
        return Bulk(self.dry_run, self.rate, self.batch_size, force=self.force)

    def recovery_rules(self) -> tuple[RecoveryRule, ...]:
        """ConfigInvalid for a text that has no rules."""
        return RecoveryRule.defaults() if self.rules is None else RecoveryRule.load(self.rules.encode())


class JobCounts(msgspec.Struct, frozen=True):
    """What became of the messages. `skipped` were locked, or gone when their turn came.

    `gone` were no longer there when the job was resumed: moved by this job after its progress was last written, or
    received, moved or removed by others. `errors` counts those that could not go where they should.
    """

    retried: int = 0
    redirected: int = 0
    discarded: int = 0
    purged: int = 0
    manual_review: int = 0
    skipped: int = 0
    errors: int = 0
    gone: int = 0

    def settled(self) -> int:
        """Messages that are no longer where they were, and will not be met again."""
        return self.retried + self.redirected + self.discarded + self.purged + self.gone

    def all(self) -> int:
        return self.settled() + self.manual_review + self.skipped + self.errors


class JobError(msgspec.Struct, frozen=True):
    """Why one message could not go where it should have."""

    id: str
    error: str


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it is now. `by` is the authorization rule of the caller, `reason` why it stopped before its end.

    `by_rule` counts, for a job of rules, the messages that each rule decided about, and last those that none did.
    """

    id: int
    kind: JobKind
    state: JobState
    request: JobRequest
    by: str
    created_ns: int
    done: int = 0
    total: int = 0
    counts: JobCounts = JobCounts()
    errors: tuple[JobError, ...] = ()
    by_rule: tuple[int, ...] = ()
    rate: float | None = None
    started_ns: int = 0
    ended_ns: int = 0
    reason: str = ""
    hint: str = ""


class Job(msgspec.Struct):
    """A job of this server: its record, and of each entity the last sequence that it may touch."""

    record: JobRecord
    limits: dict[str, int]

    def set(self, **changes: object) -> JobRecord:
        self.record = msgspec.structs.replace(self.record, **changes)
        return self.record

    @property
    def is_ended(self) -> bool:
        return self.record.state in ENDED
