"""Entities and rules as JSON, with unibus names. The settings of an answer can be sent back in a PUT."""

from collections.abc import Sequence
from typing import Final

from unibus.bus.api.broker import EntityInfo
from unibus.bus.entities.azure_names import CORRELATION
from unibus.core.access.rules import rules_of_text
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter
from unibus.core.lifecycle.declaring import has_setting
from unibus.core.lifecycle.state.entity import KIND_NAMES
from unibus.core.lifecycle.state.rules import Rule
from unibus.endpoints.http.administration.properties import SUBSCRIPTION
from unibus.endpoints.http.administration.times import time_text

_KINDS: Final = {name: kind for kind, name in KIND_NAMES.items()}


def entity_json(info: EntityInfo, rules: Sequence[Rule] = ()) -> dict[str, object]:
    """An entity with the keys of its authorization rules: the right Manage includes reading them, as in Azure.

    `rules` are those of a subscription.
    """
    kind = _KINDS[info.kind]
    settings: dict[str, object] = {name: value for name, value in info.settings.items() if has_setting(kind, name)}
    access = settings.get("authorization_rules")
    if isinstance(access, str):
        settings["authorization_rules"] = [rule.as_dict() for rule in rules_of_text(access)]
    settings.pop("rules", None)
    if info.kind == SUBSCRIPTION:
        settings["rules"] = {rule.name: rule_shape(rule) for rule in rules}
    return {
        "name": info.name,
        "kind": info.kind,
        "settings": settings,
        "counts": {
            "active": info.active,
            "locked": info.locked,
            "deferred": info.deferred,
            "scheduled": info.scheduled,
            "dead": info.dead,
        },
        "size_bytes": info.size_bytes,
        "created_at": time_text(info.created_ns),
        "updated_at": time_text(info.updated_ns or info.created_ns),
        "accessed_at": time_text(info.accessed_ns),
    }


def rule_json(rule: Rule) -> dict[str, object]:
    return {"name": rule.name, **rule_shape(rule), "created_at": time_text(rule.created_ns)}


def rule_shape(rule: Rule) -> dict[str, object]:
    """Filter and action in the form that `declared_rule` parses."""
    action = rule.action
    record: dict[str, object] = {"filter": _filter(rule.condition)}
    if action is not None:
        plain = {"sql": action.expression, "parameters": dict(action.named)}
        record["action"] = plain if action.parameters else action.expression
    return record


def _filter(condition: Filter) -> object:
    if isinstance(condition, SqlFilter):
        if not condition.parameters:
            return condition.expression
        return {"sql": condition.expression, "parameters": dict(condition.named)}
    if isinstance(condition, CorrelationFilter):
        fields: dict[str, object] = {CORRELATION[name]: text for name, text in condition.system.items()}
        return {**fields, "properties": dict(condition.properties)} if condition.properties else fields
    return not isinstance(condition, FalseFilter)
