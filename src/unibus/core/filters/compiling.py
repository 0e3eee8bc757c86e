# mypyc: compiled
"""Compiles the tree into predicates that are fast to evaluate: constants are folded, common forms have own classes."""

from collections.abc import Mapping
from typing import final

from mypy_extensions import i64

from unibus.core.filters import tree
from unibus.core.filters.comparing import EQUAL, MIRRORED, OPERATORS, UNEQUAL, UNKNOWN, compared
from unibus.core.filters.expressions import (
    ArithmeticTerm,
    CalledTerm,
    ConstantTerm,
    Draw,
    PlaceTerm,
    SignTerm,
    SystemTerm,
    Term,
    UserTerm,
    place_named,
)
from unibus.core.filters.functions import FUNCTIONS, CallTerm
from unibus.core.filters.like import Likeness
from unibus.core.filters.numbers import arithmetic, signed
from unibus.core.filters.predicates import (
    Among,
    Condition,
    Either,
    Every,
    Fixed,
    IntegerMeets,
    IsNothing,
    IsPresent,
    Meets,
    Negation,
    PropertyKey,
    Resembles,
    ResemblesTerm,
    SystemTextEquals,
    TextEquals,
)
from unibus.core.filters.property_lookup import is_text
from unibus.errors import EvaluationError, FilterInvalid


@final
class Compiler:
    """`parameters` by their folded names, each of a type that a header can have."""

    def __init__(self, parameters: Mapping[str, object], lenient: bool, draw: Draw | None) -> None:
        self._parameters = parameters
        self._lenient = lenient
        self._draw = draw

    # Expressions

    def term(self, node: tree.Expression) -> Term:
        if isinstance(node, tree.Constant):
            return ConstantTerm(node.value)
        if isinstance(node, (tree.Property, tree.PropertyCall)):
            return self.place(node)
        if isinstance(node, tree.Parameter):
            return self._parameter(node)
        if isinstance(node, tree.FunctionCall):
            return CallTerm(FUNCTIONS[node.function], [self.term(each) for each in node.arguments], self._draw)
        if isinstance(node, tree.Sign):
            return self._sign(node)
        return self._arithmetic(node)

    def place(self, node: tree.Property | tree.PropertyCall) -> PlaceTerm:
        if isinstance(node, tree.Property):
            return SystemTerm(node.name) if node.scope == "sys" else UserTerm(node.name)
        name = self.term(node.name)
        if isinstance(name, ConstantTerm) and isinstance(name.constant, str):
            known = place_named(name.constant)
            if known is not None:
                return known
        return CalledTerm(name)

    def _parameter(self, node: tree.Parameter) -> Term:
        name = node.name.lower()
        if name not in self._parameters:
            raise FilterInvalid(f"there is no value for the parameter @{node.name[:40]}", "pass one in parameters")
        return ConstantTerm(self._parameters[name])

    def _sign(self, node: tree.Sign) -> Term:
        operand = self.term(node.operand)
        term = SignTerm(node.operator, operand, self._lenient)
        if not isinstance(operand, ConstantTerm):
            return term
        try:
            return ConstantTerm(signed(node.operator, operand.constant, self._lenient))
        except EvaluationError:
            return term  # The language defines that it fails when it is evaluated, not when it is parsed.

    def _arithmetic(self, node: tree.Arithmetic) -> Term:
        left = self.term(node.left)
        right = self.term(node.right)
        term = ArithmeticTerm(node.operator, left, right, self._lenient)
        if not isinstance(left, ConstantTerm) or not isinstance(right, ConstantTerm):
            return term
        try:
            return ConstantTerm(arithmetic(node.operator, left.constant, right.constant, self._lenient))
        except EvaluationError:
            return term

    # Predicates

    def condition(self, node: tree.Predicate) -> Condition:
        if isinstance(node, tree.Comparison):
            return self._comparison(node)
        if isinstance(node, tree.And):
            return Every([self.condition(term) for term in node.terms])
        if isinstance(node, tree.Or):
            return Either([self.condition(term) for term in node.terms])
        if isinstance(node, tree.Not):
            return Negation(self.condition(node.operand))
        if isinstance(node, tree.In):
            return self._in(node)
        if isinstance(node, tree.Like):
            return self._like(node)
        if isinstance(node, tree.IsNull):
            return IsNothing(self.place(node.operand), node.negated)
        return IsPresent(self.place(node.operand))

    def _comparison(self, node: tree.Comparison) -> Condition:
        left = self.term(node.left)
        right = self.term(node.right)
        if isinstance(right, ConstantTerm):
            return self._beside_constant(OPERATORS[node.operator], left, right)
        if isinstance(left, ConstantTerm):
            return self._beside_constant(OPERATORS[MIRRORED[node.operator]], right, left)
        return Meets(OPERATORS[node.operator], left, right, None, self._lenient)

    def _beside_constant(self, operator: i64, left: Term, right: ConstantTerm) -> Condition:
        constant = right.constant
        if isinstance(left, ConstantTerm):
            return Fixed(compared(operator, left.constant, constant, self._lenient))
        if constant is None and not left.can_fail():
            return Fixed(UNKNOWN)
        if isinstance(constant, str) and (operator in (EQUAL, UNEQUAL)):
            if isinstance(left, UserTerm):
                return TextEquals(left, constant, operator == UNEQUAL, self._lenient)
            if isinstance(left, SystemTerm) and is_text(left.number):
                return SystemTextEquals(left, constant, operator == UNEQUAL)
        if type(constant) is int and isinstance(left, UserTerm):
            return IntegerMeets(left, operator, constant, self._lenient)
        key: PropertyKey | None = None
        if operator == EQUAL and isinstance(left, (UserTerm, SystemTerm)):
            key = PropertyKey(left, constant, self._lenient)
        return Meets(operator, left, right, key, self._lenient)

    def _in(self, node: tree.In) -> Condition:
        operand = self.term(node.operand)
        choices = [self.term(choice) for choice in node.choices]
        constants = [choice.constant for choice in choices if isinstance(choice, ConstantTerm)]
        texts = frozenset([constant for constant in constants if isinstance(constant, str)])
        among = Among(operand, choices, texts, node.negated, self._lenient)
        if isinstance(operand, (UserTerm, SystemTerm)) and len(constants) == len(choices):
            among.set_keys(
                [PropertyKey(operand, constant, self._lenient) for constant in constants if constant is not None]
            )
        return among

    def _like(self, node: tree.Like) -> Condition:
        operand = self.term(node.operand)
        pattern = self.term(node.pattern)
        escape = None if node.escape is None else self.term(node.escape)
        if isinstance(pattern, ConstantTerm) and isinstance(pattern.constant, str):
            sign: object = ""
            if isinstance(escape, ConstantTerm):
                sign = escape.constant
            if (escape is None or isinstance(escape, ConstantTerm)) and isinstance(sign, str):
                ready = _likeness(pattern.constant, sign, escape is not None)
                if ready is not None:
                    return Resembles(operand, ready, node.negated, self._lenient)
        return ResemblesTerm(operand, pattern, escape, node.negated, self._lenient)


def _likeness(pattern: str, escape: str, escaped: bool) -> Likeness | None:
    """None if the parts are not a valid pattern; then the evaluation raises."""
    if escaped and len(escape) != 1:
        return None
    try:
        return Likeness(pattern, escape)
    except ValueError:
        return None
