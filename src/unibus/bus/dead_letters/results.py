"""What the verbs on dead letters answer with: a yes or a no in words, and counts for all that can become of them."""

from dataclasses import dataclass, field

from unibus.bus.dead_letters.rules import RecoveryAction


@dataclass(frozen=True)
class RecoveryResult:
    """What became of one letter. A no is an answer, not an exception: `message` says why. True if it succeeded."""

    success: bool
    message: str
    id: str = ""
    entity: str = ""
    sequence: int = 0

    def __bool__(self) -> bool:
        return self.success


@dataclass
class ProcessingResult:
    """How many letters went which way. `errors` holds (id, text) of each that could not go where it should have.

    `manual_review` are those left for a person: by a rule, or because they were brought back too often. `skipped` were
    locked or gone when their turn came. With `dry_run` it tells what would have happened.
    """

    retried: int = 0
    redirected: int = 0
    discarded: int = 0
    manual_review: int = 0
    skipped: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list)
    dry_run: bool = False

    @property
    def done(self) -> int:
        """Letters that are no dead letters any more."""
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
    """Dead letters that lie in one place for one reason."""

    entity: str
    reason: str
    count: int
    oldest_ns: int
