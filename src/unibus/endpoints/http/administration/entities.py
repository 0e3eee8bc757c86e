"""Create, update, read, delete and list queues, topics and subscriptions."""

from unibus.bus.api.broker import EntityInfo
from unibus.bus.entities.shapes import declared
from unibus.codecs.atom.descriptions import EntityDescription, RuleDescription
from unibus.endpoints.http.administration.answers import entities_response, entity_response
from unibus.endpoints.http.administration.forwarding import check_targets
from unibus.endpoints.http.administration.paging import AtomPage, PageWindow
from unibus.endpoints.http.administration.places import check_family, entity_path, wanted_kind
from unibus.endpoints.http.administration.properties import (
    KINDS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    defaults_of,
    given_settings,
    replaced_settings,
)
from unibus.endpoints.http.administration.rule_descriptions import default_rule_of
from unibus.endpoints.http.administration.submitted import Submitted, is_update, submitted
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound, UsageError


async def put_entity(service: Service, request: Request) -> Response:
    given = submitted(request)
    if is_update(request):
        return await _update(service, request, given)
    return await _create(service, request, given)


async def _create(service: Service, request: Request, given: Submitted) -> Response:
    name = entity_path(request)
    kind = wanted_kind(request, _kind_in_body(given))
    settings = _new_settings(name, kind, given)
    check_targets(service, request, settings)
    await service.broker.create(kind, name, settings)
    return await entity_response(service, request, await service.broker.entity(name), 201)


async def _update(service: Service, request: Request, given: Submitted) -> Response:
    info = await _found(service, request)
    kind = _kind_in_body(given)
    if kind is not None and kind != info.kind:
        raise UsageError(
            f"{info.name!r} is a {info.kind}, but the body describes a {kind}", f"send the description of a {info.kind}"
        )
    settings = _changed_settings(info, given)
    check_targets(service, request, settings, info.settings)
    await service.broker.update(info.name, settings)
    return await entity_response(service, request, await service.broker.entity(info.name))


def _kind_in_body(given: Submitted) -> str | None:
    described = given.described
    if isinstance(described, RuleDescription):
        raise UsageError(
            "the body describes a rule, not an entity", "send rules to …/subscriptions/{name}/rules/{rule}"
        )
    if described is not None:
        return KINDS[described.kind]
    kind = given.fields.get("kind")
    if kind is not None and kind not in KINDS.values():
        raise UsageError(
            f"kind must be one of {', '.join(KINDS.values())}, got {kind!r:.40}", "omit it: the address names the kind"
        )
    return None if kind is None else str(kind)


def _new_settings(name: str, kind: str, given: Submitted) -> dict[str, object]:
    settings = defaults_of(kind)
    if isinstance(given.described, EntityDescription):
        settings |= given_settings(given.described)
        if given.described.default_rule is not None:
            settings["rules"] = [default_rule_of(given.described.default_rule)]
        return settings
    own = _json_settings(name, kind, given)
    if own.get("dedup_window") is not None:
        settings.pop("duplicate_detection", None)  # In our JSON a dedup window alone switches detection on.
    return settings | own


def _changed_settings(info: EntityInfo, given: Submitted) -> dict[str, object]:
    if isinstance(given.described, EntityDescription):
        return replaced_settings(given.described, info.settings)
    return _json_settings(info.name, info.kind, given)


def _json_settings(name: str, kind: str, given: Submitted) -> dict[str, object]:
    """JSON changes the settings that it names; null resets a setting."""
    fields = {key: value for key, value in given.fields.items() if key != "kind"}
    wanted = declared(name, kind, fields)
    settings: dict[str, object] = dict(wanted.settings)
    if wanted.rules is not None:
        settings["rules"] = list(wanted.rules)
    return settings


async def get_entity(service: Service, request: Request) -> Response:
    return await entity_response(service, request, await _found(service, request))


async def delete_entity(service: Service, request: Request) -> Response:
    info = await _found(service, request)
    await service.broker.delete(info.name)
    return Response(200)


async def _found(service: Service, request: Request) -> EntityInfo:
    info = await service.broker.entity(entity_path(request))
    check_family(request, info.kind)
    return info


# Lists


async def list_queues(service: Service, request: Request) -> Response:
    return await _listed(service, request, QUEUE, None, "Queues")


async def list_topics(service: Service, request: Request) -> Response:
    return await _listed(service, request, TOPIC, None, "Topics")


async def list_subscriptions(service: Service, request: Request) -> Response:
    topic = await service.broker.entity(request.entity)
    if topic.kind != TOPIC:
        raise EntityNotFound(f"{topic.name!r} is a {topic.kind}: only topics have subscriptions", "name a topic")
    return await _listed(service, request, SUBSCRIPTION, topic.name, "Subscriptions")


async def _listed(service: Service, request: Request, kind: str, topic: str | None, title: str) -> Response:
    window = PageWindow.of(request)
    found = await service.broker.entities(kind, topic, window.skip, window.top + 1)
    return await entities_response(service, request, AtomPage.of(window, found), title)
