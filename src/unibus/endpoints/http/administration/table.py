"""The operations of this package. All need the right Manage, as in Azure: settings contain keys."""

from typing import Final

from unibus.core.access.rights import Right
from unibus.endpoints.http.administration import documentation as doc
from unibus.endpoints.http.administration.entities import (
    delete_entity,
    get_entity,
    list_queues,
    list_subscriptions,
    list_topics,
    put_entity,
)
from unibus.endpoints.http.administration.namespace import get_namespace
from unibus.endpoints.http.administration.rules import delete_rule, get_rule, list_rules, put_rule
from unibus.endpoints.http.operation import Handler, Operation

_TAG: Final = "administration"


def _put(
    name: str, shape: str, handler: Handler, paths: tuple[str, ...], body: doc.Schema, answer: doc.Schema
) -> Operation:
    noun = name.removeprefix("put_")
    return Operation(
        name=name,
        method="PUT",
        shape=shape,
        right=Right.MANAGE,
        handler=handler,
        summary=f"Create the {noun}, or update it with If-Match: *",
        documented=paths,
        statuses=(201, 200, 409),
        has_body=True,
        tag=_TAG,
        parameters=doc.WRITTEN,
        request_schema=body,
        response_schema=answer,
    )


def _get(
    name: str, shape: str, handler: Handler, paths: tuple[str, ...], summary: str, answer: doc.Schema
) -> Operation:
    return Operation(
        name=name,
        method="GET",
        shape=shape,
        right=Right.MANAGE,
        handler=handler,
        summary=summary,
        documented=paths,
        tag=_TAG,
        parameters=doc.LISTED if name.startswith("list_") else doc.READ,
        response_schema=answer,
    )


def _delete(name: str, shape: str, handler: Handler, paths: tuple[str, ...], summary: str) -> Operation:
    return Operation(
        name=name,
        method="DELETE",
        shape=shape,
        right=Right.MANAGE,
        handler=handler,
        summary=summary,
        documented=paths,
        tag=_TAG,
        parameters=(doc.API_VERSION,),
    )


ADMINISTRATION: Final[tuple[Operation, ...]] = (
    _put("put_entity", "entity", put_entity, doc.ENTITY_PATHS, doc.ENTITY_BODY, doc.ENTITY_ANSWER),
    _get("get_entity", "entity", get_entity, doc.ENTITY_PATHS, "Settings and counts of an entity", doc.ENTITY_ANSWER),
    _delete("delete_entity", "entity", delete_entity, doc.ENTITY_PATHS, "Delete an entity with everything in it"),
    _get("list_queues", "/queues", list_queues, doc.QUEUES_PATHS, "List queues by name", doc.ENTITIES_ANSWER),
    _get("list_topics", "/topics", list_topics, doc.TOPICS_PATHS, "List topics by name", doc.ENTITIES_ANSWER),
    _get(
        "list_subscriptions",
        "entity/subscriptions",
        list_subscriptions,
        doc.SUBSCRIPTIONS_PATHS,
        "List the subscriptions of a topic",
        doc.ENTITIES_ANSWER,
    ),
    _put("put_rule", "entity/rules/*", put_rule, doc.RULE_PATHS, doc.RULE_BODY, doc.RULE_ANSWER),
    _get("get_rule", "entity/rules/*", get_rule, doc.RULE_PATHS, "A rule of a subscription", doc.RULE_ANSWER),
    _delete("delete_rule", "entity/rules/*", delete_rule, doc.RULE_PATHS, "Delete a rule of a subscription"),
    _get(
        "list_rules", "entity/rules", list_rules, doc.RULES_PATHS, "List the rules of a subscription", doc.RULES_ANSWER
    ),
    _get(
        "get_namespace",
        "/$namespaceinfo",
        get_namespace,
        ("/$namespaceinfo",),
        "The namespace of this server",
        doc.NAMESPACE_ANSWER,
    ),
)
