# mypyc: compiled
"""An index of many filters: a filter that requires a property to equal a value is only evaluated if it does.

    color = 'red' AND price > 10      indexed under color, 'red'
    to IN ('a', 'b') OR key = 7       indexed under to, 'a' and 'b', and under key, 7
    price > 10                        evaluated for every message

So the cost of a message does not grow with filters that cannot match it. A filter with several such properties is
indexed under the one with the fewest other filters. The candidates are still evaluated, so the result is exactly that
of evaluating all filters, including errors: nothing before the missing property could have failed.

An index is immutable; a topic builds another one when its rules change, in time that grows with the rules only.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from unibus.core.envelope.message import Message
from unibus.core.filters.expressions import SystemTerm, UserTerm
from unibus.core.filters.filters import Filter
from unibus.core.filters.numbers import INSTANT, INT32, NOTHING, TEXT, aware, double_of, kind_of, number_of_text
from unibus.core.filters.predicates import PropertyKey
from unibus.errors import EvaluationError

_TEXTS: Final = 0
_NUMBERS: Final = 1
_OTHERS: Final = 2

Slot: TypeAlias = tuple[str, int, object]
"""A property, a kind of value, and the value in a form in which equal values are the same key."""


@final
class Failure:
    """A filter that has no result for the message."""

    __slots__ = ("error", "key")

    def __init__(self, key: object, error: EvaluationError) -> None:
        self.key = key
        self.error = error


@final
class Selection:
    """The keys of the filters that match, and of those that failed, both in the given order."""

    __slots__ = ("failed", "matched")

    def __init__(self) -> None:
        self.matched: list[object] = []
        self.failed: list[Failure] = []


@final
class PropertyIndex:
    """The filters that are indexed under one property, by the value that they require. The lists are ascending."""

    def __init__(self, place: UserTerm | SystemTerm) -> None:
        self.place = place
        self.texts: dict[str, list[int]] = {}
        self.numbers: dict[float, list[int]] = {}
        self.others: dict[object, list[int]] = {}
        self.lenient = False

    def put(self, kind: int, value: object, position: int) -> None:
        if kind == _TEXTS:
            assert isinstance(value, str)
            found = self.texts.setdefault(value, [])
        elif kind == _NUMBERS:
            assert isinstance(value, float)
            found = self.numbers.setdefault(value, [])
        else:
            found = self.others.setdefault(value, [])
        if not found or found[-1] != position:
            found.append(position)

    def look(self, value: object, found: list[list[int]]) -> None:
        """Append the lists of the filters that the value may satisfy."""
        if value is None:
            return
        if isinstance(value, str):
            _add(self.texts.get(value), found)
            number = number_of_text(value) if self.lenient else None
            if number is not None:
                _add(self.numbers.get(double_of(number)), found)
            return
        kind = kind_of(value)
        if kind >= INT32:
            _add(self.numbers.get(double_of(value)), found)
        elif kind != NOTHING:
            _add(self.others.get(_one_form(value, kind)), found)


def _add(positions: list[int] | None, found: list[list[int]]) -> None:
    if positions is not None:
        found.append(positions)


def _one_form(value: object, kind: i64) -> object:
    """Equal times may differ by their time zone; a time without a zone is UTC."""
    if kind == INSTANT:
        assert isinstance(value, datetime)
        return aware(value)
    return value


@final
class FilterIndex:
    """Built from pairs of a key, which may be any object, and a filter."""

    def __init__(self, entries: Iterable[tuple[object, Filter]]) -> None:
        self._keys: list[object] = []
        self._filters: list[Filter] = []
        for key, one in entries:
            self._keys.append(key)
            self._filters.append(one)
        self._unplaced: list[int] = []  # Evaluated for every message.
        self._user: dict[str, PropertyIndex] = {}
        self._folded: dict[str, list[PropertyIndex]] = {}
        self._system: dict[str, PropertyIndex] = {}
        self._place_all()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def unplaced(self) -> int:
        """How many filters are evaluated for every message."""
        return len(self._unplaced)

    def select(self, message: Message) -> Selection:
        """The matching filters. Never raises, whatever the message contains."""
        selection = Selection()
        for position in self.candidates(message):
            try:
                if self._filters[position].matches(message):
                    selection.matched.append(self._keys[position])
            except EvaluationError as error:
                selection.failed.append(Failure(self._keys[position], error))
        return selection

    def candidates(self, message: Message) -> list[int]:
        """The positions of the filters to evaluate, ascending; all others cannot match."""
        found: list[list[int]] = []
        for index in self._system.values():
            index.look(index.place.value(message), found)
        properties = message.properties
        if properties is not None and self._user:
            if len(self._user) <= len(properties.headers):
                for index in self._user.values():
                    index.look(index.place.value(message), found)
            else:
                self._look_by_headers(message, found)
        if not found:
            return self._unplaced
        if len(found) == 1 and not self._unplaced:
            return found[0]
        return _merged(found, self._unplaced)

    def _look_by_headers(self, message: Message, found: list[list[int]]) -> None:
        """With more properties asked for than the message has, go by those that it has."""
        for name in message.headers:
            indexes = self._folded.get(name.lower())
            if indexes is not None:
                for index in indexes:
                    index.look(index.place.value(message), found)

    # Building

    def _place_all(self) -> None:
        needs = [_needs(one) for one in self._filters]
        crowd: dict[Slot, int] = {}
        for alternatives in needs:
            for slots in alternatives:
                for slot in slots:
                    crowd[slot] = crowd.get(slot, 0) + 1
        for position, one in enumerate(self._filters):
            alternatives = needs[position]
            if not alternatives:
                self._unplaced.append(position)
                continue
            sizes = [sum([crowd[slot] for slot in slots]) for slots in alternatives]
            self._place(position, one, sizes.index(min(sizes)))

    def _place(self, position: int, one: Filter, chosen: int) -> None:
        for key in one.condition.needs()[chosen]:
            index = self._index_of(key.place)
            index.lenient = index.lenient or key.lenient
            for slot in _slots(key):
                index.put(slot[1], slot[2], position)

    def _index_of(self, place: UserTerm | SystemTerm) -> PropertyIndex:
        name = _place_name(place)
        indexes = self._system if isinstance(place, SystemTerm) else self._user
        index = indexes.get(name)
        if index is None:
            index = PropertyIndex(place)
            indexes[name] = index
            if isinstance(place, UserTerm):
                self._folded.setdefault(place.folded, []).append(index)
        return index


def _merged(found: list[list[int]], unplaced: list[int]) -> list[int]:
    """All positions, ascending, each once: one filter may be indexed under several values."""
    merged = unplaced[:]
    for positions in found:
        merged.extend(positions)
    merged.sort()
    previous = -1
    for position in merged:
        if position == previous:
            return sorted(set(merged))
        previous = position
    return merged


def _place_name(place: UserTerm | SystemTerm) -> str:
    # Not case-folded: if headers differ only by case, each spelling finds its own.
    return f"sys.{place.number}" if isinstance(place, SystemTerm) else place.name


def _needs(one: Filter) -> list[list[Slot]]:
    """The alternatives of a filter's keys, as slots."""
    return [[slot for key in keys for slot in _slots(key)] for keys in one.condition.needs()]


def _slots(key: PropertyKey) -> list[Slot]:
    """Every form of a value that equals the key's value; none if nothing equals it."""
    name = _place_name(key.place)
    value = key.value
    kind = kind_of(value)
    if kind == NOTHING:
        return []
    if kind == TEXT:
        slots: list[Slot] = [(name, _TEXTS, value)]
        number = number_of_text(str(value)) if key.lenient else None
        return slots if number is None else [*slots, (name, _NUMBERS, double_of(number))]
    if kind >= INT32:
        double = double_of(value)
        return [(name, _NUMBERS, double)] if double == double else []
    return [(name, _OTHERS, _one_form(value, kind))]
