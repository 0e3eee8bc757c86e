"""Answers of the administration API: Atom entries and feeds, or JSON for clients that accept it."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from unibus.bus.api.broker import EntityInfo
from unibus.codecs.atom.descriptions import AtomEntry, EntityDescription, RuleDescription
from unibus.codecs.atom.writing import entry_document, feed_document
from unibus.core.lifecycle.state.entity import SUBSCRIPTIONS
from unibus.core.lifecycle.state.rules import Rule
from unibus.endpoints.http.administration import rule_descriptions
from unibus.endpoints.http.administration.counts import topic_counts
from unibus.endpoints.http.administration.json_forms import entity_json, rule_json
from unibus.endpoints.http.administration.paging import AtomPage
from unibus.endpoints.http.administration.properties import SUBSCRIPTION, description_of
from unibus.endpoints.http.administration.submitted import wants_json
from unibus.endpoints.http.administration.times import time_text
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service

_ENTRY: Final = "application/atom+xml;type=entry;charset=utf-8"
_FEED: Final = "application/atom+xml;type=feed;charset=utf-8"


async def entity_response(service: Service, request: Request, info: EntityInfo, status: int = 200) -> Response:
    if wants_json(request):
        return json_response(await _entity_json(service, info), status)
    return Response(status, entry_document(await _entity_entry(service, request, info)), _ENTRY)


async def entities_response(service: Service, request: Request, page: AtomPage[EntityInfo], title: str) -> Response:
    if wants_json(request):
        return json_response(page.as_json(request, [await _entity_json(service, info) for info in page.items]))
    entries = [await _entity_entry(service, request, info) for info in page.items]
    return _feed(service, request, title, entries, page.following(request))


def rule_response(request: Request, subscription: str, rule: Rule, status: int = 200) -> Response:
    if wants_json(request):
        return json_response(rule_json(rule), status)
    return Response(status, entry_document(_rule_entry(request, subscription, rule)), _ENTRY)


def rules_response(service: Service, request: Request, subscription: str, page: AtomPage[Rule]) -> Response:
    if wants_json(request):
        return json_response(page.as_json(request, [rule_json(rule) for rule in page.items]))
    entries = [_rule_entry(request, subscription, rule) for rule in page.items]
    return _feed(service, request, "Rules", entries, page.following(request))


def namespace_response(request: Request, name: str, described: EntityDescription) -> Response:
    if wants_json(request):
        return json_response(dict(described.values))
    entry = AtomEntry(f"{request.base_url}/$namespaceinfo", name, described, updated=described.values["ModifiedTime"])
    return Response(200, entry_document(entry), _ENTRY)


def host_of(request: Request) -> str:
    return request.headers.get("host", "localhost")


def namespace_name(request: Request) -> str:
    """The host without its port. An IPv6 address has colons of its own."""
    host = host_of(request)
    return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]


async def _entity_json(service: Service, info: EntityInfo) -> dict[str, object]:
    return entity_json(info, await service.broker.rules_of(info) if info.kind == SUBSCRIPTION else ())


async def _entity_entry(service: Service, request: Request, info: EntityInfo) -> AtomEntry:
    counts = await topic_counts(service, info)
    described = description_of(info, host_of(request), counts)
    # The title of a subscription is its name without the topic, as in Azure.
    title = info.name.rpartition(f"/{SUBSCRIPTIONS}/")[2] if info.kind == SUBSCRIPTION else info.name
    return _entry(request, info.name, title, described, described.values["CreatedAt"], described.values["UpdatedAt"])


def _rule_entry(request: Request, subscription: str, rule: Rule) -> AtomEntry:
    described = rule_descriptions.description_of(rule)
    address = f"{subscription}/Rules/{rule.name}"
    return _entry(request, address, rule.name, described, described.created_at, described.created_at)


def _entry(
    request: Request,
    path: str,
    title: str,
    described: EntityDescription | RuleDescription,
    published: str,
    updated: str,
) -> AtomEntry:
    address = f"{request.base_url}/{quote(path, safe='/$')}"
    version = request.query.get("api-version")
    if version:
        address += f"?api-version={quote(version)}"
    return AtomEntry(address, title, described, published, updated, namespace_name(request))


def _feed(service: Service, request: Request, title: str, entries: Sequence[AtomEntry], following: str) -> Response:
    address = f"{request.base_url}{request.scope['path']}"
    updated = time_text(service.broker.now_ns())
    return Response(200, feed_document(address, title, updated, entries, following), _FEED)
