"""Settings: declared entities, rules of subscriptions, authorization rules."""

from typing import Final

from unibus.bus.management.settings.access import AccessPage, AccessRule, AddRequest, RemoveRuleRequest, RotateRequest
from unibus.bus.management.settings.declaring import DeclaredPlan, DeclareRequest
from unibus.endpoints.http.management.forms import ENTITY, TEXT, Schema, answer_of, body_of, parameter
from unibus.endpoints.http.management.settings.access import add_access, list_access, remove_access, rotate_access
from unibus.endpoints.http.management.settings.entities import declare_file, delete_named
from unibus.endpoints.http.management.settings.rules import (
    RuleDeleteRequest,
    RuleRecord,
    RulesAnswer,
    RuleSetRequest,
    delete_rule,
    rules_of_entity,
    set_rule,
)
from unibus.endpoints.http.management.tables.section import RowOptions, Section
from unibus.endpoints.http.operation import Handler, Operation

_SECTION: Final = Section("settings")
_OF_NAMESPACE: Final = parameter("entity", "A queue or topic; without it: the namespace.", {"type": "string"})


def _row(
    name: str,
    path: str,
    handler: Handler,
    summary: str,
    request: object | None,
    answer: object,
    parameters: tuple[Schema, ...] = (ENTITY,),
) -> Operation:
    """GET for a request of None, else POST; `dict` is a POST without a body."""
    options: RowOptions = {"parameters": parameters, "names_entity": bool(parameters)}
    if request is None:
        return _SECTION.get(name, path, handler, summary, answer_of(answer), **options)
    options["statuses"] = (200, 409)
    if request is not dict:
        options["request_schema"] = body_of(request)
    return _SECTION.post(name, path, handler, summary, answer_of(answer), **options)


SETTINGS: Final[tuple[Operation, ...]] = (
    _row(
        *("declare_entities", "entities/declare", declare_file),
        "Create and change entities as a file declares them, or only plan that",
        *(DeclareRequest, DeclaredPlan, ()),
    ),
    _row(
        *("delete_named_entity", "entities/delete", delete_named),
        "Delete an entity with everything in it",
        *(dict, dict[str, str]),
    ),
    _row(*("rules_of_entity", "rules", rules_of_entity), "The rules of a subscription", *(None, RulesAnswer)),
    _row(
        *("set_rule", "rules/set", set_rule),
        "Create a rule of a subscription, or change it",
        *(RuleSetRequest, RuleRecord),
    ),
    _row(
        *("delete_named_rule", "rules/delete", delete_rule),
        "Delete a rule of a subscription",
        *(RuleDeleteRequest, dict[str, str]),
    ),
    _row(
        *("list_access", "access", list_access),
        "Authorization rules, without their keys",
        *(None, AccessPage, (_OF_NAMESPACE, parameter("after", "Only entities after this name.", TEXT))),
    ),
    _row(
        *("add_access", "access/add", add_access),
        "Add an authorization rule with new keys",
        *(AddRequest, AccessRule, (_OF_NAMESPACE,)),
    ),
    _row(
        *("rotate_access", "access/rotate", rotate_access),
        "Replace the keys of an authorization rule",
        *(RotateRequest, AccessRule, (_OF_NAMESPACE,)),
    ),
    _row(
        *("remove_access", "access/remove", remove_access),
        "Remove an authorization rule",
        *(RemoveRuleRequest, AccessRule, (_OF_NAMESPACE,)),
    ),
)
