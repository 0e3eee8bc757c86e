"""The fields of a class, in one form for dataclasses, attrs classes, structs, TypedDicts and named tuples.

key        what a stored body calls the field: a struct may rename it
other      what else is accepted: attrs removes the underscore of a private attribute in its __init__
parameter  how the class is called with it
"""

import dataclasses
import typing

import msgspec

from unibus.bus.bodies.annotations import is_attrs, is_typeddict, unwrapped

_QUALIFIERS = tuple(getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly") if hasattr(typing, name))


class ClassField(typing.NamedTuple):
    key: str
    other: str
    parameter: str
    required: bool
    annotation: typing.Any
    converter: object = None  # of attrs: it takes whatever is given


def class_of(annotation: typing.Any) -> typing.Any:
    """The class of `Page[int]` or `Annotated[Page, …]`, or the annotation itself."""
    plain = unwrapped(annotation)
    return typing.get_origin(plain) or plain


def fields_of_class(annotation: typing.Any) -> list[ClassField]:
    """The fields that an instance is made from. Raises NameError if an annotation cannot be evaluated."""
    wanted = class_of(annotation)
    # Evaluated once for all kinds of classes, with inherited fields and with text annotations.
    hints = _hints(annotation, wanted)
    if is_typeddict(wanted):
        return [_key(wanted, name, hint) for name, hint in hints.items()]
    if issubclass(wanted, tuple):
        optional = wanted._field_defaults
        return [ClassField(name, name, name, name not in optional, hints[name]) for name in wanted._fields]
    if issubclass(wanted, msgspec.Struct):
        return [
            ClassField(field.encode_name, field.encode_name, field.name, field.required, hints[field.name])
            for field in msgspec.structs.fields(wanted)
        ]
    # `init` False: the class sets the field itself, so a body cannot give it.
    fields = wanted.__attrs_attrs__ if is_attrs(wanted) else dataclasses.fields(wanted)
    return [_attribute(field, hints.get(field.name, typing.Any)) for field in fields if field.init]


def accepted_keys(member: typing.Any) -> frozenset[str]:
    """Every key of a body that the class reads, also inherited ones; none for what is no class with fields."""
    wanted = class_of(member)
    if hasattr(wanted, "__pydantic_fields__"):
        return frozenset(
            key for name, field in wanted.__pydantic_fields__.items() for key in _pydantic_keys(name, field)
        )
    if not isinstance(wanted, type) or not has_own_fields(wanted):
        return frozenset()
    return frozenset(key for field in fields_of_class(member) for key in (field.key, field.other))


def has_own_fields(wanted: type) -> bool:
    return (
        dataclasses.is_dataclass(wanted)
        or is_attrs(wanted)
        or is_typeddict(wanted)
        or issubclass(wanted, msgspec.Struct)
        or (issubclass(wanted, tuple) and hasattr(wanted, "_fields"))
    )


def _hints(annotation: typing.Any, wanted: typing.Any) -> dict[str, typing.Any]:
    """The types of the fields, with the arguments of a generic class in the places of its type variables."""
    hints = typing.get_type_hints(wanted, include_extras=True)
    arguments = typing.get_args(unwrapped(annotation))
    # Not strict: a bare `Page` has parameters and no arguments.
    given = dict(zip(getattr(wanted, "__parameters__", ()), arguments, strict=False))
    return {name: _filled(hint, given) for name, hint in hints.items()} if given else hints


def _filled(hint: typing.Any, given: dict[object, typing.Any]) -> typing.Any:
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    # A class such as `list` without arguments has nothing to fill in.
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(given.get(parameter, parameter) for parameter in parameters)]


def _key(wanted: typing.Any, name: str, hint: typing.Any) -> ClassField:
    required = name in wanted.__required_keys__
    # In any order and nested: NotRequired[ReadOnly[int]].
    while typing.get_origin(hint) in _QUALIFIERS:
        origin, (hint,) = typing.get_origin(hint), typing.get_args(hint)
        required = {"Required": True, "NotRequired": False}.get(getattr(origin, "_name", ""), required)
    return ClassField(name, name, name, required, hint)


def _attribute(field: typing.Any, hint: typing.Any) -> ClassField:
    if isinstance(field, dataclasses.Field):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        return ClassField(field.name, field.name, field.name, required, hint)
    # By name: attrs is not imported here, as in every module of this package.
    required = type(field.default).__name__ == "_Nothing"
    # A stored body has the name of the attribute, the constructor of attrs its alias.
    return ClassField(field.name, field.alias, field.alias, required, hint, field.converter)


def _pydantic_keys(name: str, field: typing.Any) -> list[str]:
    aliases = [name, field.alias, field.validation_alias]
    aliases.extend(getattr(field.validation_alias, "choices", ()))  # AliasChoices
    aliases.extend([path[0] for alias in tuple(aliases) if (path := getattr(alias, "path", None))])  # AliasPath
    return [alias for alias in aliases if isinstance(alias, str)]
