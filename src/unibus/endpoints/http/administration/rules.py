"""Create, update, read, delete and list the rules of a subscription."""

from unibus.bus.entities.shapes import declared_rule
from unibus.codecs.atom.descriptions import EntityDescription, RuleDescription
from unibus.core.lifecycle.state.rules import Rule
from unibus.endpoints.http.administration.answers import rule_response, rules_response
from unibus.endpoints.http.administration.paging import AtomPage, PageWindow
from unibus.endpoints.http.administration.places import entity_path
from unibus.endpoints.http.administration.rule_descriptions import rule_of
from unibus.endpoints.http.administration.submitted import is_update, submitted
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError


async def put_rule(service: Service, request: Request) -> Response:
    subscription = entity_path(request)
    update = is_update(request)
    rule = _submitted_rule(request, subscription)
    if update:
        await service.broker.update_rule(subscription, rule)
    else:
        await service.broker.create_rule(subscription, rule)
    stored = await service.broker.rule(subscription, rule.name)
    return rule_response(request, subscription, stored, 200 if update else 201)


def _submitted_rule(request: Request, subscription: str) -> Rule:
    name = request.params["rule"]
    given = submitted(request)
    if isinstance(given.described, EntityDescription):
        raise UsageError(f"the body is a {given.described.kind}, not a rule", "send a RuleDescription")
    if given.described is not None:
        return rule_of(name, given.described)
    if given.fields:
        return declared_rule(subscription, name, given.fields)
    return rule_of(name, RuleDescription())


async def get_rule(service: Service, request: Request) -> Response:
    subscription = entity_path(request)
    return rule_response(request, subscription, await service.broker.rule(subscription, request.params["rule"]))


async def delete_rule(service: Service, request: Request) -> Response:
    await service.broker.delete_rule(entity_path(request), request.params["rule"])
    return Response(200)


async def list_rules(service: Service, request: Request) -> Response:
    subscription = entity_path(request)
    window = PageWindow.of(request)
    found = await service.broker.rules(subscription, window.skip, window.top + 1)
    return rules_response(service, request, subscription, AtomPage.of(window, found))
