"""The syntax tree of a filter or a rule action. Immutable.

Predicates are TRUE, FALSE or UNKNOWN for a message; expressions have a value. The grammar separates the two, and so do
the types here. The terms of AND and OR are side by side, so that a long list is not a deep tree.

This file is not compiled: msgspec creates the classes, at import, from their annotations.
"""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

Scope: TypeAlias = OneOf["user", "sys"]
Kind: TypeAlias = OneOf["null", "boolean", "integer", "double", "text"]


class Constant(msgspec.Struct, frozen=True, tag=True):
    """The kind is part of it: 1, 1.0 and TRUE are three different constants."""

    value: bool | int | float | str | None
    kind: Kind


class Property(msgspec.Struct, frozen=True, tag=True):
    name: str
    scope: Scope = "user"


class Parameter(msgspec.Struct, frozen=True, tag=True):
    """A value that is passed with the text. Names are without the @ and in the case of the text."""

    name: str


class PropertyCall(msgspec.Struct, frozen=True, tag=True):
    """`property(name)` or `p(name)`: the name is the value of an expression."""

    name: "Expression"


class FunctionCall(msgspec.Struct, frozen=True, tag=True):
    """A call of a function of functions.py, by the name in its row."""

    function: str
    arguments: "tuple[Expression, ...]" = ()


class Sign(msgspec.Struct, frozen=True, tag=True):
    operator: OneOf["+", "-"]
    operand: "Expression"


class Arithmetic(msgspec.Struct, frozen=True, tag=True):
    operator: OneOf["+", "-", "*", "/", "%"]
    left: "Expression"
    right: "Expression"


class Comparison(msgspec.Struct, frozen=True, tag=True):
    """`!=` is parsed as `<>`."""

    operator: OneOf["=", "<>", "<", "<=", ">", ">="]
    left: "Expression"
    right: "Expression"


class IsNull(msgspec.Struct, frozen=True, tag=True):
    operand: "Property | PropertyCall"
    negated: bool = False


class Exists(msgspec.Struct, frozen=True, tag=True):
    operand: "Property | PropertyCall"


class In(msgspec.Struct, frozen=True, tag=True):
    operand: "Expression"
    choices: "tuple[Expression, ...]"
    negated: bool = False


class Like(msgspec.Struct, frozen=True, tag=True):
    operand: "Expression"
    pattern: "Expression"
    escape: "Expression | None" = None
    negated: bool = False


class Not(msgspec.Struct, frozen=True, tag=True):
    operand: "Predicate"


class And(msgspec.Struct, frozen=True, tag=True):
    """Two terms or more."""

    terms: "tuple[Predicate, ...]"


class Or(msgspec.Struct, frozen=True, tag=True):
    """Two terms or more."""

    terms: "tuple[Predicate, ...]"


class SetProperty(msgspec.Struct, frozen=True, tag=True):
    target: Property
    value: "Expression"


class RemoveProperty(msgspec.Struct, frozen=True, tag=True):
    target: Property


Expression: TypeAlias = Constant | Property | Parameter | PropertyCall | FunctionCall | Sign | Arithmetic
Predicate: TypeAlias = Comparison | IsNull | Exists | In | Like | Not | And | Or
Node: TypeAlias = Expression | Predicate
Statement: TypeAlias = SetProperty | RemoveProperty

EXPRESSIONS = (Constant, Property, Parameter, PropertyCall, FunctionCall, Sign, Arithmetic)
PREDICATES = (Comparison, IsNull, Exists, In, Like, Not, And, Or)


def null() -> Constant:
    return Constant(None, "null")


def boolean(value: bool) -> Constant:
    return Constant(value, "boolean")


def integer(value: int) -> Constant:
    return Constant(value, "integer")


def double(value: float) -> Constant:
    return Constant(value, "double")


def text(value: str) -> Constant:
    return Constant(value, "text")
