"""Annotations that msgspec alone cannot convert to: attrs classes with converters, and unions of several classes.

msgspec fills the fields of an attrs class itself and does not run its converters, and it refuses a union of two
dataclasses. Each such part of an annotation, and each class with such a part in a field, is replaced by a placeholder
class; msgspec calls `Placeholders.read` for it, and the value is made by calling the user's class, or by the member of
the union that fits best.

    list[Order | Invoice] ──replaced──▶ list[Placeholder] ──msgspec──▶ Placeholder ──▶ Order(…) or Invoice(…)
"""

import functools
import operator
import typing
from collections.abc import Callable

import msgspec

from unibus.bus.bodies.annotations import is_attrs, is_hashable, is_typeddict, is_union, parts_of, shown
from unibus.bus.bodies.class_fields import ClassField, accepted_keys, class_of, fields_of_class, has_own_fields
from unibus.bus.bodies.descriptions import Described, cut, described
from unibus.bus.bodies.pydantic_types import is_pydantic_type, pydantic_reader
from unibus.core.codec.wire import tagged, untagged
from unibus.core.envelope.record_types import has_fields
from unibus.errors import HandlerInvalid

_MISSING = object()
_STANDARD = ("builtins", "datetime", "decimal", "uuid")
# What msgspec raises for a type that it cannot decode to. NotImplementedError: a default of attrs that takes self.
_UNSUPPORTED = (TypeError, ValueError, NameError, AttributeError, NotImplementedError)


class _AcceptsAll(type):
    """msgspec tests that the result of a hook is an instance of the placeholder: anything is."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class _Field(typing.NamedTuple):
    field: ClassField
    wanted: object  # The type with placeholders. None: a converter of the class takes whatever is given.


class _Choice(typing.NamedTuple):
    """A member of a union."""

    member: object
    wanted: object
    accepted: frozenset[str]


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
        # A class that contains itself is found here: its placeholder is registered before its fields are read.
        if is_hashable(annotation) and annotation in self._of:
            return self._of[annotation]
        if _is_for_pydantic(annotation):
            return self._placeholder(annotation, pydantic_reader(annotation).value)
        if needs_constructor(annotation):
            return self._class(annotation)
        arguments = typing.get_args(annotation)
        replaced = tuple(self.replaced(argument) if _is_type(argument) else argument for argument in arguments)
        if is_union(annotation):
            return self._union(annotation, arguments, replaced)
        if not arguments or all(map(operator.is_, arguments, replaced)):
            return annotation
        if typing.get_origin(annotation) is typing.Annotated:
            return typing.Annotated[(replaced[0], *annotation.__metadata__)]
        return typing.get_origin(annotation)[replaced if len(replaced) > 1 else replaced[0]]

    def _placeholder(self, key: object, read: Callable[[object], object]) -> type:
        # A new class for each: msgspec passes it to the hook, which finds the reader by it.
        placeholder = _AcceptsAll("Placeholder", (), {})
        if is_hashable(key):
            self._of[key] = placeholder
        self._read[placeholder] = read
        return placeholder

    # A class that is called to make its instances

    def _class(self, wanted: typing.Any) -> type:
        fields: list[_Field] = []
        placeholder = self._placeholder(wanted, functools.partial(self._made, class_of(wanted), fields))
        for field in fields_of_class(wanted):  # After that: the class may contain itself.
            fields.append(_Field(field, None if field.converter is not None else self.replaced(field.annotation)))
        return placeholder

    def _made(self, wanted: typing.Any, fields: list[_Field], value: object) -> object:
        # An instance is passed on as it is, not validated again. A TypedDict has no instances: isinstance would raise.
        if not is_typeddict(wanted) and isinstance(value, wanted):
            return value
        given = _given(wanted, [field for field, _ in fields], value)
        values: dict[str, object] = {}
        for field, kind in fields:
            # Its own default and not None: None is a value that a body may have.
            found = given.get(field.key, given.get(field.other, _MISSING))
            if found is not _MISSING:
                values[field.parameter] = found if kind is None else self._converted(found, field.key, kind)
            elif field.required:
                raise Described(f"Object missing required field `{field.key}`")
        try:
            return wanted(**values)
        except Exception as error:  # Of validators, converters and __post_init__, which may raise anything.
            raise Described(f"{described(error)}{_blamed(fields, values)}") from error

    def _converted(self, value: object, key: str, wanted: typing.Any) -> object:
        try:
            return msgspec.convert(value, wanted, dec_hook=self.read, from_attributes=True, str_keys=True)
        except Exception as error:
            raise Described(f"{described(error)} - at `$.{key}`") from error

    # A union that msgspec does not support

    def _union(self, annotation: object, members: tuple[object, ...], replaced: tuple[typing.Any, ...]) -> object:
        union = functools.reduce(operator.or_, replaced)
        # Kinds that msgspec can distinguish by their JSON type, such as `Order | None`: its own way is faster.
        if is_supported(union):
            return annotation if all(map(operator.is_, members, replaced)) else union
        # Here, when the handler is subscribed: a member that no body can be converted to is an error then.
        for member, wanted in zip(members, replaced, strict=True):
            check_supported(wanted, member)
        choices = [_Choice(*pair, accepted_keys(pair[0])) for pair in zip(members, replaced, strict=True)]
        return self._placeholder(annotation, functools.partial(self._best, choices))

    def _best(self, choices: list[_Choice], value: object) -> object:
        """The member that takes most fields of the value; of several the first one."""
        fitting: list[tuple[int, object]] = []
        problems: list[str] = []
        keys = _keys_of(value)
        for member, wanted, accepted in choices:
            # Exactly this class: an instance of a subclass may belong to another member.
            if isinstance(member, type) and type(value) is member:
                return value
            try:
                made = msgspec.convert(value, wanted, dec_hook=self.read, from_attributes=True, str_keys=True)
                # By the number of common keys: a class whose fields are all optional accepts every dict.
                fitting.append((len(keys & accepted), made))
            except Exception as error:
                problems.append(f"not {shown(member)} ({described(error)})")
        if not fitting:
            raise Described("; ".join(problems))
        # `max` returns the first of equals: the order of the annotation decides.
        return max(fitting, key=operator.itemgetter(0))[1]


def needs_constructor(annotation: object) -> bool:
    """Whether only the class itself can make a right instance: converters of attrs run nowhere else, private
    attributes have another name there, pydantic validates its models, and msgspec refuses some unions."""
    wanted = class_of(annotation)
    if typing.get_origin(annotation) is typing.Annotated or not (isinstance(wanted, type) and has_own_fields(wanted)):
        return False
    return any(
        _is_for_pydantic(part)
        or (is_attrs(part) and _has_own_ways(part))
        or (is_union(part) and not is_supported(part))
        for part in parts_of(annotation)
    )


def _has_own_ways(wanted: typing.Any) -> bool:
    return any(
        field.converter is not None or field.alias != field.name or getattr(field.default, "takes_self", False)
        for field in wanted.__attrs_attrs__
    )


def _is_for_pydantic(part: object) -> bool:
    """A model, or Annotated with a constraint of pydantic, which msgspec would ignore."""
    if typing.get_origin(part) is typing.Annotated:
        return any(map(is_pydantic_type, getattr(part, "__metadata__", ())))
    return isinstance(part, type) and is_pydantic_type(part)


def is_supported(wanted: object) -> bool:
    try:
        # msgspec checks a type only when a Decoder for it is made.
        msgspec.json.Decoder(wanted)
    except _UNSUPPORTED:
        return False
    return True


def check_supported(wanted: typing.Any, annotation: object) -> None:
    """Raises HandlerInvalid for a type that no body can be converted to."""
    try:
        msgspec.json.Decoder(wanted)
    except _UNSUPPORTED as error:
        raise HandlerInvalid(
            f"a body cannot be converted to {shown(annotation)}: {error!s:.300}",
            "use dataclasses, attrs, pydantic models, msgspec structs or builtins, defined at the top of a module",
        ) from error


def _is_type(argument: object) -> bool:
    return isinstance(argument, type) or typing.get_origin(argument) is not None


def _blamed(fields: list[_Field], values: dict[str, object]) -> str:
    """The path of the field whose converter raised: an error of a converter seldom names it. Only converters of the
    standard library are called again: one of the user may have effects, or convert nested values, and then each level
    would double the work."""
    for field, _ in fields:
        is_standard = getattr(field.converter, "__module__", None) in _STANDARD
        if is_standard and callable(field.converter) and field.parameter in values:
            try:
                field.converter(values[field.parameter])
            except (TypeError, ValueError, ArithmeticError):
                return f" - at `$.{field.key}`"
    return ""


def _given(wanted: typing.Any, fields: list[ClassField], value: object) -> dict[object, object]:
    """The value as {key: value of the field}. Raises Described for what cannot be read as the class."""
    given = _as_stored(value)
    config = wanted.__struct_config__ if issubclass(wanted, msgspec.Struct) else None
    if issubclass(wanted, tuple) or (config is not None and config.array_like):
        given = _by_position(config, fields, given)
    if not isinstance(given, dict):
        raise Described(f"Expected `object`, got `{type(value).__name__}`")
    if config is not None:
        _check_struct(config, fields, given)
    return given


def _by_position(config: typing.Any, fields: list[ClassField], given: object) -> dict[str, object]:
    if not isinstance(given, (list, tuple)):
        raise Described(f"Expected `array`, got `{type(given).__name__}`")
    keys = [field.key for field in fields]
    # A tagged struct has its tag as the first item.
    if config is not None and config.tag is not None:
        keys.insert(0, config.tag_field)
    if len(given) > len(keys) and (config is None or config.forbid_unknown_fields):
        raise Described(f"Expected `array` of at most length {len(keys)}, got {len(given)}")
    return dict(zip(keys, given, strict=False))


def _check_struct(config: typing.Any, fields: list[ClassField], given: dict[object, object]) -> None:
    """The rules of a struct that msgspec enforces where it makes the struct itself."""
    # A missing tag is accepted, as msgspec does for a single struct.
    tag = given.get(config.tag_field, config.tag)
    if config.tag is not None and tag != config.tag:
        raise Described(f"Invalid value {cut(repr(tag))} - at `$.{config.tag_field}`")
    unknown = given.keys() - {field.key for field in fields} - {config.tag_field}
    if config.forbid_unknown_fields and unknown:
        raise Described(f"Object contains unknown field `{cut(min(map(str, unknown)))}`")


def _as_stored(value: object) -> object:
    """An object with fields as the values that a store would return for it."""
    return untagged(tagged(value, True)) if has_fields(value) or isinstance(value, msgspec.Struct) else value


def _keys_of(value: object) -> frozenset[object]:
    stored = _as_stored(value)
    return frozenset(stored) if isinstance(stored, dict) else frozenset()
