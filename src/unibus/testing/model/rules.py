"""Rules of a subscription: each condition and statement has a meaning, and a text in the filter language.

A condition is True, False or None (UNKNOWN), or raises NoAnswer. A rule matches a message only if it is True. This is a
small part of the language, evaluated independently: it must not use the filters that it is compared with.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from unibus.testing.model.messages import ModelMessage, Value


class NoAnswer(Exception):
    """A condition or a statement that cannot be evaluated for this message."""


class ModelCondition(Protocol):
    @property
    def sql(self) -> str: ...

    def verdict(self, message: ModelMessage) -> bool | None: ...


class ModelStatement(Protocol):
    @property
    def sql(self) -> str: ...

    def changed(self, message: ModelMessage) -> ModelMessage: ...


def literal(value: Value) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


def equal(one: Value, other: Value) -> bool | None:
    """UNKNOWN if a value is missing, or if a text is compared with a number."""
    if one is None or other is None or isinstance(one, str) != isinstance(other, str):
        return None
    return one == other


# Conditions


@dataclass(frozen=True)
class Always:
    sql = "1 = 1"

    def verdict(self, message: ModelMessage) -> bool | None:
        return True


@dataclass(frozen=True)
class Never:
    sql = "1 = 2"

    def verdict(self, message: ModelMessage) -> bool | None:
        return False


@dataclass(frozen=True)
class Correlates:
    """A correlation filter: every given value has to be equal."""

    correlation: str | None = None
    properties: tuple[tuple[str, Value], ...] = ()

    @property
    def sql(self) -> str:
        own = [] if self.correlation is None else [f"sys.CorrelationId = {literal(self.correlation)}"]
        return " AND ".join([*own, *[f"{name} = {literal(value)}" for name, value in self.properties]])

    def verdict(self, message: ModelMessage) -> bool | None:
        own = self.correlation is None or message.correlation == self.correlation
        return own and all(equal(message.headers.get(name), value) is True for name, value in self.properties)


@dataclass(frozen=True)
class Compares:
    """`sign` is one of = <> < >; only numbers are compared by < and > here."""

    name: str
    sign: str
    value: Value

    @property
    def sql(self) -> str:
        return f"{self.name} {self.sign} {literal(self.value)}"

    def verdict(self, message: ModelMessage) -> bool | None:
        have = message.headers.get(self.name)
        same = equal(have, self.value)
        if same is None or self.sign == "=":
            return same
        if self.sign == "<>":
            return not same
        if not isinstance(have, int) or not isinstance(self.value, int):
            raise ValueError(f"the model compares no text: {self.sql}")
        return have < self.value if self.sign == "<" else have > self.value


@dataclass(frozen=True)
class ModelIsNull:
    name: str

    @property
    def sql(self) -> str:
        return f"{self.name} IS NULL"

    def verdict(self, message: ModelMessage) -> bool | None:
        return message.headers.get(self.name) is None


@dataclass(frozen=True)
class Divides:
    """`number` divided by a property is more than 1. Raises NoAnswer if the property is 0."""

    number: int
    name: str

    @property
    def sql(self) -> str:
        return f"{self.number} / {self.name} > 1"

    def verdict(self, message: ModelMessage) -> bool | None:
        found = quotient(self.number, message.headers.get(self.name))
        return None if found is None else found > 1


@dataclass(frozen=True)
class ModelNot:
    part: ModelCondition

    @property
    def sql(self) -> str:
        return f"NOT ({self.part.sql})"

    def verdict(self, message: ModelMessage) -> bool | None:
        found = self.part.verdict(message)
        return None if found is None else not found


@dataclass(frozen=True)
class Both:
    one: ModelCondition
    other: ModelCondition

    @property
    def sql(self) -> str:
        return f"({self.one.sql}) AND ({self.other.sql})"

    def verdict(self, message: ModelMessage) -> bool | None:
        found = (self.one.verdict(message), self.other.verdict(message))
        return False if False in found else None if None in found else True


@dataclass(frozen=True)
class ModelEither:
    one: ModelCondition
    other: ModelCondition

    @property
    def sql(self) -> str:
        return f"({self.one.sql}) OR ({self.other.sql})"

    def verdict(self, message: ModelMessage) -> bool | None:
        found = (self.one.verdict(message), self.other.verdict(message))
        return True if True in found else None if None in found else False


def quotient(number: int, divisor: Value) -> int | None:
    """Of whole numbers from 0 on. NULL if the divisor is missing or not a number."""
    if not isinstance(divisor, int):
        return None
    if divisor == 0:
        raise NoAnswer("a whole number is divided by zero")
    return number // divisor


# Statements


def with_header(message: ModelMessage, name: str, value: Value) -> ModelMessage:
    return replace(message, headers={**message.headers, name: value})


@dataclass(frozen=True)
class Sets:
    name: str
    value: Value

    @property
    def sql(self) -> str:
        return f"SET {self.name} = {literal(self.value)}"

    def changed(self, message: ModelMessage) -> ModelMessage:
        return with_header(message, self.name, self.value)


@dataclass(frozen=True)
class Adds:
    """Adds 1 to the property. A value that is not a number becomes NULL."""

    name: str

    @property
    def sql(self) -> str:
        return f"SET {self.name} = {self.name} + 1"

    def changed(self, message: ModelMessage) -> ModelMessage:
        have = message.headers.get(self.name)
        return with_header(message, self.name, have + 1 if isinstance(have, int) else None)


@dataclass(frozen=True)
class SetsQuotient:
    """Raises NoAnswer if the divisor is 0."""

    name: str
    number: int
    divisor: str

    @property
    def sql(self) -> str:
        return f"SET {self.name} = {self.number} / {self.divisor}"

    def changed(self, message: ModelMessage) -> ModelMessage:
        return with_header(message, self.name, quotient(self.number, message.headers.get(self.divisor)))


@dataclass(frozen=True)
class Removes:
    name: str

    @property
    def sql(self) -> str:
        return f"REMOVE {self.name}"

    def changed(self, message: ModelMessage) -> ModelMessage:
        return replace(message, headers={name: value for name, value in message.headers.items() if name != self.name})


@dataclass(frozen=True)
class SetsSession:
    session: str | None

    @property
    def sql(self) -> str:
        return f"SET sys.SessionId = {literal(self.session)}"

    def changed(self, message: ModelMessage) -> ModelMessage:
        return replace(message, session=self.session)


@dataclass(frozen=True)
class SetsCorrelation:
    correlation: str | None

    @property
    def sql(self) -> str:
        return f"SET sys.CorrelationId = {literal(self.correlation)}"

    def changed(self, message: ModelMessage) -> ModelMessage:
        return replace(message, correlation=self.correlation)


@dataclass(frozen=True)
class ModelRule:
    """A rule with statements changes the copy of the message that it matches; one without does not."""

    name: str
    condition: ModelCondition
    action: tuple[ModelStatement, ...] = ()

    def takes(self, message: ModelMessage) -> bool:
        return self.condition.verdict(message) is True

    def changed(self, message: ModelMessage) -> ModelMessage:
        """The copy that the action produces. The identity stays: its id, its dedup key, and whether it is `fresh`."""
        changed = replace(message)
        for statement in self.action:
            changed = statement.changed(changed)
        return changed


DEFAULT = ModelRule("$Default", Always())
