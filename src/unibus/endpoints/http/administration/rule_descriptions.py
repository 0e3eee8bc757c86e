"""Rules of a subscription: between Atom documents and the bus."""

from collections.abc import Mapping

from unibus.bus.entities.azure_names import CORRELATION
from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import (
    ActionDescription,
    FilterDescription,
    RuleDescription,
    TypedValue,
)
from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.core.lifecycle.state.rules import DEFAULT_RULE, Rule, checked_rule_name
from unibus.endpoints.http.administration.times import time_text
from unibus.endpoints.http.administration.typed_values import typed, value_of
from unibus.errors import BusError, ConfigInvalid


def rule_of(name: str, described: RuleDescription) -> Rule:
    """The rule of a document, with the name from the address."""
    if described.name and described.name.casefold() != name.casefold():
        raise ConfigInvalid(
            f"Name is {described.name!r:.60}, but the address names the rule {name!r:.60}", "use the same name in both"
        )
    try:
        return Rule(checked_rule_name(name), _filter(described.filter), _action(described.action))
    except BusError as error:
        raise ConfigInvalid(f"rule {name!r:.60}: {error.what}", error.hint) from error


def default_rule_of(described: RuleDescription) -> Rule:
    """The rule of a new subscription, instead of the default rule that accepts every message."""
    return rule_of(described.name or DEFAULT_RULE, described)


def _filter(described: FilterDescription | None) -> Filter:
    if described is None or described.kind == schema.TRUE_FILTER:
        return TrueFilter()
    if described.kind == schema.FALSE_FILTER:
        return FalseFilter()
    if described.kind == schema.SQL_FILTER:
        return SqlFilter(described.expression, _values(described.parameters))
    fields = {CORRELATION[name]: text for name, text in described.fields}
    correlation_id = fields.pop("correlation_id", None)
    return CorrelationFilter(correlation_id, _values(described.properties), **fields)


def _action(described: ActionDescription | None) -> SqlRuleAction | None:
    return None if described is None else SqlRuleAction(described.expression, _values(described.parameters))


def _values(pairs: tuple[tuple[str, TypedValue], ...]) -> dict[str, HeaderValue]:
    values: dict[str, HeaderValue] = {}
    for name, given in pairs:
        if name in values:
            raise ConfigInvalid(f"the property {name!r:.60} is given twice", "remove one of them")
        values[name] = value_of(name, given)
    return checked_headers(values)


def description_of(rule: Rule) -> RuleDescription:
    action = rule.action
    described = None if action is None else ActionDescription(action.expression, _parameters(action.named))
    return RuleDescription(rule.name, _described(rule.condition), described, time_text(rule.created_ns))


def _described(condition: Filter) -> FilterDescription:
    if isinstance(condition, SqlFilter):
        return FilterDescription(schema.SQL_FILTER, condition.expression, _parameters(condition.named))
    if isinstance(condition, CorrelationFilter):
        properties = tuple((name, typed(value)) for name, value in condition.properties.items())
        return FilterDescription(schema.CORRELATION_FILTER, "", (), tuple(condition.system.items()), properties)
    return FilterDescription(schema.FALSE_FILTER if isinstance(condition, FalseFilter) else schema.TRUE_FILTER)


def _parameters(values: Mapping[str, HeaderValue]) -> tuple[tuple[str, TypedValue], ...]:
    return tuple((f"@{name}", typed(value)) for name, value in values.items())
