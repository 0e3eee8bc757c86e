# mypyc: compiled
"""The functions of the filter language: one row of `FUNCTIONS` for each name that a text can call.

    text ──▶ parser ──▶ tree.FunctionCall(function, arguments) ──▶ Compiler ──▶ CallTerm ──▶ evaluate(values, draw)
                 └── number of arguments                        types of arguments ──┘

A new function is a function and a row here, and a line in docs/guide/filters.md: parsing, printing, compiling and
explaining go by the row. As everywhere in the language, NULL as an argument makes the result UNKNOWN, and a value of
a wrong type is an EvaluationError: `evaluate` gets neither.

`property(name)` is no value but a property, which EXISTS and IS NULL accept too. So it has a node of its own,
`tree.PropertyCall`, and its row has only its arguments.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from unibus.core.envelope.message import Message
from unibus.core.filters.expressions import Draw, Term
from unibus.errors import EvaluationError

Evaluate: TypeAlias = Callable[[list[object], Draw | None], object]
"""From the values of the arguments to the value of the call. `Draw` is the source of random values."""


@final
class FilterFunction:
    """One row. `arguments` are names, for hints, with the type that the value must have."""

    def __init__(self, name: str, arguments: tuple[tuple[str, type], ...], evaluate: Evaluate) -> None:
        self.name = name
        self.arguments = arguments
        self.evaluate = evaluate


@final
class CallTerm(Term):
    def __init__(self, function: FilterFunction, arguments: list[Term], draw: Draw | None) -> None:
        self._function = function
        self._arguments = arguments
        self._draw = draw

    def value(self, message: Message) -> object:
        values: list[object] = []
        has_null = False
        for argument in self._arguments:
            value = argument.value(message)
            if value is None:
                has_null = True
            else:
                self._check_type(len(values), value)
            values.append(value)
        return None if has_null else self._function.evaluate(values, self._draw)

    def _check_type(self, index: i64, value: object) -> None:
        name, wanted = self._function.arguments[index]
        # In Python a bool is an int; in the language TRUE is no number.
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise EvaluationError(f"{self._function.name}() needs {name}, not a {type(value).__name__}")

    def can_fail(self) -> bool:
        return True


def _new_id(values: list[object], draw: Draw | None) -> object:
    """A new UUID at each evaluation."""
    if draw is None:
        raise EvaluationError("newid() has no source of random values", "pass new_id to the filter")
    return draw()


def _property(values: list[object], draw: Draw | None) -> object:
    raise NotImplementedError("the parser makes a PropertyCall of it")


NEWID: Final = FilterFunction("newid", (), _new_id)
PROPERTY: Final = FilterFunction("property", (("name", str),), _property)
FUNCTIONS: Final[dict[str, FilterFunction]] = {"newid": NEWID, "property": PROPERTY, "p": PROPERTY}
"""By the name of the call, in lower case: names have no case."""


def known_calls() -> str:
    """Every call with its arguments, for a hint."""
    calls = [f"{name}({', '.join([each for each, _ in row.arguments])})" for name, row in FUNCTIONS.items()]
    return f"there are {', '.join(calls[:-1])} and {calls[-1]}"
