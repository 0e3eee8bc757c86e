# mypyc: compiled
"""From a message of a topic to the subscriptions that get it.

A message that any rule of a subscription takes is stored there once; and once more for each of these rules that has an
action, as the action makes it. Where a rule has no answer for a message, the subscription gets it as a dead letter,
unless it was told to do without.
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
    """A subscription that gets a message: as it is, as an action made it (`message`), or as a dead letter (`error`)."""

    def __init__(self, entity: Entity, message: Message | None = None, error: str = "") -> None:
        self.entity = entity
        self.message = message
        self.error = error


class FilterWatch(Protocol):
    """Measures how long the filters of a topic take for one message. It brings the clock: core has none."""

    def now_ns(self) -> int: ...

    def evaluated(self, topic: str, duration_ns: int) -> None: ...


@final
class _Place:
    def __init__(self, entity: Entity, rule: Rule) -> None:
        self.entity = entity
        self.rule = rule


@final
class Router:
    """Made of the subscriptions of a topic as they are now. When one of them changes, another one is made."""

    def __init__(
        self, subscriptions: Sequence[Entity], new_id: Draw | None, topic: str = "", watch: FilterWatch | None = None
    ) -> None:
        self._topic = topic
        self._watch = watch
        self.subscriptions = list(subscriptions)
        self.takes_all = True
        places: list[tuple[object, _Place]] = []
        for entity in subscriptions:
            rules = entity.rule_set(new_id).rules
            if len(rules) != 1 or not rules[0].takes_all():
                self.takes_all = False
            places += [(None, _Place(entity, rule)) for rule in rules]
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
        assert isinstance(key, _Place)
        action = key.rule.action
        if action is None:
            if key.entity not in whole:
                whole.add(key.entity)
                found.append(Arrival(key.entity))
            continue
        try:
            found.append(Arrival(key.entity, action.apply(message)))
        except EvaluationError as error:
            _fail(found, key, error)
    for failure in selection.failed:
        assert isinstance(failure.key, _Place)
        _fail(found, failure.key, failure.error)
    return found


def _fail(found: list[Arrival], place: _Place, error: EvaluationError) -> None:
    """Once, however many of its rules have failed."""
    if place.entity.settings.dead_letter_on_filter_error:
        if not any([arrival.entity is place.entity and arrival.error != "" for arrival in found]):
            found.append(Arrival(place.entity, None, f"rule {place.rule.name!r}: {error.what}"))
