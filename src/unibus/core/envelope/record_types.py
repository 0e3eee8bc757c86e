"""Objects with named fields: pydantic models, attrs classes and dataclasses, as the values that a store can write.

    pydantic    what pydantic writes as JSON: times and decimals as text, by alias, without computed fields
    attrs       {name of the attribute: value}, one step
    dataclass   {name of the field: value}, one step

The rule: what `fields_of` returns becomes an equal object again when it is validated with the class. pydantic and attrs
are recognised by what they leave on a class and never imported, so neither is a dependency. msgspec structs need no
code here: msgspec writes them itself.
"""

from collections.abc import Callable, Iterable
from typing import Final, cast

# Left on a class by pydantic, by attrs and by the standard library.
_PYDANTIC: Final = "__pydantic_serializer__"
_ATTRS: Final = "__attrs_attrs__"
_DATACLASS: Final = "__dataclass_fields__"


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


def _attrs_names(kind: type[object]) -> list[str]:
    return [str(getattr(field, "name")) for field in cast(Iterable[object], getattr(kind, _ATTRS))]  # noqa: B009


def _dataclass_names(kind: type[object]) -> list[str]:
    fields = cast(dict[str, object], getattr(kind, _DATACLASS))
    # ClassVar and InitVar are listed there, too, with a kind of their own: they are no fields.
    return [name for name, field in fields.items() if str(getattr(field, "_field_type")) == "_FIELD"]  # noqa: B009
