"""Rules of recovery, as data: conditions on a dead letter, and what to do with it. The first that applies decides.

All conditions of a rule have to be true; one that is left out is. A letter that no rule applies to is left for a person
(MANUAL_REVIEW). Rules come from and go to JSON, a list of objects with the names below, so that they can be kept in a
file and tried before they are carried out.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.matching import Matcher, lies_in
from unibus.bus.dead_letters.record import record_of, text_in
from unibus.core.flow.deadletter import SOURCE_HEADER
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.errors import ConfigInvalid, UsageError


class RecoveryAction(enum.StrEnum):
    RETRY = "retry"
    """Back to where it died."""
    REDIRECT = "redirect"
    """To the rule's target."""
    DISCARD = "discard"
    MANUAL_REVIEW = "manual_review"
    """It stays where it is."""


class RecoveryRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`reason`, `signature` and `description` are contained in it, whatever the case; `queue` is a name or a pattern.

    `signature` is the error that is told about the letter, `older_than` seconds since it died, `attempts_below` the
    deliveries before that. `target_available` asks whether the place where it died is there now. `target` is where
    REDIRECT sends it.
    """

    action: RecoveryAction
    reason: str | None = None
    signature: str | None = None
    description: str | None = None
    queue: str | None = None
    older_than: float | None = None
    target_available: bool | None = None
    attempts_below: int | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        try:
            msgspec.structs.force_setattr(self, "action", RecoveryAction(self.action))
            self.as_filter()
        except (UsageError, ValueError) as error:
            raise ConfigInvalid(f"a rule cannot be: {error}", "see RecoveryRule for what it can say") from None
        if (self.action is RecoveryAction.REDIRECT) != (self.target is not None):
            raise ConfigInvalid(f"a rule to {self.action} with target {self.target!r}", "only a redirect has one")

    def as_filter(self) -> DeadLetterFilter:
        return DeadLetterFilter(
            queue=self.queue,
            reason=self.reason,
            error=self.signature,
            description=self.description,
            older_than=self.older_than,
            attempts_below=self.attempts_below,
        )

    def as_dict(self) -> dict[str, object]:
        """Only what it says."""
        shown: dict[str, object] = msgspec.to_builtins(self)
        return shown

    @staticmethod
    def load(text: str | bytes) -> "tuple[RecoveryRule, ...]":
        """Rules from JSON, a list of them. ConfigInvalid for anything else."""
        try:
            return tuple(msgspec.json.decode(text, type=list[RecoveryRule]))
        except msgspec.MsgspecError as error:
            hint = "`unibus dlq rules show` writes some to begin with"
            raise ConfigInvalid(f"these are no rules: {error}", hint) from None

    @staticmethod
    def dump(rules: "Iterable[RecoveryRule]") -> str:
        """JSON that `load` reads, a rule per line."""
        lines = ",\n".join(f"  {msgspec.json.encode(rule).decode()}" for rule in rules)
        return f"[\n{lines}\n]\n" if lines else "[]\n"

    @staticmethod
    def defaults() -> "tuple[RecoveryRule, ...]":
        return DEFAULT_RULES


DEFAULT_RULES: Final = (
    RecoveryRule(RecoveryAction.RETRY, reason="target_unavailable", target_available=True),
    RecoveryRule(RecoveryAction.RETRY, reason="network", attempts_below=3),
    RecoveryRule(RecoveryAction.DISCARD, reason="validation"),
)
"""What is worth another try once the cause is gone, what never will be; the rest is for people."""


def rules_of(given: Iterable[object] | None) -> tuple[RecoveryRule, ...]:
    """Rules that were made, or dictionaries of them; the default ones for None."""
    if given is None:
        return DEFAULT_RULES
    if isinstance(given, (str, bytes)):
        raise UsageError("rules are a list", "RecoveryRule.load reads them from JSON")
    return tuple(rule if isinstance(rule, RecoveryRule) else _converted(rule) for rule in given)


def _converted(given: object) -> RecoveryRule:
    try:
        return msgspec.convert(given, RecoveryRule)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(f"a rule cannot be: {error}", "see RecoveryRule for what it can say") from None


class Judge:
    """Rules at one moment. `is_available` is asked once for each place."""

    def __init__(self, rules: Sequence[RecoveryRule], now_ns: int, is_available: Callable[[str], bool]) -> None:
        self.rules = rules
        self._matchers = [Matcher(rule.as_filter(), now_ns) for rule in rules]
        self._is_available = is_available
        self._available: dict[str, bool] = {}

    def rule_for(self, entry: StoredMessage) -> int:
        """The number of the rule that decides; one more than there are where none does."""
        for number, (rule, matcher) in enumerate(zip(self.rules, self._matchers, strict=True)):
            if lies_in(rule.queue, entry.entity.name) and matcher.takes(entry) and self._agrees(rule, entry):
                return number
        return len(self.rules)

    def verdict(self, entry: StoredMessage) -> tuple[RecoveryAction, str]:
        """What to do, and where to."""
        number = self.rule_for(entry)
        if number == len(self.rules):
            return RecoveryAction.MANUAL_REVIEW, ""
        return self.rules[number].action, self.rules[number].target or ""

    def _agrees(self, rule: RecoveryRule, entry: StoredMessage) -> bool:
        if rule.target_available is None:
            return True
        name = text_in(record_of(entry), SOURCE_HEADER)
        if name not in self._available:
            self._available[name] = bool(self._is_available(name))
        return self._available[name] == rule.target_available
