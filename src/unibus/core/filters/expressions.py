# mypyc: compiled
"""Compiled expressions: each term returns its value for a message, None for UNKNOWN.

They are classes with a method, not closures: compiled, calling a method is a direct jump, and calling a closure is a
Python call.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, final
from uuid import UUID

from mypy_extensions import i64

from unibus.core.envelope.message import Message
from unibus.core.filters.numbers import arithmetic, signed
from unibus.core.filters.property_lookup import name_in, spelling, system_number, system_spelling, system_value
from unibus.errors import EvaluationError

Draw: TypeAlias = Callable[[], UUID]
"""Draws the random value of newid()."""


class Term:
    """`can_fail` is False if no message can make it raise EvaluationError."""

    def value(self, message: Message) -> object:
        raise NotImplementedError

    def can_fail(self) -> bool:
        return False


@final
class ConstantTerm(Term):
    def __init__(self, constant: object) -> None:
        self.constant = constant

    def value(self, message: Message) -> object:
        return self.constant


class PlaceTerm(Term):
    """A property of any scope."""

    def present(self, message: Message) -> bool:
        raise NotImplementedError


@final
class UserTerm(PlaceTerm):
    def __init__(self, name: str) -> None:
        self.name = name
        self.folded = name.lower()

    def value(self, message: Message) -> object:
        properties = message.properties
        if properties is None:
            return None
        found = properties.headers.get(self.name)
        return self._in_other_case(message) if found is None else found

    def _in_other_case(self, message: Message) -> object:
        properties = message.properties
        if properties is None or self.name in properties.headers:
            return None
        name = spelling(properties.headers, self.folded)
        return None if name is None else properties.headers.get(name)

    def present(self, message: Message) -> bool:
        return message.properties is not None and name_in(message.properties.headers, self.name) is not None


@final
class SystemTerm(PlaceTerm):
    """A system property. Without a value it does not exist."""

    def __init__(self, name: str) -> None:
        self.number: i64 = system_number(name)

    def value(self, message: Message) -> object:
        return system_value(message, self.number)

    def present(self, message: Message) -> bool:
        return system_value(message, self.number) is not None


@final
class CalledTerm(PlaceTerm):
    """property(name) with a name that depends on the message."""

    def __init__(self, name: Term) -> None:
        self._name = name

    def value(self, message: Message) -> object:
        place = self._place(message)
        return None if place is None else place.value(message)

    def present(self, message: Message) -> bool:
        place = self._place(message)
        return place is not None and place.present(message)

    def can_fail(self) -> bool:
        return True

    def _place(self, message: Message) -> PlaceTerm | None:
        name = self._name.value(message)
        if name is None:
            return None
        if not isinstance(name, str):
            raise EvaluationError(f"property() needs a name, not a {type(name).__name__}")
        place = place_named(name)
        if place is None:
            raise EvaluationError(f"there is no system property {name[4:44]!r}")
        return place


_SYS: Final = "sys."
_USER: Final = "user."


def place_named(name: str) -> PlaceTerm | None:
    """The property of a name, with or without its scope; None for an unknown system property."""
    lower = name.lower()
    if lower.startswith(_SYS):
        known = system_spelling(name[4:])
        return None if known is None else SystemTerm(known)
    return UserTerm(name[5:] if lower.startswith(_USER) else name)


@final
class SignTerm(Term):
    def __init__(self, operator: str, operand: Term, lenient: bool) -> None:
        self._operator = operator
        self._operand = operand
        self._lenient = lenient

    def value(self, message: Message) -> object:
        return signed(self._operator, self._operand.value(message), self._lenient)

    def can_fail(self) -> bool:
        return True


@final
class ArithmeticTerm(Term):
    def __init__(self, operator: str, left: Term, right: Term, lenient: bool) -> None:
        self._operator = operator
        self._left = left
        self._right = right
        self._lenient = lenient

    def value(self, message: Message) -> object:
        left = self._left.value(message)
        right = self._right.value(message)
        if left is None or right is None:
            return None
        return arithmetic(self._operator, left, right, self._lenient)

    def can_fail(self) -> bool:
        return True
