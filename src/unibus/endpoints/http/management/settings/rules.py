"""GET rules, POST rules/set, rules/delete: the rules of a subscription, in the form of an entities file."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from unibus.bus.entities.shapes import declared_rule
from unibus.core.lifecycle.state.rules import Rule
from unibus.endpoints.http.administration.json_forms import rule_shape
from unibus.endpoints.http.management.forms import entity_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound
from unibus.limits import RULE_NAME_CHARS_MAX, RULES_PER_SUBSCRIPTION_MAX

RuleName = Annotated[str, Meta(min_length=1, max_length=RULE_NAME_CHARS_MAX)]


class RuleRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """`filter`: true, false, SQL as text, {"sql", "parameters"}, or the fields of a correlation filter.

    `action` is SQL as text, or {"sql", "parameters"}. `created_ns` is only in answers.
    """

    name: RuleName
    filter: bool | str | dict[str, Any] = True
    action: str | dict[str, Any] | None = None
    created_ns: int = 0


class RuleSetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets the filter and the action of the rule with this name, or creates it."""

    name: RuleName
    filter: bool | str | dict[str, Any] = True
    action: str | dict[str, Any] | None = None


class RuleDeleteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: RuleName


class RulesAnswer(msgspec.Struct, frozen=True):
    """All rules of the subscription, by name."""

    rules: list[RuleRecord]


_decode: Final = msgspec.json.Decoder(RuleSetRequest).decode
_decode_name: Final = msgspec.json.Decoder(RuleDeleteRequest).decode


async def rules_of_entity(service: Service, request: Request) -> Response:
    found = await service.broker.rules(entity_of(request), 0, RULES_PER_SUBSCRIPTION_MAX)
    return json_response({"rules": [_record(rule) for rule in found]})


def _record(rule: Rule) -> dict[str, object]:
    return {"name": rule.name, **rule_shape(rule), "created_ns": int(rule.created_ns)}


async def set_rule(service: Service, request: Request) -> Response:
    subscription, given = entity_of(request), request.json_as(_decode)
    shape = {"filter": given.filter, "action": given.action}
    rule = declared_rule(subscription, given.name, shape)
    broker = service.broker
    try:
        await broker.update_rule(subscription, rule)
    except EntityNotFound:
        await broker.create_rule(subscription, rule)
    return json_response(_record(await broker.rule(subscription, given.name)))


async def delete_rule(service: Service, request: Request) -> Response:
    await service.broker.delete_rule(entity_of(request), request.json_as(_decode_name).name)
    return json_response({})
