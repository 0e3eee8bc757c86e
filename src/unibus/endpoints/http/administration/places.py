"""The entity that an address names, and the kind that it has to have."""

from typing import Final

from unibus.core.lifecycle.state.entity import SUBSCRIPTIONS, subscription_path
from unibus.endpoints.http.administration.properties import QUEUE, SUBSCRIPTION, TOPIC
from unibus.endpoints.http.request import Request
from unibus.errors import EntityNotFound, UsageError

_MARK: Final = f"/{SUBSCRIPTIONS.casefold()}/"
_FAMILIES: Final = {"queues": QUEUE, "topics": TOPIC}


def entity_path(request: Request) -> str:
    """The name of the entity, in the form of the bus (`topic/Subscriptions/name` for a subscription)."""
    folded = request.entity.casefold()
    at = folded.rfind(_MARK)
    if at <= 0:
        return request.entity
    return subscription_path(request.entity[:at], request.entity[at + len(_MARK) :])


def wanted_kind(request: Request, given: str | None) -> str:
    """The kind of a new entity. The address and the body may each name it, and have to agree."""
    named = _kind_in_address(request)
    if named is not None and given is not None and named != given:
        raise UsageError(
            f"the body describes a {given}, but the address is that of a {named}", "use the same kind in both"
        )
    kind = named or given
    if kind is None:
        hint = "send a QueueDescription or a TopicDescription, or use /servicebus/queues/… or /servicebus/topics/…"
        raise UsageError("neither the address nor the body names the kind of the new entity", hint)
    return kind


def check_family(request: Request, kind: str) -> None:
    """EntityNotFound for a queue at the address of topics, and for a topic at the address of queues."""
    family = request.place.family
    if (family == "queues" and kind in (TOPIC, SUBSCRIPTION)) or (family == "topics" and kind == QUEUE):
        raise EntityNotFound(
            f"{request.entity!r:.80} is a {kind}, not one of the {family}",
            f"use /servicebus/{'topics' if family == 'queues' else 'queues'}/…",
        )


def _kind_in_address(request: Request) -> str | None:
    family = request.place.family
    if _MARK in request.entity.casefold():
        if family == "queues":
            raise UsageError("queues have no subscriptions", "use /servicebus/topics/…")
        return SUBSCRIPTION
    return _FAMILIES.get(family)
