# mypyc: compiled
"""The rules of a subscription: which messages of its topic it gets, and how they are changed.

A subscription without the setting has one rule, `$Default`, that matches everything. All its rules are one setting, a
text, so they are stored with the entity in the journal, in snapshots and in history, and a message is always evaluated
by one consistent set of rules.

    text     [{"name":"a",…},{"name":"b",…}]      replaced as a whole when one rule changes
    RuleSet   Rule a          Rule b              a rule with an unchanged record is taken from the previous set

So a change compiles one filter, however many rules the subscription has.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec
from mypy_extensions import i64

from unibus.core.codec.wire import tagged, untagged
from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.expressions import Draw
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.display import described, quoted
from unibus.errors import BusError, ConfigInvalid, NameInvalid
from unibus.limits import RULE_NAME_CHARS_MAX, RULES_PER_SUBSCRIPTION_MAX

DEFAULT_RULE: Final = "$Default"

_FIELDS: Final[dict[str, str]] = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
"""System properties of a correlation filter, by their names in the filter language."""


@final
class Rule:
    """A filter, and the action that changes the messages that it matches. `created_ns`: 0 if unknown."""

    def __init__(self, name: str, condition: Filter, action: SqlRuleAction | None = None, created_ns: int = 0) -> None:
        self.name = name
        self.condition = condition
        self.action = action
        self.created_ns: i64 = created_ns

    def takes_all(self) -> bool:
        return isinstance(self.condition, TrueFilter) and self.action is None

    def copy(self) -> "Rule":
        """For callers outside of the store: changing the copy does not change the routing. The filter is shared."""
        return Rule(self.name, self.condition, self.action, self.created_ns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rule):
            return NotImplemented
        return self.name == other.name and self.condition == other.condition and self.action == other.action

    def __hash__(self) -> int:
        return hash((self.name, self.condition))

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        does = "" if self.action is None else f", {quoted(self.action.text, 40)}"
        return f"{self.name!r}: {quoted(self.condition.text, 40)}{does}"


def checked_rule_name(name: object) -> str:
    """The name of a rule: letters, digits, and . - _ in between, as in Azure; `$Default` is valid, too."""
    if name == DEFAULT_RULE:
        return DEFAULT_RULE
    if not isinstance(name, str) or not 1 <= len(name) <= RULE_NAME_CHARS_MAX:
        raise NameInvalid(f"the rule name {name!r:.80} must be text of 1 to {RULE_NAME_CHARS_MAX} characters")
    plain = name.replace(".", "").replace("-", "").replace("_", "")
    if not plain.isalnum() or not (name[0].isalnum() and name[-1].isalnum()):
        raise NameInvalid(
            f"the rule name {name!r} has characters that are not allowed",
            "use letters and digits, with . - _ in between",
        )
    return exact_text(name)


# As text


def text_of(rules: Sequence[Rule]) -> str:
    """The rules as the text of the setting. Raises ConfigInvalid for text that UTF-8 cannot encode."""
    return _joined([_encoded(rule) for rule in rules])


def _encoded(rule: Rule) -> bytes:
    try:
        encoded: bytes = msgspec.json.encode(record_of(rule))
        return encoded
    except (TypeError, ValueError) as error:
        raise ConfigInvalid(f"a rule cannot be written: {error!s:.200}", "use text that UTF-8 can encode") from error


def _joined(records: list[bytes]) -> str:
    return "[" + b",".join(records).decode() + "]"


def record_of(rule: Rule) -> dict[str, object]:
    record: dict[str, object] = {"name": rule.name, "filter": _filter_record(rule.condition)}
    action = rule.action
    if action is not None:
        record["action"] = {"expression": action.expression, "parameters": _tagged(action.named)}
    if rule.created_ns:
        record["created_ns"] = rule.created_ns
    return record


def _filter_record(condition: Filter) -> dict[str, object]:
    if isinstance(condition, TrueFilter):
        return {"kind": "true"}
    if isinstance(condition, FalseFilter):
        return {"kind": "false"}
    if isinstance(condition, CorrelationFilter):
        fields = {_FIELDS[name]: value for name, value in condition.system.items()}
        return {"kind": "correlation", "fields": fields, "properties": _tagged(condition.properties)}
    if isinstance(condition, SqlFilter):
        return {"kind": "sql", "expression": condition.expression, "parameters": _tagged(condition.named)}
    raise ConfigInvalid(
        f"a filter of type {type(condition).__name__} cannot be stored",
        "use TrueFilter, FalseFilter, CorrelationFilter or SqlFilter",
    )


def _tagged(values: Mapping[str, HeaderValue]) -> dict[str, object]:
    return {name: tagged(value, False) for name, value in values.items()}


def rules_of(text: str | None, mode: str, new_id: Draw | None = None) -> list[Rule]:
    """The rules of a text. Raises ConfigInvalid if it is not valid."""
    return rule_set_of(text, mode, new_id).rules


def rule_set_of(text: str | None, mode: str, new_id: Draw | None = None, before: "RuleSet | None" = None) -> "RuleSet":
    """The same as a set. A rule that `before` has with the same record is taken from it, not compiled again."""
    if text is None:
        rule = Rule(DEFAULT_RULE, TrueFilter())
        return RuleSet([rule], [_encoded(rule)], None, mode)
    records = _split(text)
    if len(records) > RULES_PER_SUBSCRIPTION_MAX:
        raise ConfigInvalid(
            f"the subscription has {len(records)} rules, at most {RULES_PER_SUBSCRIPTION_MAX} are allowed"
        )
    known = {} if before is None or before.mode != mode else before.by_record()
    rules: list[Rule] = []
    for record in records:
        rule_known = known.get(record)
        rules.append(_read(record, mode, new_id) if rule_known is None else rule_known)
    return RuleSet(rules, records, text, mode)


def _split(text: str) -> list[bytes]:
    """The records of the rules, each as its JSON bytes."""
    try:
        raws: list[msgspec.Raw] = msgspec.json.decode(text, type=list[msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error
    return [bytes(raw) for raw in raws]


def _read(encoded: bytes, mode: str, new_id: Draw | None) -> Rule:
    try:
        record: dict[str, object] = msgspec.json.decode(encoded, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error
    return rule_of(record, mode, new_id)


def _unreadable(error: msgspec.MsgspecError) -> ConfigInvalid:
    return ConfigInvalid(
        f"the rules cannot be decoded: {error}", "give a JSON list of rules, each with a name and a filter"
    )


@final
class RuleSet:
    """All rules of a subscription, compiled. Immutable: a change of the setting creates another one.

    `records` are the rules as JSON, in the same order; `text` is the setting, None for the default rule.
    """

    def __init__(self, rules: list[Rule], records: list[bytes], text: str | None, mode: str) -> None:
        self.rules = rules
        self.text = text
        self.mode = mode
        self._records = records
        self._places = {rule.name.casefold(): at for at, rule in enumerate(rules)}
        self._by_name: list[Rule] | None = None
        if len(self._places) != len(rules):
            raise ConfigInvalid("two rules have the same name", "names that differ only by case are equal")
        self.correlations: i64 = len([rule for rule in rules if isinstance(rule.condition, CorrelationFilter)])

    def by_record(self) -> dict[bytes, Rule]:
        return dict(zip(self._records, self.rules, strict=True))

    def find(self, name: str) -> Rule | None:
        """The rule of that name, in any case; None if there is none."""
        at = self._places.get(name.casefold())
        return None if at is None else self.rules[at]

    def page(self, skip: int, top: int) -> list[Rule]:
        """Up to `top` rules from the one at `skip`, by name. Sorted once for all pages."""
        if self._by_name is None:
            self._by_name = [self.rules[at] for _, at in sorted(self._places.items())]
        return [rule.copy() for rule in self._by_name[skip : skip + top]]

    def text_with(self, rule: Rule) -> str:
        """The setting with this rule: it replaces the rule of its name, else it is appended."""
        records = self._records[:]
        at = self._places.get(rule.name.casefold())
        if at is None:
            records.append(_encoded(rule))
        else:
            records[at] = _encoded(rule)
        return _joined(records)

    def text_without(self, name: str) -> str:
        at = self._places[name.casefold()]
        return _joined(self._records[:at] + self._records[at + 1 :])


def rule_of(record: Mapping[str, object], mode: str, new_id: Draw | None = None) -> Rule:
    name = checked_rule_name(record.get("name"))
    try:
        condition = _filter_of(_dict(record.get("filter")), mode, new_id)
        action = _action_of(record.get("action"), mode, new_id)
    except BusError as error:
        raise ConfigInvalid(f"rule {name!r}: {error.what}", error.hint) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigInvalid(f"rule {name!r} is not valid: {error}") from error
    created_ns = record.get("created_ns", 0)
    return Rule(name, condition, action, created_ns if isinstance(created_ns, int) else 0)


def _filter_of(record: dict[str, object], mode: str, new_id: Draw | None) -> Filter:
    kind = record.get("kind")
    if kind == "true":
        return TrueFilter()
    if kind == "false":
        return FalseFilter()
    if kind == "correlation":
        fields = _dict(record.get("fields"))
        correlation_id = fields.pop("correlation_id", None)
        if correlation_id is not None and not isinstance(correlation_id, str):
            raise ConfigInvalid(f"the correlation_id must be text, got {correlation_id!r:.60}")
        return CorrelationFilter(correlation_id, _values(record.get("properties")), mode, **fields)
    if kind == "sql":
        return SqlFilter(_text(record.get("expression")), _values(record.get("parameters")), mode, new_id)
    raise ConfigInvalid(f"there is no filter of kind {kind!r:.40}", "use true, false, correlation or sql")


def _action_of(record: object, mode: str, new_id: Draw | None) -> SqlRuleAction | None:
    if record is None:
        return None
    found = _dict(record)
    return SqlRuleAction(_text(found.get("expression")), _values(found.get("parameters")), mode, new_id)


def _dict(value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{value!r:.60} is not a mapping of names to values")
    return {str(name): item for name, item in value.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigInvalid(f"an expression must be text, not {value!r:.60}")
    return value


def _values(value: object) -> dict[str, HeaderValue]:
    return checked_headers({name: untagged(item) for name, item in _dict(value).items()})
