"""Jobs as data: the request and the record of a job. A server, its clients and the jobs file share them.

    queued ──▶ running ──▶ done
      ▲           ├──▶ paused ───────┐
      │           ├──▶ interrupted ──┤  the server stopped, was killed, or its store failed
      │           ├──▶ failed ───────┤  an error that the job itself met
      └───────────┼── resume ◀───────┘
                  └──▶ cancelled         also from every state but done

The messages of a job are fixed when it is created: for each entity those up to one sequence (`limits`). A message that
is dead-lettered again later has a higher sequence, so a resumed job does not move it a second time.
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
"""Jobs in the list. Beyond it the oldest ended jobs are removed; if all are unfinished, new ones are refused."""

ERRORS_MAX: Final = 100
ERROR_CHARS_MAX: Final = 500
"""A record has the first errors of single messages, each truncated. All of them are counted."""

RATE_PER_S_MIN: Final = 0.001
"""About one message in a quarter of an hour: a slower job is as good as paused."""

ENDED: Final = frozenset({"done", "cancelled"})
"""States that a job never leaves."""

AT_REST: Final = frozenset({"done", "cancelled", "paused", "failed", "interrupted"})
"""States in which nothing happens until an operator acts."""

_OWN_FIELDS: Final = {"target": "redirect", "rules": "rules", "entity": "purge", "force": "retry"}
"""Fields that only one kind of job has."""


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The request for a job.

    `filter` selects dead-lettered messages and is required, `{}` selects all of them; a purge has an `entity` instead,
    which may be a dead-letter queue. `rules` is the text of a file of rules; without it the default rules apply. `rate`
    is messages per second, `batch_size` the maximum number of messages in one batch of the store.
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
        """UsageError for a request that is wrong independent of the store."""
        # Refused and not ignored: a `target` in a discard job would mean that the operator expects a move.
        for name, kind in _OWN_FIELDS.items():
            if getattr(self, name) and self.kind != kind:
                raise UsageError(f"a {self.kind} job cannot have the field {name}", f"only a {kind} job has it")
        if self.kind == "purge":
            if not self.entity or self.filter is not None:
                raise UsageError(
                    "a purge job needs an entity and no filter", "name a queue, or its name/$DeadLetterQueue"
                )
        elif self.filter is None:
            raise UsageError(f"a {self.kind} job needs a filter", "filter: {} selects every dead-lettered message")
        else:
            self.filter.as_filter()
        if self.kind == "redirect" and not self.target:
            raise UsageError("a redirect job needs a target", "name a queue, a topic or a subscription")
        if not 0 <= self.max_recoveries < 2**31:
            raise UsageError(f"max_recoveries must be a whole number from 0 to {2**31 - 1}, got {self.max_recoveries}")
        if self.rate is not None and not RATE_PER_S_MIN <= self.rate <= RATE_PER_S_MAX:
            raise UsageError(
                f"rate must be from {RATE_PER_S_MIN} to {RATE_PER_S_MAX:g} messages per second, got {self.rate}"
            )
        # For their checks: a job with invalid rules or sizes is refused when it is created, and not when its turn
        # comes.
        self.recovery_rules()
        self.bulk()

    def bulk(self) -> Bulk:
        return Bulk(self.dry_run, self.rate, self.batch_size, force=self.force)

    def recovery_rules(self) -> tuple[RecoveryRule, ...]:
        """The rules of the request. ConfigInvalid for a text that cannot be read."""
        return RecoveryRule.defaults() if self.rules is None else RecoveryRule.load(self.rules.encode())


class JobCounts(msgspec.Struct, frozen=True):
    """The number of messages per outcome. `skipped` were locked, or settled before the job reached them.

    `gone` had left the queue when the job was resumed: moved by this job after its progress was last saved, or
    received, moved or removed by others. `errors` counts messages that could not be moved.
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
        """Messages that have left their queue, and that a resumed job does not find again."""
        return self.retried + self.redirected + self.discarded + self.purged + self.gone

    def all(self) -> int:
        return self.settled() + self.manual_review + self.skipped + self.errors


class JobError(msgspec.Struct, frozen=True):
    """Why one message could not be moved."""

    id: str
    error: str


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it is now. `by` is the authorization rule of the caller, `reason` why it ended early.

    `by_rule` counts, for a rules job, the messages that each rule decided, and last those that none did.
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
    """A job of this server: its record, and for each entity the last sequence that it may process."""

    record: JobRecord
    limits: dict[str, int]

    def set(self, **changes: object) -> JobRecord:
        self.record = msgspec.structs.replace(self.record, **changes)
        return self.record

    @property
    def is_ended(self) -> bool:
        return self.record.state in ENDED
