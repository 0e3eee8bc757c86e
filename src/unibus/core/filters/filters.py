# mypyc: compiled
"""The filters that a rule can have: TrueFilter, FalseFilter, CorrelationFilter and SqlFilter.

Each is a tree, so all of them are printed, explained, indexed and evaluated in one way. `matches` returns a bool or
raises EvaluationError, and never another error: a filter of a subscriber must not fail a publisher.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias, cast, final

from mypy_extensions import i64

from unibus.core.envelope.fields import checked_header
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.filters import tree
from unibus.core.filters.compiling import Compiler
from unibus.core.filters.explaining import Explained, explained
from unibus.core.filters.expressions import Draw
from unibus.core.filters.numbers import aware
from unibus.core.filters.parser import Parser
from unibus.core.filters.predicates import Condition
from unibus.core.filters.printing import printed
from unibus.core.filters.tokens import invalid, near
from unibus.display import guarded
from unibus.errors import EvaluationError, FilterInvalid, HeaderInvalid
from unibus.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX

Values: TypeAlias = Mapping[str, HeaderValue]

AZURE: Final = "azure"
LENIENT: Final = "lenient"
MODES: Final = frozenset({AZURE, LENIENT})

_NO_VALUES: Final[dict[str, HeaderValue]] = {}

_FIELDS: Final[dict[str, str]] = {
    "content_type": "ContentType",
    "correlation_id": "CorrelationId",
    "label": "Label",
    "subject": "Label",
    "message_id": "MessageId",
    "reply_to": "ReplyTo",
    "reply_to_session_id": "ReplyToSessionId",
    "session_id": "SessionId",
    "to": "To",
}


class Filter:
    """The base of all filters: a tree with the values of its parameters, compiled."""

    def __init__(
        self, node: tree.Predicate, parameters: dict[str, HeaderValue], mode: str, new_id: Draw | None
    ) -> None:
        if mode not in MODES:
            raise FilterInvalid(f"there is no filter mode {mode!r:.40}", "use 'azure' or 'lenient'")
        self.tree = node
        self.parameters = parameters  # By folded name, without the @.
        self.mode = mode
        self.condition: Condition = Compiler(parameters, mode == LENIENT, new_id).condition(node)
        self._new_id = new_id

    @property
    def text(self) -> str:
        """The filter as text, in the canonical form of `printing.py`."""
        return printed(self.tree)

    def matches(self, message: Message) -> bool:
        """Whether the filter matches. Raises EvaluationError if it has no result for this message."""
        try:
            return self.condition.holds(message)
        except (EvaluationError, MemoryError):
            raise
        except Exception as error:
            raise EvaluationError(f"the filter cannot be evaluated: {type(error).__name__}") from error

    def explain(self, message: Message) -> list[Explained]:
        """Why it matches or does not: every part with its value."""
        compiler = Compiler(self.parameters, self.mode == LENIENT, self._new_id)
        return explained(self.tree, compiler, message)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return (
            type(self) is type(other)
            and self.tree == other.tree
            and self.mode == other.mode
            and _typed(self.parameters) == _typed(other.parameters)
        )

    def __hash__(self) -> int:
        return hash((self.tree, self.mode))

    def __repr__(self) -> str:
        return guarded(self, lambda: f"<{type(self).__name__} {self.text!r:.80}>")


@final
class TrueFilter(Filter):
    """Matches every message. The filter of a subscription without rules of its own."""

    def __init__(self) -> None:
        super().__init__(tree.Comparison("=", tree.integer(1), tree.integer(1)), _NO_VALUES, AZURE, None)


@final
class FalseFilter(Filter):
    """Matches no message."""

    def __init__(self) -> None:
        super().__init__(tree.Comparison("=", tree.integer(1), tree.integer(0)), _NO_VALUES, AZURE, None)


@final
class CorrelationFilter(Filter):
    """Matches if all given properties are equal. System properties are keywords: subject (or label), to, message_id,
    content_type, reply_to, reply_to_session_id, session_id."""

    def __init__(
        self,
        correlation_id: str | None = None,
        properties: Values | None = None,
        mode: str = AZURE,
        **fields: object,
    ) -> None:
        if "label" in fields and "subject" in fields:
            raise FilterInvalid("subject and label are two names for one field", "give one of them")
        given: dict[str, object] = {"correlation_id": correlation_id, **fields}
        wanted = {_field(name): _system(name, value) for name, value in given.items() if value is not None}
        own = _NO_VALUES if properties is None else properties
        names = list(own)
        values = {f"p{at}": value for at, value in enumerate(_checked(own))}
        terms = [_equals(tree.Property(name, "sys"), tree.text(wanted[name])) for name in wanted]
        terms += [_equals(tree.Property(name), tree.Parameter(f"p{at}")) for at, name in enumerate(names)]
        if not terms:
            raise FilterInvalid("the correlation filter has no property", "use TrueFilter to match every message")
        node: tree.Predicate = terms[0]
        if len(terms) > 1:
            node = tree.And(tuple(terms))
        super().__init__(node, values, mode, None)
        self.system: dict[str, str] = wanted  # By its name in the filter language.
        self.properties: dict[str, HeaderValue] = dict(zip(names, values.values(), strict=True))


@final
class SqlFilter(Filter):
    """A condition in the filter language. `parameters` has the value of each @name, with the @ or without."""

    def __init__(
        self,
        expression: str,
        parameters: Values | None = None,
        mode: str = AZURE,
        new_id: Draw | None = None,
        chars_max: i64 = FILTER_CHARS_MAX,
        depth_max: i64 = FILTER_DEPTH_MAX,
    ) -> None:
        parser = Parser(expression, chars_max, depth_max)
        node = parser.whole_predicate()
        values = bound(parser.parameters, parameters)
        super().__init__(node, values, mode, new_id)
        self.expression = expression
        self.named = as_named(parameters, values)  # As `parameters`, in the case in which they were given.


def bound(asked: Mapping[str, int], given: Values | None) -> dict[str, HeaderValue]:
    """The values of the parameters by folded name. Raises FilterInvalid for one that is used and not given."""
    values: dict[str, HeaderValue] = {}
    if given is not None:
        for name, value in zip(given, _checked(given), strict=True):
            folded = name.removeprefix("@").lower()
            if folded in values:
                raise FilterInvalid(
                    f"the parameter @{folded[:40]} has two values", "names that differ only by case are equal"
                )
            values[folded] = value
    for name, position in asked.items():
        if name.lower() not in values:
            hint = near(name, frozenset(values), "give one in parameters")
            raise invalid(f"there is no value for the parameter @{name[:40]}", position, hint)
    return values


def as_named(given: Values | None, values: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    """The checked values by the given names, without the @. Names are compared without case, but keep theirs."""
    names = [] if given is None else [name.removeprefix("@") for name in given]
    return {name: values[name.lower()] for name in names}


def _checked(given: Values) -> list[HeaderValue]:
    """Values of the types that headers have; a time without a zone is UTC."""
    checked: list[HeaderValue] = []
    for name, value in cast(Mapping[object, object], given).items():
        if not isinstance(name, str):
            raise FilterInvalid(f"the name of a property or parameter must be text, got {name!r:.40}")
        try:
            checked.append(checked_header(name, aware(value) if isinstance(value, datetime) else value))
        except HeaderInvalid as error:
            raise FilterInvalid(f"the value of {name!r:.40} cannot be compared: {error.what}", error.hint) from error
    return checked


def _field(name: str) -> str:
    if name not in _FIELDS:
        hint = near(name, frozenset(_FIELDS), "pass user properties as properties=")
        raise FilterInvalid(f"a correlation filter has no field {name!r:.40}", hint)
    return _FIELDS[name]


def _system(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise FilterInvalid(f"{name} must be text, not {type(value).__name__}")


def _equals(place: tree.Property, value: tree.Expression) -> tree.Comparison:
    return tree.Comparison("=", place, value)


def _typed(values: Mapping[str, HeaderValue]) -> dict[str, tuple[str, str]]:
    """The values with their types, because 1 and True are equal in Python."""
    return {name: (type(value).__name__, repr(value)) for name, value in values.items()}
