"""What is set: declared entities, rules of subscriptions, authorization rules."""

from typing import Final

from unibus.bus.management.settings.access import AccessPage, AccessRule, AddRequest, RemoveRuleRequest, RotateRequest
from unibus.bus.management.settings.declaring import DeclaredPlan, DeclareRequest
from unibus.core.access.rights import Right
from unibus.endpoints.http.management.forms import ENTITY, TEXT, Schema, answer_of, at, body_of, parameter
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
from unibus.endpoints.http.operation import Handler, Operation

_TAG: Final = "management: settings"
_OF_NAMESPACE: Final = parameter("entity", "A queue or topic; left out: the namespace.", {"type": "string"})


def _operation(
    name: str,
    tail: str,
    handler: Handler,
    summary: str,
    request: object | None,
    answer: object,
    parameters: tuple[Schema, ...] = (ENTITY,),
) -> Operation:
    """GET without a request, POST with one."""
    return Operation(
        name=name,
        method="GET" if request is None else "POST",
        shape=at(tail),
        right=Right.MANAGE,
        handler=handler,
        summary=summary,
        documented=(at(tail),),
        statuses=(200,) if request is None else (200, 409),
        has_body=request not in (None, dict),
        tag=_TAG,
        parameters=parameters,
        request_schema={} if request in (None, dict) else body_of(request),
        response_schema=answer_of(answer),
        names_entity=bool(parameters),
    )


SETTINGS: Final[tuple[Operation, ...]] = (
    _operation(
        *("declare_entities", "entities/declare", declare_file),
        "Create and change entities as a file declares them, or only plan it",
        *(DeclareRequest, DeclaredPlan, ()),
    ),
    _operation(
        *("delete_named_entity", "entities/delete", delete_named),
        "Delete an entity with everything in it",
        *(dict, dict[str, str]),
    ),
    _operation(*("rules_of_entity", "rules", rules_of_entity), "The rules of a subscription", *(None, RulesAnswer)),
    _operation(
        *("set_rule", "rules/set", set_rule),
        "Create a rule of a subscription, or change it",
        *(RuleSetRequest, RuleRecord),
    ),
    _operation(
        *("delete_named_rule", "rules/delete", delete_rule),
        "Delete a rule of a subscription",
        *(RuleDeleteRequest, dict[str, str]),
    ),
    _operation(
        *("list_access", "access", list_access),
        "Authorization rules, without their keys",
        *(None, AccessPage, (_OF_NAMESPACE, parameter("after", "Only entities behind this name.", TEXT))),
    ),
    _operation(
        *("add_access", "access/add", add_access),
        "Add an authorization rule with new keys",
        *(AddRequest, AccessRule, (_OF_NAMESPACE,)),
    ),
    _operation(
        *("rotate_access", "access/rotate", rotate_access),
        "Replace the keys of an authorization rule",
        *(RotateRequest, AccessRule, (_OF_NAMESPACE,)),
    ),
    _operation(
        *("remove_access", "access/remove", remove_access),
        "Remove an authorization rule",
        *(RemoveRuleRequest, AccessRule, (_OF_NAMESPACE,)),
    ),
)
