# mypyc: compiled
"""Parses tokens into a tree: a precedence-climbing parser, written by hand.

    OR < AND < NOT < comparisons, IS, IN, LIKE < + - < * / % < signs

It never backtracks, so its steps grow with the number of tokens only; `steps` counts them. The depth is limited while
the tree grows, so no text can exhaust the stack of the parser or of code that traverses the tree later.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.filters import tree
from unibus.core.filters.functions import FUNCTIONS, PROPERTY, known_calls
from unibus.core.filters.like import Likeness
from unibus.core.filters.property_lookup import SYSTEM_NAMES, system_spelling
from unibus.core.filters.tokens import (
    DOUBLE,
    END,
    INTEGER,
    KEYWORD,
    NAME,
    PARAMETER,
    QUOTED,
    SIGN,
    TEXT,
    FilterToken,
    invalid,
    near,
    tokenize,
)
from unibus.errors import FilterInvalid
from unibus.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX

_OR: Final = 10
_AND: Final = 20
_NOT: Final = 30
_COMPARE: Final = 40
_ADD: Final = 50
_MULTIPLY: Final = 60
_PREFIX: Final = 70

_STRENGTHS: Final[dict[str, i64]] = {
    **dict.fromkeys(("OR",), _OR),
    **dict.fromkeys(("AND",), _AND),
    **dict.fromkeys(("=", "<>", "!=", "<", "<=", ">", ">=", "IS", "IN", "LIKE", "NOT"), _COMPARE),
    **dict.fromkeys(("+", "-"), _ADD),
    **dict.fromkeys(("*", "/", "%"), _MULTIPLY),
}
_INT64_MAX: Final = 2**63 - 1
_INFIX_WORDS: Final = frozenset({"AND", "OR", "IN", "IS", "LIKE", "NOT", "ESCAPE"})
_SYSTEM: Final = frozenset(SYSTEM_NAMES)


def parse(text: str, chars_max: i64 = FILTER_CHARS_MAX, depth_max: i64 = FILTER_DEPTH_MAX) -> tree.Predicate:
    """The tree of a filter's text. Raises FilterInvalid with the position and a hint."""
    return Parser(text, chars_max, depth_max).whole_predicate()


@final
class Built:
    """A part of the tree, with its depth and the position where it begins."""

    __slots__ = ("depth", "node", "position")

    def __init__(self, node: tree.Node, depth: i64, position: i64) -> None:
        self.node = node
        self.depth = depth
        self.position = position


class TokenCursor:
    """The tokens of one text, and the current one. `steps` counts every move."""

    def __init__(self, text: str, chars_max: i64) -> None:
        if len(text) > chars_max:
            raise invalid(
                f"the text has {len(text)} characters, at most {chars_max} are allowed: the excess begins",
                chars_max,
                "",
            )
        self._tokens = tokenize(text)
        self._at: i64 = 0
        self.steps: i64 = 0

    def token(self) -> FilterToken:
        return self._tokens[self._at]

    def advance(self) -> FilterToken:
        """Return the current token and move to the next one. The last one stays the current one."""
        token = self._tokens[self._at]
        self.steps += 1
        if token.kind != END:
            self._at += 1
        return token

    def accept_sign(self, sign: str) -> bool:
        if not self.token().is_sign(sign):
            return False
        self.advance()
        return True

    def expect_sign(self, sign: str, what: str) -> None:
        token = self.token()
        if not token.is_sign(sign):
            hint = near(token.text, _INFIX_WORDS, f"add {sign!r}") if token.kind == NAME else f"add {sign!r}"
            raise invalid(f"{what} needs {sign!r}, found {_shown(token)}", token.position, hint)
        self.advance()


@final
class Parser(TokenCursor):
    """Parses one text. `parameters` has the position of the first use of each @name, in the case of the text."""

    def __init__(self, text: str, chars_max: i64 = FILTER_CHARS_MAX, depth_max: i64 = FILTER_DEPTH_MAX) -> None:
        super().__init__(text, chars_max)
        self._depth_max = depth_max
        self._nesting: i64 = 0
        self.parameters: dict[str, int] = {}

    def whole_predicate(self) -> tree.Predicate:
        found = self._as_predicate(self._parse(0))
        token = self.token()
        if token.kind != END:
            raise self._left_over(token)
        return found

    # Both kinds of node

    def expression(self, strength: i64 = _ADD) -> tree.Expression:
        """An expression; also the value of a SET statement."""
        return _as_expression(self._parse(strength))

    def _parse(self, strength: i64) -> Built:
        """Parse operators that bind at least as strongly as `strength`."""
        token = self.advance()
        self._nesting += 1
        if self._nesting > self._depth_max:
            raise self._too_deep(token.position)
        left = self._prefix(token)
        while True:
            token = self.token()
            binding: i64 = _STRENGTHS.get(token.text, 0) if token.kind == SIGN or token.kind == KEYWORD else 0
            if binding == 0 or binding < strength:
                break
            left = self._infix(left, self.advance(), binding)
        self._nesting -= 1
        return left

    def _prefix(self, token: FilterToken) -> Built:
        kind = token.kind
        if kind in (NAME, QUOTED):
            return self._name(token)
        if kind == TEXT:
            return Built(tree.text(token.text), 1, token.position)
        if kind in (INTEGER, DOUBLE):
            return Built(_number(token, False), 1, token.position)
        if kind == PARAMETER:
            self.parameters.setdefault(token.text, token.position)
            return Built(tree.Parameter(token.text), 1, token.position)
        return self._prefix_keyword(token) if kind == KEYWORD else self._prefix_sign(token)

    def _prefix_keyword(self, token: FilterToken) -> Built:
        word = token.text
        if word == "NOT":
            inner = self._parse(_NOT)
            return self._grown(tree.Not(self._as_predicate(inner)), inner.depth, token.position)
        if word == "EXISTS":
            self.expect_sign("(", word)
            operand = _as_property(self._parse(_ADD), word)
            self.expect_sign(")", word)
            return self._grown(tree.Exists(operand.node), operand.depth, token.position)
        if word == "TRUE" or word == "FALSE":
            return Built(tree.boolean(word == "TRUE"), 1, token.position)
        if word == "NULL":
            return Built(tree.null(), 1, token.position)
        raise invalid(
            f"expected a value, found the keyword {word}",
            token.position,
            f"a property of that name is written [{word}]",
        )

    def _prefix_sign(self, token: FilterToken) -> Built:
        if token.is_sign("("):
            inner = self._parse(0)
            self.expect_sign(")", "the opened (")
            return Built(inner.node, inner.depth, token.position)
        if token.is_sign("-"):
            following = self.token()
            if following.kind == INTEGER or following.kind == DOUBLE:
                return Built(_number(self.advance(), True), 1, token.position)
            return self._signed("-", token)
        if token.is_sign("+"):
            return self._signed("+", token)
        if token.kind == END:
            hint = "an empty filter is written 1 = 1" if self._at == 0 else "something is missing after the last word"
            raise invalid("expected a value, found the end", token.position, hint)
        raise invalid(f"expected a value, found {token.text!r}", token.position, "write a property, a constant or (")

    def _signed(self, sign: str, token: FilterToken) -> Built:
        inner = self._parse(_PREFIX)
        operand = _as_expression(inner)
        node = tree.Sign("-", operand) if sign == "-" else tree.Sign("+", operand)
        return self._grown(node, inner.depth, token.position)

    # Names

    def _name(self, token: FilterToken) -> Built:
        following = self.token()
        if following.is_sign(".") and token.text.lower() in ("sys", "user"):
            self.advance()
            return Built(self._scoped(token.text.lower() == "sys"), 1, token.position)
        if following.is_sign("."):
            hint = f"only sys. and user. can precede a name; a name with a dot is written [{token.text[:40]}.…]"
            raise invalid(f"{token.text[:40]!r} is not a scope of properties,", token.position, hint)
        if following.is_sign("(") and token.kind == NAME:
            return self._call(token)
        return Built(tree.Property(token.text), 1, token.position)

    def property(self) -> tree.Property:
        """The target of a rule action's statement."""
        token = self.token()
        if token.kind != NAME and token.kind != QUOTED:
            raise invalid(f"expected a property, found {_shown(token)}", token.position, "write a name, or [a name]")
        found = _as_property(self._name(self.advance()), "the statement").node
        if not isinstance(found, tree.Property):
            raise invalid("expected a property, found a function call", token.position, "write the name itself")
        return found

    def _scoped(self, system: bool) -> tree.Property:
        token = self.advance()
        if token.kind != NAME and token.kind != QUOTED:
            raise invalid(
                f"expected a name after the dot, found {_shown(token)}", token.position, "write sys.Name or user.name"
            )
        if not system:
            return tree.Property(token.text)
        name = system_spelling(token.text)
        if name is None:
            hint = near(token.text, _SYSTEM, "write a user property without sys.")
            raise invalid(f"there is no system property {token.text[:40]!r},", token.position, hint)
        return tree.Property(name, "sys")

    def _call(self, token: FilterToken) -> Built:
        row = FUNCTIONS.get(token.text.lower())
        if row is None:
            hint = near(token.text, frozenset([name.upper() for name in FUNCTIONS]), known_calls())
            raise invalid(f"there is no function {token.text[:40]!r},", token.position, hint)
        self.advance()
        arguments: list[tree.Expression] = []
        depth: i64 = 0
        for _ in row.arguments:
            if arguments:
                self.expect_sign(",", token.text)
            inner = self._parse(_ADD)
            arguments.append(_as_expression(inner))
            depth = max(depth, inner.depth)
        self.expect_sign(")", token.text if arguments else f"{row.name}(")
        node = tree.PropertyCall(arguments[0]) if row is PROPERTY else tree.FunctionCall(row.name, tuple(arguments))
        return self._grown(node, depth, token.position)

    # Operators

    def _infix(self, left: Built, token: FilterToken, binding: i64) -> Built:
        if binding in (_AND, _OR):
            return self._chain(left, token)
        if binding == _COMPARE:
            return self._condition(left, token)
        _check_operand(left, token)
        right = self._parse(binding + 1)
        node = _arithmetic(token.text, _as_expression(left), _as_expression(right))
        return self._grown(node, max(left.depth, right.depth), token.position, left.position)

    def _chain(self, left: Built, token: FilterToken) -> Built:
        """All terms of one AND or OR in one node: side by side, so that a long list is not a deep tree."""
        word = token.text
        binding: i64 = _AND if word == "AND" else _OR
        terms = [self._as_predicate(left)]
        depth = left.depth
        while True:
            term = self._parse(binding + 1)
            terms.append(self._as_predicate(term))
            depth = max(depth, term.depth)
            if not self.token().is_keyword(word):
                break
            self.advance()
        node: tree.Node = tree.And(tuple(terms)) if word == "AND" else tree.Or(tuple(terms))
        return self._grown(node, depth, token.position, left.position)

    def _condition(self, left: Built, token: FilterToken) -> Built:
        _check_operand(left, token)
        if token.is_keyword("IS"):
            return self._is_null(left, token)
        negated = token.is_keyword("NOT")
        if negated:
            token = self.advance()
        if token.is_keyword("IN"):
            return self._in(left, token, negated)
        if token.is_keyword("LIKE"):
            return self._like(left, token, negated)
        if negated:
            hint = near(token.text, frozenset({"IN", "LIKE"}), "write NOT before a condition, or before IN and LIKE")
            raise invalid(f"expected IN or LIKE after NOT, found {_shown(token)}", token.position, hint)
        operand = _as_expression(left)
        right = self._parse(_ADD)
        node = _comparison(token.text, operand, _as_expression(right))
        return self._grown(node, max(left.depth, right.depth), token.position, left.position)

    def _is_null(self, left: Built, token: FilterToken) -> Built:
        negated = self.token().is_keyword("NOT")
        if negated:
            self.advance()
        following = self.advance()
        if not following.is_keyword("NULL"):
            hint = near(following.text, frozenset({"NULL", "NOT"}), "write IS NULL, IS NOT NULL, or = for a value")
            raise invalid(f"expected NULL or NOT NULL after IS, found {_shown(following)}", following.position, hint)
        operand = _as_property(left, "IS NULL")
        return self._grown(tree.IsNull(operand.node, negated), left.depth, token.position, left.position)

    def _in(self, left: Built, token: FilterToken, negated: bool) -> Built:
        operand = _as_expression(left)
        self.expect_sign("(", "IN")
        choices: list[tree.Expression] = []
        depth = left.depth
        while True:
            choice = self._parse(_ADD)
            choices.append(_as_expression(choice))
            depth = max(depth, choice.depth)
            if not self.accept_sign(","):
                break
        self.expect_sign(")", "IN (")
        return self._grown(tree.In(operand, tuple(choices), negated), depth, token.position, left.position)

    def _like(self, left: Built, token: FilterToken, negated: bool) -> Built:
        operand = _as_expression(left)
        pattern = self._parse(_ADD)
        depth = max(left.depth, pattern.depth)
        like_pattern = _as_expression(pattern)
        escape: tree.Expression | None = None
        if self.token().is_keyword("ESCAPE"):
            self.advance()
            built = self._parse(_ADD)
            depth = max(depth, built.depth)
            escape = _as_expression(built)
            _check_escape(escape, built.position)
        _check_pattern(like_pattern, escape, pattern.position)
        return self._grown(tree.Like(operand, like_pattern, escape, negated), depth, token.position, left.position)

    def _as_predicate(self, built: Built) -> tree.Predicate:
        node = built.node
        if isinstance(node, tree.PREDICATES):
            return node
        token = self.token()
        if token.kind not in (END, KEYWORD) and not token.is_sign(")"):
            raise self._left_over(token)  # Most likely the operator is misspelt.
        if isinstance(node, tree.Constant) and node.kind == "boolean":
            hint = "write 1 = 1" if node.value is True else "write 1 = 0"
        else:
            hint = "compare it with something, for instance = TRUE"
        raise invalid("expected a condition, found a value", built.position, hint)

    # Depth and mistakes

    def _grown(self, node: tree.Node, depth: i64, at: i64, begins: i64 = -1) -> Built:
        """A node above others of that depth; `at` is the position for the error if it is too deep."""
        if depth + 1 > self._depth_max:
            raise self._too_deep(at)
        return Built(node, depth + 1, at if begins < 0 else begins)

    def _too_deep(self, position: i64) -> FilterInvalid:
        return invalid("the filter nests too deeply", position, f"at most {self._depth_max} levels; use several rules")

    def _left_over(self, token: FilterToken) -> FilterInvalid:
        if token.is_sign(")"):
            return invalid("the ) has no matching (", token.position, "remove it, or add a (")
        what = f"expected an operator or the end, found {_shown(token)}"
        if token.kind == NAME:
            return invalid(what, token.position, near(token.text, _INFIX_WORDS, "join conditions with AND or OR"))
        return invalid(what, token.position, "join conditions with AND or OR")


def _as_expression(built: Built) -> tree.Expression:
    node = built.node
    if isinstance(node, tree.EXPRESSIONS):
        return node
    raise invalid("expected a value, found a condition", built.position, "conditions are joined with AND, OR and NOT")


def _check_operand(left: Built, token: FilterToken) -> None:
    if isinstance(left.node, tree.PREDICATES):
        raise invalid(
            f"{token.text} cannot follow a condition,", token.position, "conditions are joined with AND, OR and NOT"
        )


@final
class SourcePosition:
    """A property, as a node, with its depth."""

    __slots__ = ("depth", "node")

    def __init__(self, node: tree.Property | tree.PropertyCall, depth: i64) -> None:
        self.node = node
        self.depth = depth


def _as_property(built: Built, what: str) -> SourcePosition:
    node = built.node
    if isinstance(node, (tree.Property, tree.PropertyCall)):
        return SourcePosition(node, built.depth)
    hint = "name a property; texts in 'quotes' are not names"
    raise invalid(f"{what} must name a property,", built.position, hint)


def _number(token: FilterToken, negative: bool) -> tree.Constant:
    text = "-" + token.text if negative else token.text
    if token.kind == DOUBLE:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise invalid(
                f"{token.text[:40]} is too large for a double", token.position, "at most 1.7976931348623157E308"
            )
        return tree.double(value)
    # The longest integer has 19 digits; Python refuses to convert thousands of them.
    digits = token.text.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > (_INT64_MAX + 1 if negative else _INT64_MAX):
        raise invalid(
            f"{token.text[:40]} does not fit into 64 bits", token.position, "with a decimal point it is a double"
        )
    return tree.integer(-int(digits) if negative else int(digits))


def _arithmetic(sign: str, left: tree.Expression, right: tree.Expression) -> tree.Arithmetic:
    if sign == "+":
        return tree.Arithmetic("+", left, right)
    if sign == "-":
        return tree.Arithmetic("-", left, right)
    if sign == "*":
        return tree.Arithmetic("*", left, right)
    return tree.Arithmetic("/", left, right) if sign == "/" else tree.Arithmetic("%", left, right)


def _comparison(sign: str, left: tree.Expression, right: tree.Expression) -> tree.Comparison:
    if sign == "=":
        return tree.Comparison("=", left, right)
    if sign == "<":
        return tree.Comparison("<", left, right)
    if sign == "<=":
        return tree.Comparison("<=", left, right)
    if sign == ">":
        return tree.Comparison(">", left, right)
    return tree.Comparison(">=", left, right) if sign == ">=" else tree.Comparison("<>", left, right)


def _check_escape(escape: tree.Expression, position: i64) -> None:
    if isinstance(escape, tree.Constant) and not (isinstance(escape.value, str) and len(escape.value) == 1):
        raise invalid("ESCAPE must be followed by one character,", position, "for instance ESCAPE '\\'")


def _check_pattern(pattern: tree.Expression, escape: tree.Expression | None, position: i64) -> None:
    """Report a constant pattern that is invalid now; one that depends on the message is checked when it is
    evaluated."""
    if not isinstance(pattern, tree.Constant) or pattern.value is None:
        return
    if not isinstance(pattern.value, str):
        raise invalid("LIKE must be followed by a pattern,", position, "a text, for instance LIKE 'red%'")
    if isinstance(escape, tree.Constant) and isinstance(escape.value, str):
        try:
            Likeness(pattern.value, escape.value)
        except ValueError:
            raise invalid("the pattern ends with its escape character,", position, "double it") from None


def _shown(token: FilterToken) -> str:
    return "the end" if token.kind == END else f"{token.text[:40]!r}"
