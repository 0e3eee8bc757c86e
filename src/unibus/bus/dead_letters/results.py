"""The results of operations on dead-lettered messages: success or the reason for one, counts for many."""

from dataclasses import dataclass, field

from unibus.bus.dead_letters.rules import RecoveryAction
from unibus.display import counts_text, described, quoted


@dataclass(frozen=True)
class RecoveryResult:
    """The result for one message. A refusal is a result, not an exception: `message` gives the reason.

    It is true if the operation succeeded. `entity` and `sequence` are where the message is now.
    """

    success: bool
    message: str
    id: str = ""
    entity: str = ""
    sequence: int = 0

    def __bool__(self) -> bool:
        return self.success

    def __repr__(self) -> str:
        return described(self, lambda: f"{'done' if self.success else 'refused'}, {self.id or '-'}: {self.message}")


@dataclass
class ProcessingResult:
    """The number of messages per action. `errors` holds (id, text) for each message that could not be moved.

    `manual_review` counts those left to an operator: by a rule, or because they reached the maximum of recoveries.
    `skipped` counts those that were locked or already settled. With `dry_run` the counts are what would have happened.
    """

    retried: int = 0
    redirected: int = 0
    discarded: int = 0
    manual_review: int = 0
    skipped: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list)
    dry_run: bool = False

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        names = ("retried", "redirected", "discarded", "manual_review", "skipped")
        counts = [(getattr(self, name), name) for name in names] + [(len(self.errors), "errors")]
        return f"{'dry run: ' if self.dry_run else ''}{counts_text(counts, 'nothing to do')}"

    @property
    def done(self) -> int:
        """Messages that have left the dead-letter queue."""
        return self.retried + self.redirected + self.discarded

    def count(self, action: RecoveryAction, number: int = 1) -> None:
        if action is RecoveryAction.RETRY:
            self.retried += number
        elif action is RecoveryAction.REDIRECT:
            self.redirected += number
        elif action is RecoveryAction.DISCARD:
            self.discarded += number
        else:
            self.manual_review += number


@dataclass(frozen=True)
class DeadGroup:
    """The dead-lettered messages of one entity with the same reason: their number and the oldest failure."""

    entity: str
    reason: str
    count: int
    oldest_ns: int

    def __repr__(self) -> str:
        return described(self, lambda: f"{quoted(self.entity, 50)}, {quoted(self.reason, 40)}: {self.count:,}")
