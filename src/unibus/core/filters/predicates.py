# mypyc: compiled
"""Compiled predicates, in three-valued logic.

`truth` is TRUE, FALSE or UNKNOWN. `holds` only says whether it is TRUE, which is all that a rule needs, and stops as
soon as that is impossible: a term of AND that is not true ends it. So the terms to the right of it are not evaluated,
and cannot fail. The most common forms, a property compared with a constant, have their own classes.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.envelope.message import Message
from unibus.core.filters.comparing import EQUAL, FALSE, TRUE, UNKNOWN, compared, doubles, verdict
from unibus.core.filters.expressions import ConstantTerm, PlaceTerm, SystemTerm, Term, UserTerm
from unibus.core.filters.like import Likeness
from unibus.core.filters.numbers import DECIMAL, INT32, kind_of
from unibus.core.filters.property_lookup import system_text
from unibus.errors import EvaluationError
from unibus.limits import FILTER_CHARS_MAX


@final
class PropertyKey:
    """A property and the value that it must equal."""

    def __init__(self, place: UserTerm | SystemTerm, value: object, lenient: bool) -> None:
        self.place = place
        self.value = value
        self.lenient = lenient


class Condition:
    """A compiled predicate. `needs` returns alternatives for the index: unless at least one key of a list matches, the
    condition is neither true nor an error. No list: nothing is known. An empty list: it is never true."""

    def truth(self, message: Message) -> i64:
        raise NotImplementedError

    def holds(self, message: Message) -> bool:
        return self.truth(message) == TRUE

    def can_fail(self) -> bool:
        return False

    def needs(self) -> list[list[PropertyKey]]:
        return []


@final
class Fixed(Condition):
    """The same for every message."""

    def __init__(self, truth: i64) -> None:
        self._truth = truth

    def truth(self, message: Message) -> i64:
        return self._truth

    def needs(self) -> list[list[PropertyKey]]:
        return [] if self._truth == TRUE else [[]]


@final
class TextEquals(Condition):
    """A user property compared with a text."""

    def __init__(self, place: UserTerm, text: str, negated: bool, lenient: bool) -> None:
        self._place = place
        self._text = text
        self._negated = negated
        self._lenient = lenient

    def truth(self, message: Message) -> i64:
        value = self._place.value(message)
        if isinstance(value, str):
            return TRUE if (value == self._text) != self._negated else FALSE
        found = compared(EQUAL, value, self._text, self._lenient)
        return -found if self._negated else found

    def holds(self, message: Message) -> bool:
        value = self._place.value(message)
        if isinstance(value, str):
            return (value == self._text) != self._negated
        return value is not None and self.truth(message) == TRUE

    def needs(self) -> list[list[PropertyKey]]:
        return [] if self._negated else [[PropertyKey(self._place, self._text, self._lenient)]]


@final
class SystemTextEquals(Condition):
    """A text system property compared with a text."""

    def __init__(self, place: SystemTerm, text: str, negated: bool) -> None:
        self._place = place
        self._number = place.number
        self._text = text
        self._negated = negated

    def truth(self, message: Message) -> i64:
        value = system_text(message, self._number)
        if value is None:
            return UNKNOWN
        return TRUE if (value == self._text) != self._negated else FALSE

    def holds(self, message: Message) -> bool:
        value = system_text(message, self._number)
        return value is not None and (value == self._text) != self._negated

    def needs(self) -> list[list[PropertyKey]]:
        return [] if self._negated else [[PropertyKey(self._place, self._text, False)]]


@final
class IntegerMeets(Condition):
    """A user property compared with an integer."""

    def __init__(self, place: UserTerm, operator: i64, number: int, lenient: bool) -> None:
        self._place = place
        self._operator = operator
        self._number = number
        self._double = float(number)
        self._lenient = lenient

    def truth(self, message: Message) -> i64:
        value = self._place.value(message)
        # In this order: once compiled code knows that a value is an int, it no longer distinguishes a bool.
        if not isinstance(value, bool) and isinstance(value, int):
            return verdict(self._operator, value < self._number, value == self._number)
        if isinstance(value, float):
            return doubles(self._operator, value, self._double)
        return compared(self._operator, value, self._number, self._lenient)

    def needs(self) -> list[list[PropertyKey]]:
        return [[PropertyKey(self._place, self._number, self._lenient)]] if self._operator == EQUAL else []


@final
class Meets(Condition):
    """A comparison of any two terms."""

    def __init__(self, operator: i64, left: Term, right: Term, key: PropertyKey | None, lenient: bool) -> None:
        self._operator = operator
        self._left = left
        self._right = right
        self._key = key  # If this is a property that equals a constant.
        self._lenient = lenient

    def truth(self, message: Message) -> i64:
        left = self._left.value(message)
        return compared(self._operator, left, self._right.value(message), self._lenient)

    def can_fail(self) -> bool:
        return self._left.can_fail() or self._right.can_fail()

    def needs(self) -> list[list[PropertyKey]]:
        return [] if self._key is None else [[self._key]]


@final
class IsNothing(Condition):
    """IS NULL: the property does not exist, or is NULL."""

    def __init__(self, place: PlaceTerm, negated: bool) -> None:
        self._place = place
        self._negated = negated

    def truth(self, message: Message) -> i64:
        return TRUE if (self._place.value(message) is None) != self._negated else FALSE

    def can_fail(self) -> bool:
        return self._place.can_fail()


@final
class IsPresent(Condition):
    """EXISTS: the property exists, even if it is NULL."""

    def __init__(self, place: PlaceTerm) -> None:
        self._place = place

    def truth(self, message: Message) -> i64:
        return TRUE if self._place.present(message) else FALSE

    def can_fail(self) -> bool:
        return self._place.can_fail()


@final
class Among(Condition):
    """IN: true if one of several equalities is. `texts` has the constant texts, for one lookup."""

    def __init__(self, operand: Term, choices: list[Term], texts: frozenset[str], negated: bool, lenient: bool) -> None:
        self._operand = operand
        self._choices = choices
        self._texts = texts
        self._negated = negated
        self._lenient = lenient
        self._only_texts = len(texts) > 0 and all([is_text_constant(choice) for choice in choices])
        self._keys: list[PropertyKey] | None = None

    def truth(self, message: Message) -> i64:
        value = self._operand.value(message)
        if isinstance(value, str):
            if value in self._texts:
                return FALSE if self._negated else TRUE
            if self._only_texts:
                return TRUE if self._negated else FALSE
        found: i64 = self._one_by_one(value, message)
        return -found if self._negated else found

    def _one_by_one(self, value: object, message: Message) -> i64:
        found: i64 = FALSE
        for choice in self._choices:
            equal = compared(EQUAL, value, choice.value(message), self._lenient)
            if equal == TRUE:
                return TRUE
            found = max(found, equal)
        return found

    def can_fail(self) -> bool:
        for choice in self._choices:
            if choice.can_fail():
                return True
        return self._operand.can_fail()

    def set_keys(self, keys: list[PropertyKey]) -> None:
        """Set if this is a property among constants."""
        self._keys = keys

    def needs(self) -> list[list[PropertyKey]]:
        return [] if self._keys is None or self._negated else [self._keys]


@final
class Resembles(Condition):
    """LIKE with a constant pattern."""

    def __init__(self, operand: Term, likeness: Likeness, negated: bool, lenient: bool) -> None:
        self._operand = operand
        self._likeness = likeness
        self._negated = negated
        self._lenient = lenient

    def truth(self, message: Message) -> i64:
        text = text_of(self._operand.value(message), self._lenient)
        if text is None:
            return UNKNOWN
        return TRUE if self._likeness.matches(text) != self._negated else FALSE

    def can_fail(self) -> bool:
        return self._operand.can_fail()


@final
class ResemblesTerm(Condition):
    """LIKE with a pattern that depends on the message."""

    def __init__(self, operand: Term, pattern: Term, escape: Term | None, negated: bool, lenient: bool) -> None:
        self._operand = operand
        self._pattern = pattern
        self._escape = escape
        self._negated = negated
        self._lenient = lenient

    def truth(self, message: Message) -> i64:
        text = text_of(self._operand.value(message), self._lenient)
        pattern = text_of(self._pattern.value(message), self._lenient)
        escape: object = "" if self._escape is None else self._escape.value(message)
        if text is None or pattern is None or escape is None:
            return UNKNOWN
        if not isinstance(escape, str) or (self._escape is not None and len(escape) != 1):
            raise EvaluationError("ESCAPE must be one character")
        if len(pattern) > FILTER_CHARS_MAX:
            raise EvaluationError(f"the pattern of LIKE has more than {FILTER_CHARS_MAX} characters")
        try:
            likeness = Likeness(pattern, escape)
        except ValueError as error:
            raise EvaluationError("the pattern of LIKE ends with its escape character") from error
        return TRUE if likeness.matches(text) != self._negated else FALSE

    def can_fail(self) -> bool:
        return True


@final
class Negation(Condition):
    def __init__(self, operand: Condition) -> None:
        self._operand = operand

    def truth(self, message: Message) -> i64:
        return -self._operand.truth(message)

    def can_fail(self) -> bool:
        return self._operand.can_fail()


@final
class Every(Condition):
    def __init__(self, terms: list[Condition]) -> None:
        self._terms = terms

    def truth(self, message: Message) -> i64:
        least: i64 = TRUE
        for term in self._terms:
            least = min(least, term.truth(message))
            if least == FALSE:
                break
        return least

    def holds(self, message: Message) -> bool:
        for term in self._terms:  # noqa: SIM110 - all() would create a generator
            if not term.holds(message):
                return False
        return True

    def can_fail(self) -> bool:
        return any_fails(self._terms)

    def needs(self) -> list[list[PropertyKey]]:
        """The needs of every term up to the first that can fail: that one must be evaluated whatever the others are."""
        found: list[list[PropertyKey]] = []
        for term in self._terms:
            found.extend(term.needs())
            if term.can_fail():
                break
        return found


@final
class Either(Condition):
    def __init__(self, terms: list[Condition]) -> None:
        self._terms = terms

    def truth(self, message: Message) -> i64:
        greatest: i64 = FALSE
        for term in self._terms:
            greatest = max(greatest, term.truth(message))
            if greatest == TRUE:
                break
        return greatest

    def holds(self, message: Message) -> bool:
        for term in self._terms:  # noqa: SIM110 - any() would create a generator
            if term.holds(message):
                return True
        return False

    def can_fail(self) -> bool:
        return any_fails(self._terms)

    def needs(self) -> list[list[PropertyKey]]:
        """The shortest list of each term, together: one of the terms must be true."""
        found: list[PropertyKey] = []
        for term in self._terms:
            alternatives = term.needs()
            if not alternatives:
                return []
            found.extend(_shortest(alternatives))
        return [found]


def _shortest(alternatives: list[list[PropertyKey]]) -> list[PropertyKey]:
    shortest = alternatives[0]
    for keys in alternatives:
        if len(keys) < len(shortest):
            shortest = keys
    return shortest


def any_fails(terms: list[Condition]) -> bool:
    for term in terms:  # noqa: SIM110 - any() would create a generator
        if term.can_fail():
            return True
    return False


def is_text_constant(term: Term) -> bool:
    return isinstance(term, ConstantTerm) and isinstance(term.constant, str)


_ZERO_TAIL: Final = ".0"


def text_of(value: object, lenient: bool) -> str | None:
    """The text that LIKE matches: a text, and in lenient mode a number as text."""
    if isinstance(value, str):
        return value
    if not lenient or kind_of(value) < INT32:
        return None
    if kind_of(value) == DECIMAL:
        return f"{value:f}"
    # The repr of an Int32 would include its type.
    return str(int(value)) if isinstance(value, int) else str(value).removesuffix(_ZERO_TAIL)
