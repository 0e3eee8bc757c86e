"""Objects with named fields: pydantic models, attrs classes, dataclasses and structs, as values that a store can write.

    pydantic    what pydantic writes as JSON: times and decimals as text, by alias, without computed fields
    attrs       {name of the attribute: value}, one step
    dataclass   {name of the field: value}, one step
    struct      {name that the struct gives the field: value}, one step, with its tag; a list if it is array_like

The rule: what `fields_of` returns becomes an equal object again when it is validated with the class. pydantic and attrs
are recognised by what they leave on a class and never imported, so neither is a dependency. One step at a time, because
msgspec omits the private attributes of an attrs class that it writes itself, inside of a struct.
"""

from collections.abc import Callable, Iterable
from typing import Final, cast

import msgspec

# Left on a class by pydantic, by attrs and by the standard library.
_PYDANTIC: Final = "__pydantic_serializer__"
_ATTRS: Final = "__attrs_attrs__"
_DATACLASS: Final = "__dataclass_fields__"

_EMPTY: Final = (list, set, dict)


def has_fields(value: object) -> bool:
    """Whether the value is an instance of such a class, and not the class itself."""
    kind = type(value)
    return hasattr(kind, _DATACLASS) or hasattr(kind, _PYDANTIC) or hasattr(kind, _ATTRS)


def is_pydantic(value: object) -> bool:
    return hasattr(type(value), _PYDANTIC)


def fields_of(value: object) -> object:
    """The fields of a value for which `has_fields` is true. Raises what pydantic raises for a value that it cannot
    write: a ValueError or a RuntimeError."""
    kind = type(value)
    serializer: object = getattr(kind, _PYDANTIC, None)
    if serializer is not None:
        dump = cast(Callable[..., object], getattr(serializer, "to_python"))  # noqa: B009 - `object` has no attribute
        # By alias and as a round trip, because these are the names and the values that the model accepts.
        return dump(value, mode="json", by_alias=True, round_trip=True)
    names = _attrs_names(kind) if hasattr(kind, _ATTRS) else _dataclass_names(kind)
    # A field without a value (init=False and never assigned) is omitted: reading it would raise.
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def struct_fields(value: object) -> object:
    """The fields of a msgspec struct, as msgspec itself would write them. Fields that are UNSET are omitted, and with
    omit_defaults those that have their default."""
    kind = type(value)
    config = cast(object, getattr(kind, "__struct_config__"))  # noqa: B009 - `object` has no attribute, here and below
    tag = cast(object, getattr(config, "tag"))  # noqa: B009
    values = [cast(object, getattr(value, name)) for name in _texts_of(kind, "__struct_fields__")]
    if getattr(config, "array_like"):  # noqa: B009
        return values if tag is None else [tag, *values]
    defaults: list[object] = []
    if getattr(config, "omit_defaults"):  # noqa: B009
        defaults = list(cast(Iterable[object], getattr(kind, "__struct_defaults__")))  # noqa: B009
    # Only the last fields have defaults.
    missing: list[object] = [msgspec.NODEFAULT for _ in range(len(values) - len(defaults))]
    written: dict[str, object] = {} if tag is None else {str(getattr(config, "tag_field")): tag}  # noqa: B009
    keys = _texts_of(kind, "__struct_encode_fields__")
    for key, item, default in zip(keys, values, missing + defaults, strict=True):
        if item is not msgspec.UNSET and not _is_default(item, default):
            written[key] = item
    return written


def _is_default(item: object, default: object) -> bool:
    """By the rule of msgspec: the very default, or an empty list, set or dict where that is the default."""
    factory = getattr(default, "factory", None)
    return item is default or (factory in _EMPTY and type(item) is factory and not item)


def _texts_of(kind: type[object], attribute: str) -> list[str]:
    return [str(each) for each in cast(Iterable[object], getattr(kind, attribute))]


def _attrs_names(kind: type[object]) -> list[str]:
    return [str(getattr(field, "name")) for field in cast(Iterable[object], getattr(kind, _ATTRS))]  # noqa: B009


def _dataclass_names(kind: type[object]) -> list[str]:
    fields = cast(dict[str, object], getattr(kind, _DATACLASS))
    # ClassVar and InitVar are listed there, too, with a kind of their own: they are no fields.
    return [name for name, field in fields.items() if str(getattr(field, "_field_type")) == "_FIELD"]  # noqa: B009
