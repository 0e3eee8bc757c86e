"""What a typed body becomes: the exact types, nothing lost silently, and errors that show only a little of the body."""

import dataclasses
import enum
import math
import typing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import attrs
import msgspec
import pydantic
import pytest

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.bodies.conversion import body_as, converter
from unibus.core.codec.codec import decode, encode
from unibus.core.envelope.message import restored
from unibus.core.envelope.payload import Payload
from unibus.errors import HandlerInvalid, PayloadMismatch


class Colour(str, enum.Enum):  # noqa: UP042 - such enums are what programs have
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Number(enum.Enum):
    ONE = 1


class Point(typing.NamedTuple):
    x: int
    y: int


class Priced(typing.TypedDict):
    price: float
    colour: Colour


def types_in(value: Any) -> list[type]:
    return [type(item) for item in (value.values() if isinstance(value, dict) else value)]


def from_store(body: object) -> object:
    return decode(encode(restored("id", "c", body, 0, None))).body


# Exact types


@pytest.mark.parametrize(
    ("annotation", "body", "types"),
    [
        (list[Colour], ["red"], [Colour]),
        (dict[str, Colour], {"a": "red"}, [Colour]),
        (set[Colour], {"red"}, [Colour]),
        (tuple[Colour, ...], ("red",), [Colour]),
        (list[Level], [1], [Level]),
        (list[Point], [(1, 2)], [Point]),
        (dict[str, Point], {"a": (1, 2)}, [Point]),
        (Priced, {"price": 1, "colour": "red"}, [float, Colour]),
        (list[float], [1, 2], [float, float]),
        (list[bytes], [bytearray(b"x")], [bytes]),
        (dict[str, Decimal], {"a": 1.5}, [Decimal]),
        (list[frozenset[int]], [{1}], [frozenset]),
        (list[pydantic.PositiveFloat], [1], [float]),
        (list[Annotated[bool, pydantic.Field()]], [1], [bool]),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_items_have_the_annotated_types(annotation: object, body: object, types: list[type], in_memory: bool) -> None:
    assert types_in(converter(annotation, in_memory)(body)) == types


@pytest.mark.parametrize(
    ("annotation", "body"), [(dict[str, str], {"a": "b"}), (list[str | None], ["a", None]), (dict[str, list[str]], {})]
)
def test_a_body_that_needs_no_conversion_is_not_copied(annotation: object, body: object) -> None:
    assert converter(annotation)(body) is body


def test_named_tuples_of_a_queue_are_restored() -> None:
    assert types_in(body_as(from_store([Point(1, 2)]), list[Point])) == [Point]


# Unions of several classes


@dataclasses.dataclass
class Base:
    a: int


@dataclasses.dataclass
class Child(Base):
    b: int = 2


@attrs.define
class AttrsBase:
    a: int


@attrs.define
class AttrsChild(AttrsBase):
    _b: int = 0


@attrs.define
class Converted:
    a: int = attrs.field(converter=int)


@attrs.define
class ConvertedChild(Converted):
    b: int = attrs.field(default=0, converter=int)


class StructBase(msgspec.Struct):
    a: int


class StructChild(StructBase, rename={"b": "B"}):
    b: int = 0


class ModelBase(pydantic.BaseModel):
    a: int


class ModelChild(ModelBase):
    b: int = pydantic.Field(0, alias="B")


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (Base | Child, {"a": 1, "b": 5}, Child(1, 5)),
        (Child | Base, {"a": 1}, Child(1, 2)),
        (Base | Child, {"a": 1}, Base(1)),
        (AttrsBase | AttrsChild, {"a": 1, "_b": 5}, AttrsChild(1, 5)),
        (AttrsBase | AttrsChild, {"a": 1, "b": 5}, AttrsChild(1, 5)),
        (Converted | ConvertedChild, {"a": "1", "b": "5"}, ConvertedChild(1, 5)),
        (StructBase | StructChild, {"a": 1, "B": 5}, StructChild(1, 5)),
        (Base | StructChild, {"a": 1, "B": 5}, StructChild(1, 5)),
        (Base | Converted | ModelChild, {"a": 1, "B": 5}, ModelChild(a=1, B=5)),
        (ModelBase | ModelChild, {"a": 1, "B": 5}, ModelChild(a=1, B=5)),
        (list[Base | Child], [{"a": 1, "b": 5}], [Child(1, 5)]),
        (list[Base | Child], [Child(1, 5)], [Child(1, 5)]),
        (list[AttrsBase | Child], [StructBase(1)], [AttrsBase(1)]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_union_takes_the_class_that_takes_most_fields_also_inherited_ones(
    annotation: object, body: object, expected: object
) -> None:
    assert converter(annotation)(body) == expected


# Classes that msgspec cannot make, anywhere inside of other classes


@attrs.define
class FromSelf:
    a: int
    b: list[int] = attrs.Factory(lambda self: [self.a], takes_self=True)


@attrs.define
class Private:
    a: int = attrs.field(converter=int)
    _p: int = 0


class HoldsInTuple(typing.NamedTuple):
    part: Private
    more: int = 0


class HoldsInDict(typing.TypedDict, total=False):
    part: typing.Required[Private]
    other: Base | Child


class HoldsInStruct(msgspec.Struct, tag="holds", rename="camel", forbid_unknown_fields=True):
    the_part: Private
    other: Base | Child | None = None


class HoldsInArray(msgspec.Struct, array_like=True, tag=True):
    part: Private


class OtherStruct(msgspec.Struct, tag="other", rename="camel"):
    the_part: Private


@dataclasses.dataclass
class HoldsUnion:
    x: Base | Child


T = typing.TypeVar("T")


@dataclasses.dataclass
class Page(typing.Generic[T]):
    item: T
    part: Private
    items: list[T] = dataclasses.field(default_factory=list)


class Limited(typing.TypedDict):
    count: Annotated[int, pydantic.Field(gt=0)]
    event: StructBase


PART = {"a": "5", "_p": 3}
MADE = Private(5, p=3)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (FromSelf, {"a": 1}, FromSelf(1, [1])),
        (list[FromSelf], [{"a": 1, "b": [2]}], [FromSelf(1, [2])]),
        (HoldsUnion, {"x": {"a": 1, "b": 3}}, HoldsUnion(Child(1, 3))),
        (HoldsInTuple, [PART], HoldsInTuple(MADE)),
        (list[HoldsInTuple], [(PART, 2)], [HoldsInTuple(MADE, 2)]),
        (HoldsInDict, {"part": PART, "other": {"a": 1, "b": 2}}, {"part": MADE, "other": Child(1, 2)}),
        (HoldsInDict, {"part": MADE}, {"part": MADE}),
        (HoldsInStruct, {"type": "holds", "thePart": PART}, HoldsInStruct(MADE)),
        (HoldsInStruct, b'{"thePart": {"a": 5, "p": 3}, "other": {"a": 1}}', HoldsInStruct(MADE, Base(1))),
        (HoldsInStruct | OtherStruct, {"type": "other", "thePart": PART}, OtherStruct(MADE)),
        (HoldsInArray, ["HoldsInArray", PART], HoldsInArray(MADE)),
        (Page[int], {"item": 1, "part": PART, "items": [2]}, Page(1, MADE, [2])),
        (Page[Base | Child], {"item": {"a": 1}, "part": PART}, Page(Base(1), MADE)),
        (Limited, {"count": 1, "event": {"a": 1}}, {"count": 1, "event": StructBase(1)}),
    ],
    ids=lambda value: str(value)[:50],
)
def test_converters_and_unions_work_inside_of_every_class(
    annotation: object, body: object, expected: object, in_memory: bool
) -> None:
    assert converter(annotation, in_memory)(body) == expected


@pytest.mark.parametrize(
    ("annotation", "body", "text"),
    [
        (HoldsInStruct, {"type": "x", "thePart": PART}, "Invalid value 'x' - at `$.type`"),
        (HoldsInStruct, {"thePart": PART, "z": 1}, "Object contains unknown field `z`"),
        (HoldsInStruct, {"thePart": {"a": 1, "_p": "x"}}, "Expected `int`, got `str` - at `$.thePart._p`"),
        (HoldsInTuple, [PART, 2, 3], "Expected `array` of at most length 2, got 3"),
        (HoldsInTuple, {"part": PART}, "Expected `array`, got `dict`"),
        (HoldsInDict, {}, "Object missing required field `part`"),
        (Page[int], {"item": "x", "part": PART}, "Expected `int`, got `str` - at `$.item`"),
        (Limited, {"count": 0, "event": {"a": 1}}, "constrained-int: Input should be greater than 0 (got 0)"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_does_not_fit_them_is_described(annotation: object, body: object, text: str) -> None:
    with pytest.raises(PayloadMismatch) as caught:
        converter(annotation)(body)
    assert text in caught.value.what


def test_such_a_class_can_be_subscribed_on_a_persistent_channel(tmp_path: Path) -> None:
    seen: list[Any] = []

    def handler(value: HoldsUnion) -> None:
        seen.append(value)

    with SyncMessageBus(str(tmp_path / "bus.db")) as bus:
        bus.create_channel("c", persistent=True)
        bus.subscribe("c", handler, group="g")
        bus.publish("c", HoldsUnion(Child(1, 5)))
        assert bus.drain(10)
    assert seen == [HoldsUnion(Child(1, 5))]


# Writing


class Written(msgspec.Struct, tag="w", rename="camel", omit_defaults=True):
    the_part: Private
    in_list: list[Any]
    count: int = 1
    notes: list[str] = []
    unset: int | msgspec.UnsetType = msgspec.UNSET


class WrittenAsArray(msgspec.Struct, array_like=True, tag=True):
    part: Private
    count: int = 1


def test_private_attributes_inside_of_a_struct_are_written() -> None:
    body = Written(MADE, [MADE, Base(1), Number.ONE, Point(1, 2)])
    part = {"a": 5, "_p": 3}
    assert from_store(body) == {"type": "w", "thePart": part, "inList": [part, {"a": 1}, 1, (1, 2)]}
    assert from_store(WrittenAsArray(MADE)) == ["WrittenAsArray", part, 1]
    assert body_as(from_store(Written(MADE, [], 2, ["x"])), Written) == Written(MADE, [], 2, ["x"])
    assert body_as(from_store(WrittenAsArray(MADE)), WrittenAsArray) == WrittenAsArray(MADE)


def test_private_attributes_are_written_as_json() -> None:
    part = {"a": 5, "_p": 3}
    assert Payload.json(MADE).value == part
    assert Payload.json({"x": [Written(MADE, [], 2)]}).value == {
        "x": [{"type": "w", "thePart": part, "inList": [], "count": 2}]
    }
    assert Payload.json([Decimal(1), {1: (Level.LOW, Number.ONE)}]).value == ["1", {"1": (1, 1)}]


# Enums in memory


class Numbered(typing.TypedDict):
    number: Number


@dataclasses.dataclass
class Counted:
    number: Number
    more: list[Number]


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (list[Number], [Number.ONE, 1], [Number.ONE, Number.ONE]),
        (dict[str, Number | None], {"a": Number.ONE, "b": None}, {"a": Number.ONE, "b": None}),
        (dict[Number, int], {Number.ONE: 1}, {Number.ONE: 1}),
        (Numbered, {"number": Number.ONE}, {"number": Number.ONE}),
        (Counted, {"number": Number.ONE, "more": [Number.ONE]}, Counted(Number.ONE, [Number.ONE])),
        (list[Counted | Base], [{"number": Number.ONE, "more": []}], [Counted(Number.ONE, [])]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_members_of_an_enum_are_accepted_like_their_values(
    annotation: object, body: object, expected: object, in_memory: bool
) -> None:
    assert converter(annotation, in_memory)(body) == expected


def test_an_enum_of_another_class_is_refused_with_the_first_error() -> None:
    with pytest.raises(PayloadMismatch, match="Expected `int`, got `object`"):
        converter(list[Number])([object()])


# Errors show only a little of the body

SECRET = "SECRET" + "abcdefghij" * 60


class TagA(msgspec.Struct, tag="a"):
    x: int


class TagB(msgspec.Struct, tag="b"):
    x: int


class Forbids(msgspec.Struct, forbid_unknown_fields=True):
    x: int = 1


@attrs.define
class In:
    x: str = attrs.field(validator=attrs.validators.in_(["a"]))


@attrs.define
class InConverted:
    x: str = attrs.field(validator=attrs.validators.in_(["a"]), converter=str)


@attrs.define
class Matches:
    x: str = attrs.field(validator=attrs.validators.matches_re("a"))


@dataclasses.dataclass
class RaisesValue:
    x: str

    def __post_init__(self) -> None:
        raise ValueError("not this: " + " ".join(self.x))


@dataclasses.dataclass
class RaisesKey:
    x: str

    def __post_init__(self) -> None:
        raise KeyError(self.x)


@attrs.define
class ConverterRaisesKey:
    x: str = attrs.field(converter=lambda value: {}[value])


class ModelRaisesValue(pydantic.BaseModel):
    x: str

    @pydantic.field_validator("x")
    @classmethod
    def check(cls, value: str) -> str:
        raise ValueError(f"bad {value}")


class ModelRaisesKey(pydantic.BaseModel):
    x: str

    @pydantic.field_validator("x")
    @classmethod
    def check(cls, value: str) -> str:
        raise KeyError(value)


class ModelForbids(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int = 1


@pytest.mark.parametrize(
    ("annotation", "body", "text"),
    [
        (Number, SECRET, "expected Number"),
        (list[Colour], [SECRET], "Invalid enum value 'SECRET"),
        (list[Colour], [SECRET], "- at `$[0]`"),
        (typing.Literal["a"], SECRET, "Invalid enum value 'SECRET"),
        (TagA | TagB, {"type": SECRET, "x": 1}, "- at `$.type`"),
        (Forbids, {SECRET: 1}, "Object contains unknown field `SECRET"),
        (HoldsInStruct, {SECRET: 1}, "Object contains unknown field `SECRET"),
        (HoldsInStruct, {"type": SECRET}, "- at `$.type`"),
        (list[Private], [{"a": SECRET}], "- at `$[0].a`"),
        (Private | Base, {"a": SECRET}, "not Base (Expected `int`, got `str` - at `$.a`)"),
        (In, {"x": SECRET}, "'x' must be in ['a'] (got 'SECRET"),
        (InConverted, {"x": SECRET}, "'x' must be in ['a'] (got 'SECRET"),
        (Matches, {"x": SECRET}, "'x' must match regex 'a' ('SECRET"),
        (RaisesValue, {"x": SECRET}, "expected RaisesValue, the body is dict: not this: S E C"),
        (list[RaisesValue], [{"x": SECRET}], "- at `$[0]`"),
        (RaisesKey, {"x": SECRET}, "expected RaisesKey, the body is dict: KeyError: SECRET"),
        (ConverterRaisesKey, {"x": SECRET}, "expected ConverterRaisesKey, the body is dict: KeyError: SECRET"),
        (ModelRaisesValue, {"x": SECRET}, "ModelRaisesValue.x: Value error, bad SECRET"),
        (ModelRaisesKey, {"x": SECRET}, "expected ModelRaisesKey, the body is dict: KeyError: SECRET"),
        (ModelForbids, {SECRET: 1}, "ModelForbids.SECRET"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_error_shows_only_a_little_of_the_body(
    sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture, annotation: object, body: object, text: str
) -> None:
    def handler(value: object) -> None: ...

    handler.__annotations__["value"] = annotation
    sync_bus.subscribe("c", handler, dispatch="inline", retry_attempts=3)
    sync_bus.publish("c", body)
    (dead,) = sync_bus.dead_letters("c")
    description = str(dead.headers["DeadLetterErrorDescription"])
    assert text in description
    assert dead.headers["DeadLetterReason"] == "PayloadMismatch"
    assert dead.headers["DeadLetterAttempts"] == 1
    for shown in (description, caplog.text):
        assert SECRET[:81] not in shown
        assert " ".join(SECRET[:120]) not in shown


def test_a_body_that_nests_too_deeply_for_its_class_does_not_fit() -> None:
    @attrs.define
    class Node:
        child: Any = attrs.field(default=None, converter=lambda value: value and make(value))

    make = converter(Node)
    body: dict[str, object] = {}
    for _ in range(3000):
        body = {"child": body}
    with pytest.raises(PayloadMismatch):
        make(body)


class StrictReading(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime
    value: float


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1.5])
def test_a_strict_model_with_a_number_that_json_does_not_have(value: float) -> None:
    """It is stored with a text for the time, which a strict model takes from JSON only."""
    stored = {"at": "2026-11-18T12:00:00Z", "value": value}
    read = converter(StrictReading)(stored)
    assert isinstance(read, StrictReading)
    assert read.value == value or math.isnan(value)


@pytest.mark.parametrize("annotation", [str | None, int | str, dict[str, int]])
@pytest.mark.parametrize("body", [b"hello", b"\xff", b""])
def test_bytes_that_are_no_json_say_how_they_are_read(annotation: object, body: bytes) -> None:
    with pytest.raises(PayloadMismatch) as error:
        converter(annotation)(body)
    assert error.value.hint == (
        "bytes are read as JSON here: send text as a str, or annotate bytes to get them as they are"
    )
    with pytest.raises(PayloadMismatch, match="send a body of that type"):
        converter(annotation)(b"[[]]")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_model_of_the_first_pydantic_is_refused_by_name() -> None:
    v1 = pytest.importorskip("pydantic.v1")
    order = type("Order", (v1.BaseModel,), {"__annotations__": {"id": int}, "__module__": __name__})
    for annotation in (order, list[order], order | None):  # type: ignore[valid-type, operator]
        with pytest.raises(HandlerInvalid, match=r"Order is a model of pydantic\.v1, which is not supported"):
            converter(annotation)
    made = order(id=1)
    assert converter(order, in_memory=True)(made) is made
