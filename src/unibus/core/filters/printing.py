# mypyc: compiled
"""Prints a tree as text in a canonical form: keywords in capitals, single spaces, no redundant parentheses.

The invariant: parsing the printed text returns the same tree.
"""

from typing import Final

from mypy_extensions import i64

from unibus.core.filters import tree
from unibus.core.filters.tokens import is_regular_name

_MULTIPLYING: Final = "*/%"


def printed(node: tree.Node) -> str:
    """The text of any part of a filter."""
    if isinstance(node, tree.EXPRESSIONS):
        return _expression(node)
    return _predicate(node)


def printed_statement(statement: tree.Statement) -> str:
    """The text of one statement of a rule action."""
    if isinstance(statement, tree.SetProperty):
        return f"SET {_property(statement.target)} = {_expression(statement.value)}"
    return f"REMOVE {_property(statement.target)}"


def _predicate(node: tree.Predicate) -> str:
    if isinstance(node, tree.Comparison):
        return f"{_expression(node.left)} {node.operator} {_expression(node.right)}"
    if isinstance(node, tree.And):
        return " AND ".join([_term_of_and(term) for term in node.terms])
    if isinstance(node, tree.Or):
        return " OR ".join([_term_of_or(term) for term in node.terms])
    if isinstance(node, tree.Not):
        return f"NOT {_term_of_and(node.operand)}"
    if isinstance(node, tree.IsNull):
        return f"{_expression(node.operand)} IS {'NOT ' if node.negated else ''}NULL"
    if isinstance(node, tree.Exists):
        return f"EXISTS({_expression(node.operand)})"
    if isinstance(node, tree.In):
        choices = ", ".join([_expression(choice) for choice in node.choices])
        return f"{_expression(node.operand)} {'NOT ' if node.negated else ''}IN ({choices})"
    escape = "" if node.escape is None else f" ESCAPE {_expression(node.escape)}"
    return f"{_expression(node.operand)} {'NOT ' if node.negated else ''}LIKE {_expression(node.pattern)}{escape}"


def _term_of_and(term: tree.Predicate) -> str:
    return f"({_predicate(term)})" if isinstance(term, (tree.And, tree.Or)) else _predicate(term)


def _term_of_or(term: tree.Predicate) -> str:
    return f"({_predicate(term)})" if isinstance(term, tree.Or) else _predicate(term)


def _expression(node: tree.Expression) -> str:
    if isinstance(node, tree.Constant):
        return _constant(node)
    if isinstance(node, tree.Property):
        return _property(node)
    if isinstance(node, tree.Parameter):
        return f"@{node.name}"
    if isinstance(node, tree.PropertyCall):
        return f"property({_expression(node.name)})"
    if isinstance(node, tree.FunctionCall):
        return f"{node.function}({', '.join([_expression(argument) for argument in node.arguments])})"
    if isinstance(node, tree.Sign):
        # Without parentheses a minus before a number would be parsed as part of it.
        plain = isinstance(node.operand, (tree.Property, tree.Parameter, tree.PropertyCall, tree.FunctionCall))
        operand = _expression(node.operand)
        return f"{node.operator}{operand}" if plain else f"{node.operator}({operand})"
    left = _operand(node.left, _strength(node))
    return f"{left} {node.operator} {_operand(node.right, _strength(node) + 1)}"


def _operand(node: tree.Expression, strength: i64) -> str:
    text = _expression(node)
    return f"({text})" if _strength(node) < strength else text


def _strength(node: tree.Expression) -> i64:
    if not isinstance(node, tree.Arithmetic):
        return 3
    return 2 if node.operator in _MULTIPLYING else 1


def _property(node: tree.Property) -> str:
    name = node.name
    text = name if is_regular_name(name) else f"[{name.replace(']', ']]')}]"
    return f"sys.{text}" if node.scope == "sys" else text


def _constant(node: tree.Constant) -> str:
    value = node.value
    if isinstance(value, str):
        return printed_text(value)
    if value is None:
        return "NULL"
    if node.kind == "boolean":
        return "TRUE" if value else "FALSE"
    return repr(value)


def printed_text(text: str) -> str:
    """A text as a constant of the filter language."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
