"""Reads PromQL as far as it takes to know which series an expression asks for: metric, labels, and what is compared.

    sum by (host) (rate(requests_total{status=~"5.."}[5m]))   ▶   Selector("requests_total", {"status": …}), {"host"}

It is a tokenizer and one pass over the tokens, not a regular expression for names: a word is a metric only where PromQL
has one, so functions, keywords, grouping labels and the inside of strings are not taken for metrics, and no metric is
overlooked. What it cannot read is an error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s+
    | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    | (?P<range>\[[^\]]*\])
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:ms|[smhdwy])?(?![\w.]))
    | (?P<name>[A-Za-z_:][\w:]*)
    | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^=<>(){},@])
    """,
    re.VERBOSE,
)
GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
OPERATORS = frozenset({"and", "or", "unless", "bool", "offset", "start", "end", "inf", "nan", "atan2"})
MATCHERS = frozenset({"=", "!=", "=~", "!~"})
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+(:(\d+(ms|[smhdwy]))*)?|\$__rate_interval|\$__interval|\$__range")


class Unreadable(ValueError):
    """An expression that is no PromQL, or more of it than is read here."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str


@dataclass
class Selector:
    """One metric and its matchers: label → (operator, value)."""

    metric: str
    matchers: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass
class Expression:
    selectors: list[Selector] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)
    """Labels of by, without, on, ignoring and group_…"""


def tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unreadable(f"{text[at : at + 20]!r} at {at} in {text!r}")
        if found.lastgroup is not None:
            yield Token(found.lastgroup, found[0])
        at = found.end()


def parse(text: str) -> Expression:
    return _Reader(list(tokens(text))).read()


class _Reader:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._depth = 0

    def read(self) -> Expression:
        expression = Expression()
        while self._at < len(self._tokens):
            self._read_next(expression)
        if self._depth or not expression.selectors:
            raise Unreadable("no metric, or brackets that do not match")
        return expression

    def _read_next(self, expression: Expression) -> None:
        token = self._take()
        if token.kind == "name":
            self._read_name(token.text, expression)
        elif token.kind == "range" and not DURATION.fullmatch(token.text[1:-1]):
            raise Unreadable(f"no duration: {token.text}")
        elif token.text == "{":
            raise Unreadable("labels without a metric")
        elif token.text in "()" and token.kind == "sign":
            self._depth += 1 if token.text == "(" else -1
            if self._depth < 0:
                raise Unreadable("a bracket that nothing opens")

    def _read_name(self, name: str, expression: Expression) -> None:
        if name in GROUPING:
            expression.grouped.update(self._read_list())
        elif name.lower() in OPERATORS:
            return
        elif self._peek() == "(" or (self._peek() in GROUPING):
            return  # A function, or an aggregation.
        else:
            expression.selectors.append(Selector(name, self._read_matchers()))

    def _read_list(self) -> Iterator[str]:
        if self._peek() != "(":  # group_left may have none.
            return
        self._take()
        while (token := self._take()).text != ")":
            if token.kind == "name":
                yield token.text
            elif token.text != ",":
                raise Unreadable(f"{token.text!r} in a list of labels")

    def _read_matchers(self) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        if self._peek() != "{":
            return found
        self._take()
        while (token := self._take()).text != "}":
            if token.text == ",":
                continue
            operator, value = self._take(), self._take()
            if token.kind != "name" or operator.text not in MATCHERS or value.kind != "string":
                raise Unreadable(f"{token.text}{operator.text}{value.text} is no matcher")
            found[token.text] = (operator.text, value.text[1:-1])
        return found

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _take(self) -> Token:
        if self._at >= len(self._tokens):
            raise Unreadable("ends too early")
        self._at += 1
        return self._tokens[self._at - 1]
