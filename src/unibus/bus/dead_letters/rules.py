"""Recovery rules as data: conditions on a dead-lettered message, and an action. The first rule that matches decides.

All conditions of a rule must be true; a condition that is not given is true. A message that no rule matches is left to
an operator (MANUAL_REVIEW). Rules are read from and written to JSON, a list of objects with the field names below, so
that they can be kept in a file and tried before they are applied.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.matching import Matcher, is_in_entity
from unibus.bus.dead_letters.record import record_of, text_in
from unibus.core.flow.deadletter import SOURCE_HEADER
from unibus.display import described, short_value
from unibus.errors import ConfigInvalid, UsageError
from unibus.stores.seam.message_record import MessageRecord


class RecoveryAction(enum.StrEnum):
    RETRY = "retry"
    """Send it again to its source."""
    REDIRECT = "redirect"
    """Move it to the rule's target."""
    DISCARD = "discard"
    MANUAL_REVIEW = "manual_review"
    """Leave it in the dead-letter queue."""


class RecoveryRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule. `reason`, `signature` and `description` match a part of the text, regardless of case; `queue` is a name
    or a pattern.

    `signature` is matched against the error of the message, `older_than` is in seconds since it was dead-lettered,
    `attempts_below` bounds the deliveries before that. `target_available` checks whether the source exists now.
    `target` is where REDIRECT moves the message.
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
            # A rule made in Python may have the action as text; the struct is frozen for users only.
            msgspec.structs.force_setattr(self, "action", RecoveryAction(self.action))
            self.as_filter()
        except (UsageError, ValueError) as error:
            raise ConfigInvalid(f"a recovery rule is not valid: {error}", "see RecoveryRule for its fields") from None
        if (self.action is RecoveryAction.REDIRECT) != (self.target is not None):
            raise ConfigInvalid(
                f"target {self.target!r} does not fit the action {str(self.action)!r} of a recovery rule",
                "redirect needs a target, and no other action takes one",
            )

    def __repr__(self) -> str:
        return described(self, lambda: ", ".join(f"{name}={short_value(value)}" for name, value in self._given()))

    def _given(self) -> list[tuple[str, object]]:
        return list(self.as_dict().items())

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
        """The fields that are given, without defaults."""
        shown: dict[str, object] = msgspec.to_builtins(self)
        return shown

    @staticmethod
    def load(text: str | bytes) -> "tuple[RecoveryRule, ...]":
        """Rules from JSON, a list of objects. ConfigInvalid for anything else."""
        try:
            return tuple(msgspec.json.decode(text, type=list[RecoveryRule]))
        except msgspec.MsgspecError as error:
            hint = "`unibus dlq rules show` prints an example"
            raise ConfigInvalid(f"the recovery rules cannot be read: {error}", hint) from None

    @staticmethod
    def dump(rules: "Iterable[RecoveryRule]") -> str:
        """JSON for `load`, one rule per line."""
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
"""Retry what may succeed now, discard what never will, and leave everything else to an operator."""


def rules_of(given: Iterable[object] | None) -> tuple[RecoveryRule, ...]:
    """RecoveryRule objects or dictionaries as a tuple of rules; DEFAULT_RULES for None."""
    if given is None:
        return DEFAULT_RULES
    if isinstance(given, (str, bytes)):
        raise UsageError(
            f"recovery rules must be a list, not {type(given).__name__}", "read JSON with RecoveryRule.load"
        )
    return tuple(rule if isinstance(rule, RecoveryRule) else _converted(rule) for rule in given)


def _converted(given: object) -> RecoveryRule:
    try:
        return msgspec.convert(given, RecoveryRule)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(f"a recovery rule is not valid: {error}", "see RecoveryRule for its fields") from None


class Judge:
    """Applies rules at one moment. `is_available` is called once for each source."""

    def __init__(self, rules: Sequence[RecoveryRule], now_ns: int, is_available: Callable[[str], bool]) -> None:
        self.rules = rules
        self._matchers = [Matcher(rule.as_filter(), now_ns) for rule in rules]
        self._is_available = is_available
        self._available: dict[str, bool] = {}

    def rule_for(self, entry: MessageRecord) -> int:
        """The index of the first rule that matches; `len(rules)` if none does."""
        for number, (rule, matcher) in enumerate(zip(self.rules, self._matchers, strict=True)):
            # Cheapest first; `_has_target` may call code of the user.
            if is_in_entity(rule.queue, entry.entity) and matcher.takes(entry) and self._has_target(rule, entry):
                return number
        return len(self.rules)

    def verdict(self, entry: MessageRecord) -> tuple[RecoveryAction, str]:
        """The action for a message, and its target."""
        number = self.rule_for(entry)
        if number == len(self.rules):
            return RecoveryAction.MANUAL_REVIEW, ""
        return self.rules[number].action, self.rules[number].target or ""

    def _has_target(self, rule: RecoveryRule, entry: MessageRecord) -> bool:
        """Whether the condition `target_available` is true."""
        if rule.target_available is None:
            return True
        name = text_in(record_of(entry), SOURCE_HEADER)
        # Asked once for each source: all messages of one run are judged by the same answer.
        if name not in self._available:
            self._available[name] = bool(self._is_available(name))
        return self._available[name] == rule.target_available
