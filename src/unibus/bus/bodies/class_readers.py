"""Annotations that msgspec alone cannot convert to: attrs classes with converters, and unions of several classes.

msgspec fills the fields of an attrs class itself and does not run its converters, and it refuses a union of two
dataclasses. Each such part of an annotation is replaced by a placeholder class; msgspec calls `Placeholders.read` for
it, and the value is made by calling the user's class, or by the member of the union that fits best.

    list[Order | Invoice] ──replaced──▶ list[Placeholder] ──msgspec──▶ Placeholder ──▶ Order(…) or Invoice(…)
"""

import dataclasses
import functools
import operator
import re
import typing
from collections.abc import Callable

import msgspec

from unibus.bus.bodies.annotations import is_attrs, is_union, parts_of, shown
from unibus.bus.bodies.pydantic_types import is_pydantic_type, pydantic_reader
from unibus.core.codec.wire import tagged, untagged
from unibus.core.envelope.record_types import has_fields
from unibus.errors import HandlerInvalid

_TWO_PATHS = re.compile(r" - at `\$([^`]*)` - at `\$([^`]*)`")
_MISSING = object()


class _AcceptsAll(type):
    """msgspec tests that the result of a hook is an instance of the placeholder: anything is."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class _Field(typing.NamedTuple):
    name: str
    parameter: str  # of the class: attrs removes the underscore of a private attribute
    required: bool
    wanted: object  # None: a converter of the class takes whatever is given
    converter: object


class Placeholders:
    """The placeholders of one annotation, by class or union, and how to read a value for each."""

    def __init__(self) -> None:
        self._of: dict[object, type] = {}
        self._read: dict[type, Callable[[object], object]] = {}

    def read(self, placeholder: type, value: object) -> object:
        """The dec_hook of msgspec. For any other class msgspec checks the type of the result itself."""
        read = self._read.get(placeholder)
        return value if read is None else read(value)

    def replaced(self, annotation: typing.Any) -> typing.Any:
        """The annotation with placeholders, or the very same one if it needs none."""
        if isinstance(annotation, type) and annotation in self._of:
            return self._of[annotation]
        if is_pydantic_type(annotation) and isinstance(annotation, type):
            return self._placeholder(annotation, pydantic_reader(annotation).value)
        if isinstance(annotation, type) and not typing.get_args(annotation):
            return self._class(annotation) if needs_constructor(annotation) else annotation
        arguments = typing.get_args(annotation)
        replaced = tuple(self.replaced(argument) if _is_type(argument) else argument for argument in arguments)
        if is_union(annotation):
            return self._union(annotation, arguments, replaced)
        if all(map(operator.is_, arguments, replaced)):
            return annotation
        if typing.get_origin(annotation) is typing.Annotated:
            return typing.Annotated[(replaced[0], *annotation.__metadata__)]
        return typing.get_origin(annotation)[replaced if len(replaced) > 1 else replaced[0]]

    def _placeholder(self, key: object, read: Callable[[object], object]) -> type:
        placeholder = _AcceptsAll("Placeholder", (), {})
        self._of[key] = placeholder
        self._read[placeholder] = read
        return placeholder

    # A class that is called to make its instances

    def _class(self, wanted: type) -> type:
        fields: list[_Field] = []
        placeholder = self._placeholder(wanted, functools.partial(self._made, wanted, fields))
        fields.extend(self._fields(wanted))  # After that: the class may contain itself.
        return placeholder

    def _fields(self, wanted: typing.Any) -> list[_Field]:
        hints = typing.get_type_hints(wanted, include_extras=True)
        found: list[_Field] = []
        for field in wanted.__attrs_attrs__ if is_attrs(wanted) else dataclasses.fields(wanted):
            converter = getattr(field, "converter", None)
            kind = None if converter is not None else self.replaced(hints.get(field.name, typing.Any))
            if field.init:
                parameter = getattr(field, "alias", None) or field.name
                found.append(_Field(field.name, parameter, _is_required(field), kind, converter))
        return found

    def _made(self, wanted: Callable[..., object], fields: list[_Field], value: object) -> object:
        assert isinstance(wanted, type)
        if isinstance(value, wanted):
            return value
        given = untagged(tagged(value, True)) if has_fields(value) else value
        if not isinstance(given, dict):
            raise ValueError(f"Expected `object`, got `{type(value).__name__}`")
        values: dict[str, object] = {}
        for field in fields:
            found = given.get(field.name, given.get(field.parameter, _MISSING))
            if found is not _MISSING:
                values[field.parameter] = found if field.wanted is None else self._converted(found, field)
            elif field.required:
                raise ValueError(f"Object missing required field `{field.name}`")
        try:
            return wanted(**values)
        except (TypeError, ValueError, ArithmeticError, AssertionError) as error:
            raise ValueError(f"{error!s:.200}{_blamed(fields, values)}") from error

    def _converted(self, value: object, field: _Field) -> object:
        try:
            return msgspec.convert(value, field.wanted, dec_hook=self.read, from_attributes=True, str_keys=True)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ValueError(f"{error} - at `$.{field.name}`") from error

    # A union that msgspec does not support

    def _union(self, annotation: object, members: tuple[object, ...], replaced: tuple[typing.Any, ...]) -> object:
        union = functools.reduce(operator.or_, replaced)
        if is_supported(union):
            return annotation if all(map(operator.is_, members, replaced)) else union
        for member, wanted in zip(members, replaced, strict=True):
            check_supported(wanted, member)
        return self._placeholder(annotation, functools.partial(self._best, tuple(zip(members, replaced, strict=True))))

    def _best(self, members: tuple[tuple[object, object], ...], value: object) -> object:
        """The member that takes most fields of the value; of several the first one."""
        fitting: list[tuple[int, object]] = []
        problems: list[str] = []
        for member, wanted in members:
            try:
                made = msgspec.convert(value, wanted, dec_hook=self.read, from_attributes=True, str_keys=True)
                fitting.append((_fields_taken(member, value), made))
            except (msgspec.ValidationError, TypeError, ValueError) as error:
                problems.append(f"not {shown(member)} ({merged_paths(str(error))})")
        if not fitting:
            raise ValueError("; ".join(problems))
        return max(fitting, key=operator.itemgetter(0))[1]


def needs_constructor(wanted: type) -> bool:
    """Whether only the class itself can make a right instance: converters of attrs run nowhere else, private
    attributes have another name there, and pydantic validates its models."""
    if not (is_attrs(wanted) or dataclasses.is_dataclass(wanted)):
        return False
    return any(
        is_pydantic_type(part)
        or (is_attrs(part) and _has_own_ways(part))
        or (is_union(part) and not is_supported(part))
        for part in parts_of(wanted)
    )


def _has_own_ways(wanted: typing.Any) -> bool:
    return any(field.converter is not None or field.alias != field.name for field in wanted.__attrs_attrs__)


def is_supported(wanted: object) -> bool:
    try:
        msgspec.json.Decoder(wanted)
    except (TypeError, ValueError, NameError, AttributeError):
        return False
    return True


def check_supported(wanted: typing.Any, annotation: object) -> None:
    """Raises HandlerInvalid for a type that no body can be converted to."""
    try:
        msgspec.json.Decoder(wanted)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise HandlerInvalid(
            f"a body cannot be converted to {shown(annotation)}: {error!s:.300}",
            "use dataclasses, attrs, pydantic models, msgspec structs or builtins, defined at the top of a module",
        ) from error


def merged_paths(text: str) -> str:
    """`at $.price - at $.items[2]`, written from the inside to the outside, as one path: `at $.items[2].price`."""
    while (merged := _TWO_PATHS.sub(r" - at `$\2\1`", text)) != text:
        text = merged
    return text


def _is_required(field: typing.Any) -> bool:
    if is_attrs(type(field)) or not isinstance(field, dataclasses.Field):
        return type(field.default).__name__ == "_Nothing"
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_type(argument: object) -> bool:
    return isinstance(argument, type) or typing.get_origin(argument) is not None


def _blamed(fields: list[_Field], values: dict[str, object]) -> str:
    """The path of the field whose converter raised: an error of a converter seldom names it."""
    for field in fields:
        if callable(field.converter) and field.parameter in values:
            try:
                field.converter(values[field.parameter])
            except (TypeError, ValueError, ArithmeticError, AssertionError):
                return f" - at `$.{field.name}`"
    return ""


def _fields_taken(member: object, value: object) -> int:
    names = getattr(member, "__annotations__", {}) if isinstance(member, type) else {}
    return sum(name in names for name in value) if isinstance(value, dict) else 0
