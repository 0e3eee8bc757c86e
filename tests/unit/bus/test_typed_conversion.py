"""What a typed body becomes: the exact types, nothing lost silently, and errors that show only a little of the body."""

import dataclasses
import enum
import logging
import typing
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
