# mypyc: compiled
"""Routes a message of a topic to the matching subscriptions.

If any rule without an action matches, a subscription gets the message once. For each matching rule with an action it
gets another copy, changed by the action. If a rule cannot be evaluated for a message, the message is dead-lettered in
the subscription, unless its setting `dead_letter_on_filter_error` is off.
"""

from collections.abc import Sequence
from typing import Protocol, final

from unibus.core.envelope.message import Message
from unibus.core.filters.expressions import Draw
from unibus.core.filters.index import FilterIndex
from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.rules import Rule
from unibus.errors import EvaluationError


@final
class Arrival:
    """A subscription that gets a message: unchanged, changed by an action (`message`), or dead-lettered (`error`)."""

    def __init__(self, entity: Entity, message: Message | None = None, error: str = "") -> None:
        self.entity = entity
        self.message = message
        self.error = error


class FilterWatch(Protocol):
    """Measures how long the filters of a topic take for one message. It has the clock: core has none."""

    def now_ns(self) -> int: ...

    def evaluated(self, topic: str, duration_ns: int) -> None: ...


@final
class _RouteRule:
    def __init__(self, entity: Entity, rule: Rule) -> None:
        self.entity = entity
        self.rule = rule


@final
class Router:
    """Built from the current subscriptions of a topic, and immutable. When one of them changes, a new one is built."""

    def __init__(
        self, subscriptions: Sequence[Entity], new_id: Draw | None, topic: str = "", watch: FilterWatch | None = None
    ) -> None:
        self._topic = topic
        self._watch = watch
        self.subscriptions = list(subscriptions)
        self.takes_all = True
        places: list[tuple[object, _RouteRule]] = []
        for entity in subscriptions:
            rules = entity.rule_set(new_id).rules
            # The usual topic has no rules of its own: then no message is decoded to be routed.
            if len(rules) != 1 or not rules[0].takes_all():
                self.takes_all = False
            places += [(None, _RouteRule(entity, rule)) for rule in rules]
        self._index: FilterIndex | None = None
        if not self.takes_all:
            self._index = FilterIndex([(place, place.rule.condition) for _, place in places])

    def arrivals(self, message: Message) -> list[Arrival]:
        index = self._index
        if index is None:
            return [Arrival(entity) for entity in self.subscriptions]
        watch = self._watch
        if watch is None:
            return _arrivals(index, message)
        began_ns = watch.now_ns()
        found = _arrivals(index, message)
        watch.evaluated(self._topic, watch.now_ns() - began_ns)
        return found


def _arrivals(index: FilterIndex, message: Message) -> list[Arrival]:
    selection = index.select(message)
    found: list[Arrival] = []
    whole: set[Entity] = set()
    for key in selection.matched:
        assert isinstance(key, _RouteRule)
        action = key.rule.action
        if action is None:
            # Two plain rules that match give one copy; a rule with an action gives a copy of its own.
            if key.entity not in whole:
                whole.add(key.entity)
                found.append(Arrival(key.entity))
            continue
        try:
            found.append(Arrival(key.entity, action.apply(message)))
        except EvaluationError as error:
            _fail(found, key, error)
    for failure in selection.failed:
        assert isinstance(failure.key, _RouteRule)
        _fail(found, failure.key, failure.error)
    return found


def _fail(found: list[Arrival], place: _RouteRule, error: EvaluationError) -> None:
    """Dead-letter the message once, however many rules of the subscription have failed."""
    if place.entity.settings.dead_letter_on_filter_error:
        if not any([arrival.entity is place.entity and arrival.error != "" for arrival in found]):
            found.append(Arrival(place.entity, None, f"rule {place.rule.name!r}: {error.what}"))
