"""Converts a body to the type that a handler's annotation, or a receiver, asks for.

    annotation has pydantic types         pydantic validates                       pydantic_types.py
    any other                             msgspec converts, strictly               here
      … with converters of attrs, or      … and the classes themselves make        class_readers.py
      a union of several classes          their instances

    body                                  read as
    an instance of the annotated class    itself: the very object, not validated again
    bytes, or Serialized as JSON          JSON
    Serialized as msgpack                 its decoded value
    anything else                         the value; an object of another class by its fields

The converter is made once, when a handler is subscribed: what no body could ever be converted to is an error there, and
not at the first message. A body that does not fit raises PayloadMismatch, which names the field.
"""

import enum
import functools
import typing
from collections.abc import Callable, Hashable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec

from unibus.bus.bodies.annotations import is_typeddict, is_union, only_validates, parts_of, shown, unwrapped
from unibus.bus.bodies.class_readers import Placeholders, check_supported, needs_constructor
from unibus.bus.bodies.pydantic_types import (
    BodyReader,
    is_pydantic_type,
    pydantic_reader,
    refuse_first_version,
    uses_pydantic,
)
from unibus.core.codec.wire import tagged, untagged
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.core.envelope.record_types import has_fields, is_pydantic
from unibus.errors import HandlerInvalid, PayloadMismatch

Convert = Callable[[object], object]
T = typing.TypeVar("T")

_NO_JSON = "bytes are read as JSON here: send text as a str, or annotate bytes to get them as they are"

# What a decoded body can be (core/codec/wire.py).
_DECODED = (dict, list, tuple, set, frozenset, str, bytes, int, float, datetime, date, time, timedelta, UUID, Decimal)


def converter(annotation: object, in_memory: bool = False) -> Convert:
    """A function that converts a body to the type, or raises PayloadMismatch. Raises HandlerInvalid for a type that
    no body can be converted to. `in_memory`: bodies may be instances of any class, because they are passed on as they
    are; then only an annotation that also has no such class is refused."""
    # The classes whose instances are passed on as they are. In memory a body may be such an object itself.
    exact = _classes(annotation)
    try:
        reader = _reader_of(annotation)
        if not in_memory:
            _check_stored(annotation)
    except HandlerInvalid as error:
        # Instances of these classes can still arrive in memory; only every other body is refused, with this reason.
        if not (in_memory and exact):
            raise
        refuse = functools.partial(_refuse, error.what)
        reader = BodyReader(refuse, refuse, refuse)
    read, read_json, read_dict, describe, hides_input = reader

    # Decided once: a test with the class of a pydantic model takes as long as half of a validation.
    never = frozenset(kind for kind in (dict, bytes, list) if not issubclass(kind, exact))
    is_json = annotation is not str
    keeps_types = only_validates(annotation)

    def convert(body: object) -> object:
        kind = type(body)
        if kind not in never and isinstance(body, exact):
            return body
        try:
            if kind is dict:
                converted = read_dict(body)
            elif isinstance(body, bytes) and is_json:
                return read_json(body)
            elif kind is Serialized and is_json:
                return _decoded(body, read, read_json)
            else:
                converted = read(body)
            # If the conversion only validated the body (a dict as dict[str, int]), pass the original, not the copy.
            return body if keeps_types and type(converted) is kind and converted == body else converted
        # Not the fault of the body: a PayloadMismatch would dead-letter the message at once, without a retry.
        except MemoryError:
            raise
        except Exception as error:  # Validators, converters and __post_init__ may raise anything: no retry helps.
            raise PayloadMismatch(
                f"expected {shown(annotation)}, the body is {type(body).__name__}: {describe(error)}",
                _NO_JSON
                if is_json and _is_no_json(body, error)
                else "send a body of that type, or ask for another type",
            ) from (None if hides_input else error)

    return convert


def body_as(body: object, wanted: type[T]) -> T:
    """The body as that type. Raises PayloadMismatch if it does not fit, HandlerInvalid for a type that cannot be."""
    try:
        # Cached: a receiver calls this for each message, and making a converter takes much longer than using it.
        convert = _cached(typing.cast(Hashable, wanted))
    except TypeError:  # Constraints that cannot be hashed.
        convert = converter(wanted)
    return typing.cast(T, convert(body))


def _is_no_json(body: object, error: Exception) -> bool:
    """Whether bytes could not be read at all, as opposed to JSON that does not fit."""
    if not isinstance(body, bytes):
        return False
    is_malformed = isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError)
    return is_malformed or isinstance(error, UnicodeDecodeError)


def _refuse(why: str, body: object) -> object:
    raise TypeError(why)


def _check_stored(annotation: object) -> None:
    """Refuse a class of which a body that was stored can never be an instance."""
    if not isinstance(annotation, type) or is_pydantic_type(annotation) or issubclass(annotation, enum.Enum):
        return
    if needs_constructor(annotation):  # msgspec may not know it, but the class itself can make its instances.
        return
    # CustomType: msgspec knows nothing about the class, and would only check isinstance.
    custom = isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType)
    if custom and not any(issubclass(kind, annotation) for kind in _DECODED):
        raise HandlerInvalid(
            f"a body cannot be converted to {annotation.__name__}: it has no typed fields",
            "make it a dataclass, an attrs class, a pydantic model or a msgspec struct",
        )


# Bounded: it keeps the classes alive.
_cached = functools.lru_cache(256)(converter)


def _decoded(body: object, read: Convert, read_json: Convert) -> object:
    assert isinstance(body, Serialized)
    if body.format is SerializationFormat.JSON:
        return read_json(body.data)
    if body.format is SerializationFormat.MESSAGE_PACK:
        # Decoded to plain values first, so that one reader serves all formats.
        return read(msgspec.msgpack.decode(body.data))
    raise ValueError(f"data in the format {body.format.value} cannot be decoded")


def _reader_of(annotation: object) -> BodyReader:
    try:
        refuse_first_version(annotation)
        by_pydantic = uses_pydantic(annotation)
    except (NameError, TypeError, AttributeError) as error:
        raise HandlerInvalid(
            f"the annotations inside of {shown(annotation)} cannot be evaluated: {error}",
            "define the types at the top of a module, and not only under TYPE_CHECKING",
        ) from error
    if not by_pydantic:
        return _msgspec_reader(annotation)
    try:
        return pydantic_reader(annotation)
    except HandlerInvalid:
        # Beside types that pydantic does not know, attrs classes and structs, each part is read by its own library.
        placeholders = Placeholders()
        if placeholders.replaced(annotation) is annotation:
            raise
        return _msgspec_reader(annotation)


def _msgspec_reader(annotation: typing.Any) -> BodyReader:
    placeholders = Placeholders()
    wanted = placeholders.replaced(annotation)
    check_supported(wanted, annotation)
    # Without placeholders msgspec runs without calling back into Python.
    hook = None if wanted is annotation else placeholders.read
    wants_dict = unwrapped(annotation) is dict or typing.get_origin(unwrapped(annotation)) is dict

    # Decided once: the second attempt below is for annotations with such an enum only.
    has_enums = any(map(_is_plain_enum, parts_of(annotation)))

    def value(body: object) -> object:
        if is_pydantic(body) or (wants_dict and (has_fields(body) or isinstance(body, msgspec.Struct))):
            body = untagged(tagged(body, True))  # As it would be received from a store.
        try:
            return msgspec.convert(body, wanted, from_attributes=True, dec_hook=hook)
        except msgspec.ValidationError as error:
            if not has_enums:
                raise
            return by_values(body, error)

    def by_values(body: object, first: Exception) -> object:
        # msgspec takes the value of a plain enum, not its member, which a body in memory may have.
        try:
            return msgspec.convert(untagged(tagged(body, True)), wanted, dec_hook=hook)
        except Exception:
            # The error of the body as it was given: that of the second attempt would describe values that the user
            # never wrote.
            raise first from None

    def json(data: bytes) -> object:
        return msgspec.json.decode(data, type=wanted, dec_hook=hook)

    return BodyReader(value, json, value)


def _is_plain_enum(part: object) -> bool:
    return isinstance(part, type) and issubclass(part, enum.Enum) and not issubclass(part, (str, int))


def _classes(annotation: object) -> tuple[type, ...]:
    """The classes whose instances need no conversion: a class itself, or the classes of a union."""
    parts = typing.get_args(annotation) if is_union(annotation) else (annotation,)
    found = [_instances_of(part) for part in parts]
    return tuple(part for part in found if part is not None)


def _instances_of(part: object) -> type | None:
    """The class whose instances need no validation; None if each body has to be validated."""
    origin = typing.get_origin(part)
    if isinstance(origin, type) and all(argument in (object, typing.Any) for argument in typing.get_args(part)[1:]):
        # dict[str, object] and list[Any] restrict no item, so isinstance is enough.
        first = typing.get_args(part)[0]
        is_open = first in (object, typing.Any) or (first is str and origin is dict)
        return origin if is_open and origin in (dict, list, set) else None
    if not isinstance(part, type) or origin is not None or is_typeddict(part):
        return None
    if getattr(part, "_is_protocol", False) and not getattr(part, "_is_runtime_protocol", False):
        raise HandlerInvalid(
            f"the Protocol {part.__name__} cannot be checked at run time", "mark it @runtime_checkable, or use a class"
        )
    return part
