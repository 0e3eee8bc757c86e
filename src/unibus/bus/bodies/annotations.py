"""What an annotation consists of: unions, containers, the fields of classes, and the constraints of Annotated."""

import dataclasses
import types
import typing
from collections.abc import Iterator

import msgspec

UNIONS = (typing.Union, types.UnionType)

# For these msgspec accepts no equal value of another type: no 1.0 or True for an int, no 1 for a bool. It does accept
# an int for a float and a bytearray for bytes.
_ONLY_VALIDATED = (str, int, bool, types.NoneType, object, typing.Any)


def is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in UNIONS


def unwrapped(annotation: object) -> object:
    """The type inside of Annotated, or the annotation itself."""
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


def is_hashable(annotation: object) -> bool:
    """False for Annotated with constraints that cannot be hashed."""
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def is_attrs(part: object) -> bool:
    return isinstance(part, type) and hasattr(part, "__attrs_attrs__")


def is_typeddict(part: object) -> bool:
    """Also one of typing_extensions, which pydantic asks for before Python 3.12."""
    return typing.is_typeddict(part) or type(part).__name__ == "_TypedDictMeta"


def only_validates(annotation: object) -> bool:
    """Whether a conversion by msgspec whose result equals the body cannot have changed the type of anything in it.
    `==` alone does not prove it: 1 == 1.0, "red" == Colour.RED, and a tuple equals a named tuple."""
    if is_union(annotation) or typing.get_origin(annotation) in (dict, list):
        return all(map(only_validates, typing.get_args(annotation)))
    return annotation in _ONLY_VALIDATED or annotation in (dict, list)


def shown(annotation: object) -> str:
    """The annotation for people: `list[Order | None]`, without the names of modules."""
    arguments = typing.get_args(annotation)
    if annotation is types.NoneType:
        return "None"
    # The arguments of Literal are values and no types.
    if typing.get_origin(annotation) is typing.Literal or not arguments:
        return annotation.__name__ if isinstance(annotation, type) else str(annotation)
    if is_union(annotation):
        return " | ".join(map(shown, arguments))
    if typing.get_origin(annotation) is typing.Annotated:
        return shown(arguments[0])
    name = getattr(typing.get_origin(annotation), "__name__", str(annotation))
    return f"{name}[{', '.join('...' if part is Ellipsis else shown(part) for part in arguments)}]"


def parts_of(annotation: object) -> Iterator[object]:
    """The annotation and everything inside of it, each once: arguments, metadata of Annotated, types of fields.

    Raises NameError for a class whose annotations cannot be evaluated.
    """
    seen: set[int] = set()
    waiting = [annotation]
    kept: list[object] = []  # So that no id is used again while the walk goes on.
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            kept.append(part)
            yield part
            waiting.extend(_inside(part))


def _inside(part: object) -> list[object]:
    if typing.get_origin(part) is typing.Annotated:
        # With the metadata: constraints of pydantic are found there.
        return [*typing.get_args(part), *getattr(part, "__metadata__", ())]
    # Its arguments are values: an annotation is not searched in them.
    if typing.get_origin(part) is typing.Literal:
        return []
    origin = typing.get_origin(part)
    arguments = [argument for argument in typing.get_args(part) if argument is not Ellipsis]
    # With the fields evaluated: an annotation may be text, and NameError is reported by the caller.
    if _has_typed_fields(part):
        return list(typing.get_type_hints(part, include_extras=True).values())
    return [*arguments, origin] if _has_typed_fields(origin) else arguments


def _has_typed_fields(part: object) -> bool:
    if not isinstance(part, type):
        return False
    if hasattr(part, "__pydantic_fields__"):
        return False  # pydantic knows what is inside.
    return (
        dataclasses.is_dataclass(part)
        or is_attrs(part)
        or issubclass(part, msgspec.Struct)
        or is_typeddict(part)
        or (issubclass(part, tuple) and hasattr(part, "_fields"))
    )
