# mypyc: compiled
"""Which of many filters want this message? A filter that needs a property to equal something is only asked if it does.

    color = 'red' AND price > 10      found under color, 'red'
    to IN ('a', 'b') OR key = 7       found under to, 'a' and 'b', and under key, 7
    price > 10                        asked for every message

So the cost of a message does not grow with filters that cannot match it. A filter with several such properties is found
under the one that the fewest others are found under. What is found is still evaluated: the answer is exactly that of
asking all, errors included, because nothing that could fail stands before the property that was missed.

An index never changes; a topic makes another one when its rules change, in time that grows with the rules alone.
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
"""A place, a kind of value, and the value in the form in which equal ones are one."""


@final
class Failure:
    """A filter that has no answer for the message."""

    __slots__ = ("error", "key")

    def __init__(self, key: object, error: EvaluationError) -> None:
        self.key = key
        self.error = error


@final
class Selection:
    """The keys of the filters that match, and of those that failed, both in the order in which they were given."""

    __slots__ = ("failed", "matched")

    def __init__(self) -> None:
        self.matched: list[object] = []
        self.failed: list[Failure] = []


@final
class Drawer:
    """The filters that are found under one property, by the value that they need. The lists are ascending."""

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
        """Add the lists of those whose need the value may meet."""
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
    """Times that are equal may differ by their zone, and those without one are UTC."""
    if kind == INSTANT:
        assert isinstance(value, datetime)
        return aware(value)
    return value


@final
class FilterIndex:
    """Made of pairs of a key, which is anything, and a filter."""

    def __init__(self, entries: Iterable[tuple[object, Filter]]) -> None:
        self._keys: list[object] = []
        self._filters: list[Filter] = []
        for key, one in entries:
            self._keys.append(key)
            self._filters.append(one)
        self._unplaced: list[int] = []  # Asked for every message.
        self._user: dict[str, Drawer] = {}
        self._folded: dict[str, list[Drawer]] = {}
        self._system: dict[str, Drawer] = {}
        self._place_all()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def unplaced(self) -> int:
        """How many filters are asked for every message."""
        return len(self._unplaced)

    def select(self, message: Message) -> Selection:
        """Never raises for what the message holds."""
        selection = Selection()
        for position in self.candidates(message):
            try:
                if self._filters[position].matches(message):
                    selection.matched.append(self._keys[position])
            except EvaluationError as error:
                selection.failed.append(Failure(self._keys[position], error))
        return selection

    def candidates(self, message: Message) -> list[int]:
        """The positions of the filters that are asked, ascending; all others cannot match."""
        found: list[list[int]] = []
        for drawer in self._system.values():
            drawer.look(drawer.place.value(message), found)
        properties = message.properties
        if properties is not None and self._user:
            if len(self._user) <= len(properties.headers):
                for drawer in self._user.values():
                    drawer.look(drawer.place.value(message), found)
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
            drawers = self._folded.get(name.lower())
            if drawers is not None:
                for drawer in drawers:
                    drawer.look(drawer.place.value(message), found)

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
            drawer = self._drawer(key.place)
            drawer.lenient = drawer.lenient or key.lenient
            for slot in _slots(key):
                drawer.put(slot[1], slot[2], position)

    def _drawer(self, place: UserTerm | SystemTerm) -> Drawer:
        name = _place_name(place)
        drawers = self._system if isinstance(place, SystemTerm) else self._user
        drawer = drawers.get(name)
        if drawer is None:
            drawer = Drawer(place)
            drawers[name] = drawer
            if isinstance(place, UserTerm):
                self._folded.setdefault(place.folded, []).append(drawer)
        return drawer


def _merged(found: list[list[int]], unplaced: list[int]) -> list[int]:
    """One filter may be found under several values."""
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
    # As it is written, not folded: where headers differ by case alone, each spelling finds its own.
    return f"sys.{place.number}" if isinstance(place, SystemTerm) else place.name


def _needs(one: Filter) -> list[list[Slot]]:
    """The alternatives of a filter's keys, as slots."""
    return [[slot for key in keys for slot in _slots(key)] for keys in one.condition.needs()]


def _slots(key: PropertyKey) -> list[Slot]:
    """Every form in which a value that equals the key's can come; none if nothing equals it."""
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
