"""Annotations with pydantic types in them: pydantic validates them, with its own rules and its own words.

pydantic is never imported here. A program whose annotations have pydantic types has imported it: sys.modules has it.
"""

import functools
import json
import sys
import typing
from collections.abc import Callable, Iterable

import msgspec

from unibus.bus.bodies.annotations import parts_of, shown
from unibus.bus.bodies.descriptions import Described, cut, described, shortened
from unibus.core.codec.wire import is_plain, tagged, untagged
from unibus.core.envelope.record_types import has_fields
from unibus.errors import HandlerInvalid

_ERRORS_SHOWN = 3
_TEXT_CHARS_MAX = 200
_GET_INPUT = ("function-before", "function-wrap", "function-plain")
_MODULES = ("pydantic", "pydantic_core", "annotated_types")

Read = Callable[..., object]


class BodyReader(typing.NamedTuple):
    """How to make a value of one type. Each raises ValueError or TypeError, with a text that names the field."""

    value: Read  # of a decoded value
    json: Read  # of JSON as bytes
    of_dict: Read  # of a dict, which most bodies are; it may raise an error that `describe` has to put into words
    describe: Callable[[Exception], str] = described
    hides_input: bool = False  # No error may show a part of the body, nor may the one of pydantic that caused it.


def uses_pydantic(annotation: object) -> bool:
    """Whether a type or a constraint of pydantic is anywhere inside."""
    return any(is_pydantic_type(part) for part in parts_of(annotation))


def is_pydantic_type(part: object) -> bool:
    """A model, a pydantic dataclass, a type with a pydantic schema, or a constraint in Annotated."""
    if _pydantic() is None:
        return False
    # The protocol of pydantic for types of other libraries, and its mark on models and dataclasses.
    if hasattr(part, "__get_pydantic_core_schema__") or hasattr(part, "__pydantic_validator__"):
        return True
    kind = part if isinstance(part, type) else type(part)
    return kind.__module__.partition(".")[0] in _MODULES


def refuse_first_version(annotation: object) -> None:
    """Raise HandlerInvalid for a model of pydantic.v1: neither msgspec nor the second version of pydantic reads it."""
    for part in parts_of(annotation):
        bases = part.__mro__ if isinstance(part, type) else ()
        if any(base.__module__ == "pydantic.v1.main" and base.__name__ == "BaseModel" for base in bases):
            raise HandlerInvalid(
                f"{shown(part)} is a model of pydantic.v1, which is not supported",
                "derive it from pydantic.BaseModel of version 2, or take a dict and make the model in the handler",
            )


def pydantic_reader(annotation: object) -> BodyReader:
    """Raises HandlerInvalid for an annotation that pydantic does not support."""
    module = _pydantic()
    assert module is not None
    try:
        adapter = module.TypeAdapter(annotation)
        # The validator itself, and not the methods of the adapter, which add a call of Python each.
        validator = adapter.validator
        from_value, from_json = validator.validate_python, validator.validate_json
        schema = adapter.core_schema
    # pydantic raises errors of several bases for a schema that it cannot build.
    except Exception as error:
        raise HandlerInvalid(
            f"pydantic does not support the annotation {shown(annotation)}: {_first_line(error)}",
            "use types that pydantic can validate, and define them before the handler is subscribed",
        ) from error
    return _reader(from_value, from_json, module.ValidationError, _Schema(schema))


def _reader(from_value: Read, from_json: Read, invalid: type[Exception], schema: "_Schema") -> BodyReader:
    if schema.has_aliases and _takes_names(from_json, invalid):
        from_value = functools.partial(from_value, by_alias=True, by_name=True)
        from_json = functools.partial(from_json, by_alias=True, by_name=True)
    if schema.may_change_input:
        from_value = functools.partial(_of_copy, from_value)
    by_json, hides_input = schema.json_differs, schema.hides_input

    def value(body: object) -> object:
        # An object of another class is read as if it were received from a store, so that both give the same result.
        if type(body) is not dict and (has_fields(body) or isinstance(body, msgspec.Struct)):
            body = untagged(tagged(body, True))
        try:
            # In strict mode pydantic accepts a text for a time from JSON only. A body that was stored is JSON in its
            # origin, so it is read as such.
            data = _as_json(body) if by_json else b""
            return from_json(data) if data else from_value(body)
        except invalid as error:
            raise Described(problems(error, hides_input)) from error

    def read_json(data: bytes) -> object:
        try:
            return from_json(data)
        except invalid as error:
            raise Described(problems(error, hides_input)) from error

    def describe(error: Exception) -> str:
        return problems(error, hides_input) if isinstance(error, invalid) else described(error)

    # pydantic's own function, without a call of Python around it: that would be a tenth of a small model's time.
    return BodyReader(value, read_json, value if by_json else from_value, describe, hides_input)


def _of_copy(from_value: Read, body: object) -> object:
    """For validators that get the input itself and may change it: in memory other groups and retries have it, too."""
    return from_value(_copied(body))


def _copied(body: object) -> object:
    if type(body) is dict:
        return {name: _copied(value) for name, value in body.items()}
    return [_copied(value) for value in body] if type(body) is list else body


def _as_json(body: object) -> bytes:
    """The body as JSON, for a schema that reads JSON in another way; b"" if it has values that JSON cannot express."""
    if is_plain(body, False):
        return msgspec.json.encode(body)
    if not is_plain(body, True):
        return b""
    try:
        # pydantic reads NaN and Infinity, and msgspec would write them as null.
        return json.dumps(body).encode()
    except TypeError:  # It has bytes.
        return b""


def _takes_names(from_json: Read, invalid: type[Exception]) -> bool:
    """Whether this pydantic (2.11 and later) can accept a field by its name beside its alias. A model with a
    validation_alias needs it: pydantic writes such a field by its name."""
    try:
        # Asked of the installed version itself: an empty text is invalid JSON in each, and only the keywords may be
        # unknown.
        typing.cast(typing.Any, from_json)(b"", by_alias=True, by_name=True)
    except invalid:
        return True
    except TypeError:
        return False
    return True


class _Schema:
    """What the schema of an annotation says about values that were written as JSON."""

    def __init__(self, schema: object) -> None:
        self.json_differs = False  # A str for a time or for bytes means something else in Python than in JSON.
        self.hides_input = False
        self.has_aliases = False
        self.may_change_input = False
        # An explicit stack: a schema may contain itself, and may be deeper than the recursion limit.
        waiting, seen = [schema], set[int]()
        while waiting:
            part = waiting.pop()
            if isinstance(part, (dict, list, tuple)) and id(part) not in seen:
                seen.add(id(part))
                waiting.extend(part.values() if isinstance(part, dict) else part)
            if isinstance(part, dict):
                self.json_differs |= part.get("strict") is True or part.get("val_json_bytes", "utf8") != "utf8"
                self.has_aliases |= "validation_alias" in part
                self.hides_input |= part.get("hide_input_in_errors") is True or _is_secret(part.get("cls"))
                self.may_change_input |= part.get("type") in _GET_INPUT and _is_of_user(part.get("function"))


def _is_secret(kind: object) -> bool:
    """SecretStr and its like: what they hide once they exist must not be shown because it is too short for them."""
    bases = kind.__mro__ if isinstance(kind, type) else ()
    return any(base.__module__ == "pydantic.types" and "Secret" in base.__name__ for base in bases)


def _is_of_user(function: object) -> bool:
    called = function.get("function") if isinstance(function, dict) else None
    return str(getattr(called, "__module__", "")).partition(".")[0] not in _MODULES


def problems(error: typing.Any, hides_input: bool) -> str:
    """`Order.items[2].price: Input should be a valid decimal`, for the first three errors, and how many more."""
    # Without the context, which may contain exception objects; without the input, if the model hides it.
    found = error.errors(include_url=False, include_context=False, include_input=not hides_input)
    texts = [f"{error.title}{_path(each['loc'])}: {_problem(each)}" for each in found[:_ERRORS_SHOWN]]
    more = len(found) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _path(places: Iterable[object]) -> str:
    path = "".join(f"[{place}]" if isinstance(place, int) else f".{cut(str(place))}" for place in places)
    return cut(path, _TEXT_CHARS_MAX)


def _problem(error: dict[str, typing.Any]) -> str:
    given = error.get("input")
    text = shortened(error["msg"])
    if error["type"] == "missing" or not isinstance(given, (str, int, float)):
        return text
    return f"{text} (got {cut(repr(given))})"


def _pydantic() -> typing.Any:
    """The second major version of pydantic, if the program has imported it."""
    module = sys.modules.get("pydantic")
    return module if hasattr(module, "TypeAdapter") else None


def _first_line(error: Exception) -> str:
    return f"{str(error).partition(chr(10))[0]:.{_TEXT_CHARS_MAX}}"
