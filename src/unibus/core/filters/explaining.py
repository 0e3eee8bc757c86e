# mypyc: compiled
"""Explains why a filter matches a message or not: every part of it with its value, as data for an output.

Every part is evaluated, also if another part has decided the result already: the reader may ask about any part.
"""

from typing import final

from mypy_extensions import i64

from unibus.core.envelope.message import Message
from unibus.core.filters import tree
from unibus.core.filters.comparing import FALSE, TRUE
from unibus.core.filters.compiling import Compiler
from unibus.core.filters.predicates import text_of
from unibus.core.filters.printing import printed, printed_text
from unibus.errors import EvaluationError


@final
class Explained:
    """One part: its depth, its text, and its value.

    For a condition the value is True, False, or None for UNKNOWN. For an expression it is the value, or None for NULL.
    For a part that fails it is the EvaluationError.
    """

    __slots__ = ("depth", "is_condition", "text", "value")

    def __init__(self, depth: i64, text: str, value: object, is_condition: bool) -> None:
        self.depth = depth
        self.text = text
        self.value = value
        self.is_condition = is_condition

    @property
    def shown(self) -> str:
        """The value as text of the filter language."""
        value = self.value
        if isinstance(value, EvaluationError):
            return f"error: {value.what}"
        if value is None:
            return "UNKNOWN" if self.is_condition else "NULL"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, str):
            return printed_text(value)
        number = text_of(value, True)
        return f"{type(value).__name__} {value}" if number is None else number

    def __repr__(self) -> str:
        return f"{'  ' * self.depth}{self.text}  ->  {self.shown}"


def explained(node: tree.Node, compiler: Compiler, message: Message) -> list[Explained]:
    """The parts in the order of the text, each before its own parts. Without constants: they need no explanation."""
    found: list[Explained] = []
    _collect(node, compiler, message, 0, found)
    return found


def _collect(node: tree.Node, compiler: Compiler, message: Message, depth: i64, found: list[Explained]) -> None:
    if isinstance(node, tree.Constant):
        return
    value = _value(node, compiler, message)
    found.append(Explained(depth, printed(node), value, isinstance(node, tree.PREDICATES)))
    for part in _parts(node):
        _collect(part, compiler, message, depth + 1, found)


def _value(node: tree.Node, compiler: Compiler, message: Message) -> object:
    try:
        if isinstance(node, tree.EXPRESSIONS):
            return compiler.term(node).value(message)
        truth = compiler.condition(node).truth(message)
    except EvaluationError as error:
        return error
    except Exception as error:
        return EvaluationError(f"the condition cannot be evaluated: {type(error).__name__}")
    if truth == TRUE:
        return True
    return False if truth == FALSE else None


def _parts(node: tree.Node) -> list[tree.Node]:
    if isinstance(node, (tree.And, tree.Or)):
        return list(node.terms)
    if isinstance(node, (tree.Comparison, tree.Arithmetic)):
        return [node.left, node.right]
    if isinstance(node, (tree.Not, tree.Sign, tree.IsNull, tree.Exists)):
        return [node.operand]
    if isinstance(node, tree.In):
        return [node.operand, *node.choices]
    if isinstance(node, tree.Like):
        return [node.operand, node.pattern] if node.escape is None else [node.operand, node.pattern, node.escape]
    if isinstance(node, tree.FunctionCall):
        return list(node.arguments)
    return [node.name] if isinstance(node, tree.PropertyCall) else []
