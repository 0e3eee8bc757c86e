"""pydantic models, attrs classes, dataclasses and structs as bodies and as annotations, on every path of a message."""

import dataclasses
import enum
import functools
import sqlite3
import subprocess
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Optional
from uuid import UUID

import annotated_types
import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions

from tests.unit.bus.probes import GUARD_S
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.bodies.conversion import converter
from unibus.bus.cloudevents.events import from_cloudevent, from_cloudevent_binary, to_cloudevent, to_cloudevent_binary
from unibus.bus.execution.handlers import plan_for
from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.payload import Payload, SerializationFormat
from unibus.endpoints.bodies import wire_body
from unibus.errors import HandlerInvalid, PayloadMismatch, SerializationFailed


class Colour(enum.Enum):
    RED = "red"


class Line(pydantic.BaseModel):
    price: Decimal
    colour: Colour = Colour.RED


class Order(pydantic.BaseModel):
    id: int = pydantic.Field(alias="orderId")
    at: datetime
    key: UUID
    items: list[Line]
    wait: timedelta = timedelta(hours=1)
    tags: frozenset[str] = frozenset({"a"})
    late: int = pydantic.Field(1, validation_alias="lateBy")
    raw: pydantic.Json[list[int]] = [1]

    @pydantic.computed_field
    @property
    def total(self) -> Decimal:
        return sum((item.price for item in self.items), Decimal(0))


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
    at: datetime
    data: bytes
    colour: Colour = Colour.RED


@pydantic.dataclasses.dataclass
class Checked:
    id: int
    at: datetime


@attrs.define
class Part:
    name: str
    at: datetime
    price: Decimal = Decimal(1)


@attrs.define
class Assembly:
    _serial: int
    parts: list[Part]
    weight: float = attrs.field(converter=float, validator=attrs.validators.gt(0), default=1.0)
    seen: list[str] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.seen.append("made")


@attrs.define
class Tree:
    name: str = attrs.field(converter=str.upper)
    children: "list[Tree]" = attrs.field(factory=list)


class Titled(pydantic.BaseModel):
    name: str = pydantic.Field(serialization_alias="title")
    at: datetime


@dataclasses.dataclass
class Named:
    title: str
    at: datetime


@dataclasses.dataclass
class Address:
    street: str
    since: datetime
    _note: str = ""


@dataclasses.dataclass
class Customer:
    address: Address
    order: Order
    assembly: Assembly | None = None


@dataclasses.dataclass
class Invoice:
    id: int
    total: Decimal


@dataclasses.dataclass
class Refund:
    id: int
    total: Decimal
    why: str


class Event(msgspec.Struct):
    id: int
    at: datetime
    key: UUID


class Holder(msgspec.Struct):
    order: Order


class Shape(typing_extensions.TypedDict):
    line: Line


NOW = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
KEY = UUID(int=7)
ORDER = Order(orderId=1, at=NOW, key=KEY, items=[Line(price=Decimal("1.50"))], late=3)
BODIES = [
    ORDER,
    Strict(at=NOW, data=b"\xff\x00"),
    Checked(1, NOW),
    Part("a", NOW, Decimal("0.10")),
    Assembly(3, [Part("a", NOW)], 2.5),
    Tree("a", [Tree("b"), Tree("c")]),
    Address("x", NOW, "private"),
    Customer(Address("x", NOW), ORDER, Assembly(1, [])),
    Event(1, NOW, KEY),
]
IDS = [type(body).__name__ for body in BODIES]


def handler_of(annotation: object, seen: list[Any]) -> Callable[[Any], None]:
    def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    return handler


def convert(annotation: object, body: object) -> Any:
    convert = plan_for(handler_of(annotation, [])).convert
    assert convert is not None
    return convert(body)


def of(body: object) -> Message:
    return restored("id", "c", body, 0, None)


def problem(annotation: object, body: object) -> str:
    with pytest.raises(PayloadMismatch) as caught:
        convert(annotation, body)
    return caught.value.what.partition(": ")[2]


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[SyncMessageBus]:
    with SyncMessageBus(str(tmp_path / "bus.db")) as bus:
        yield bus


# Bodies


@pytest.mark.parametrize("body", BODIES, ids=IDS)
def test_in_memory_the_handler_gets_the_very_object(sync_bus: SyncMessageBus, body: object) -> None:
    seen: list[Any] = []
    sync_bus.subscribe("c", handler_of(type(body), seen), dispatch="inline")
    sync_bus.publish("c", body)
    assert seen[0] is body


@pytest.mark.parametrize("body", BODIES, ids=IDS)
def test_a_stored_body_becomes_an_equal_object(body: object) -> None:
    message = of(body)
    events = [to_cloudevent(message), to_cloudevent_binary(message)]
    assert isinstance(events[0], dict)
    assert isinstance(events[1], tuple)
    for read in (
        decode(encode(message)),
        decode_json(encode_json(message)),
        from_cloudevent(events[0]),
        from_cloudevent_binary(*events[1]),
    ):
        assert type(read.body) is dict
        assert convert(type(body), read.body) == body


def test_queues_and_persistent_channels_take_it(stored: SyncMessageBus) -> None:
    seen: list[Any] = []
    stored.create_queue("q")
    for body, name in zip(BODIES, IDS, strict=True):
        stored.create_channel(name, persistent=True)
        stored.subscribe(name, handler_of(type(body), seen), group="g")
        stored.publish(name, body)
        assert stored.drain(10)
    assert seen == BODIES
    stored.send_many("q", BODIES)
    _check_received(stored)


def test_an_outbox_takes_it(stored: SyncMessageBus, tmp_path: Path) -> None:
    stored.create_queue("q")
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        with stored.transaction(connection=connection):
            for body in BODIES:
                stored.send("q", body)
        stored.relay_outbox(str(tmp_path / "app.db"))
    _check_received(stored)


def _check_received(bus: SyncMessageBus) -> None:
    received = bus.receive_batch("q", len(BODIES), timeout=10)
    assert [message.body_as(type(body)) for message, body in zip(received, BODIES, strict=True)] == BODIES
    assert {type(message.body) for message in received} == {dict}
    bus.complete_many(received)


@pytest.mark.parametrize("body", BODIES, ids=IDS)
def test_over_http_it_is_json_that_becomes_an_equal_object(body: object) -> None:
    data, content_type = wire_body(decode(encode(of(body))).body, None)
    assert content_type == "application/json"
    assert convert(type(body), data) == body


async def test_requests_and_replies_may_be_models(async_bus: MessageBus) -> None:
    async def handler(line: Line) -> Order:
        return ORDER.model_copy(update={"items": [line]})

    async_bus.subscribe("c", handler)
    reply = await async_bus.request("c", {"price": "3"}, timeout=10)
    assert reply.items == [Line(price=Decimal(3))]


def test_what_pydantic_writes_is_plain_json_by_alias() -> None:
    body = decode(encode(of(ORDER))).body
    assert isinstance(body, dict)
    assert body["orderId"] == 1
    assert body["at"] == "2026-01-02T03:04:05.000006Z"
    assert body["items"] == [{"price": "1.50", "colour": "red"}]
    assert "total" not in body  # Computed again, and refused by a model that forbids unknown fields.
    assert b'"kind":"json"' in encode_json(of(ORDER))


def test_models_inside_of_other_values_are_written() -> None:
    line = {"price": "1", "colour": "red"}
    assert decode(encode(of([Line(price=Decimal(1))]))).body == [line]
    assert decode(encode(of({"a": (Line(price=Decimal(1)),)}))).body == {"a": (line,)}
    held = decode(encode(of(Holder(ORDER)))).body
    assert convert(dict[str, Order], held) == {"order": ORDER}
    assert Payload.json({"line": Line(price=Decimal(1))}).value == {"line": line}


def test_a_model_that_cannot_be_written_is_an_error_of_the_sender(stored: SyncMessageBus) -> None:
    class Loose(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        thing: object

    stored.create_queue("q")
    with pytest.raises(SerializationFailed, match="Loose"):
        stored.send("q", Loose(thing=object()))
    with pytest.raises(SerializationFailed):
        stored.send("q", Order)
    with pytest.raises(SerializationFailed):
        Payload.json(Loose(thing=object()))
    assert stored.receive_batch("q", 1, timeout=0) == []


# Annotations


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (Line, {"price": "1"}, Line(price=Decimal(1))),
        (Line, b'{"price": 1}', Line(price=Decimal(1))),
        (Line, Payload.serialized(SerializationFormat.JSON, b'{"price": 1}').value, Line(price=Decimal(1))),
        (
            Line,
            Payload.serialized(SerializationFormat.MESSAGE_PACK, msgspec.msgpack.encode({"price": 1})).value,
            Line(price=Decimal(1)),
        ),
        (list[Line], [{"price": 1}], [Line(price=Decimal(1))]),
        (Optional[Line], None, None),  # noqa: UP045 - the older form is another type
        (Line | None, {"price": 1}, Line(price=Decimal(1))),
        (Line | Checked, {"id": 1, "at": NOW}, Checked(1, NOW)),
        (Shape, {"line": {"price": 1}}, {"line": Line(price=Decimal(1))}),
        (Line | Part, {"name": "a", "at": NOW.isoformat()}, Part("a", NOW)),
        (Line | Part, {"price": 1}, Line(price=Decimal(1))),
        (list[Line | Event], [{"price": 1}, {"id": 1, "at": NOW, "key": KEY}], [Line(price=Decimal(1)), BODIES[8]]),
        (Annotated[int, pydantic.Field(gt=0)], 1, 1),
        (Annotated[int, msgspec.Meta(gt=0)], 1, 1),
        (Invoice | Refund, {"id": 1, "total": "2"}, Invoice(1, Decimal(2))),
        (Invoice | Refund, {"id": 1, "total": "2", "why": "x"}, Refund(1, Decimal(2), "x")),
        (Invoice | Refund | None, None, None),
        (list[Invoice | Refund], [{"id": 1, "total": "2"}], [Invoice(1, Decimal(2))]),
        (dict[str, Invoice | Part], {"x": {"name": "a", "at": NOW}}, {"x": Part("a", NOW)}),
        (Assembly, {"serial": 1, "parts": [], "weight": "2"}, Assembly(1, [], 2.0)),
        (list[Tree], b'[{"name": "a", "children": [{"name": "b"}]}]', [Tree("A", [Tree("B")])]),
        (Line, Part("a", NOW, Decimal(4)), Line(price=Decimal(4))),
        (Named, Titled(name="a", at=NOW), Named("a", NOW)),
        (dict, Line(price=Decimal(1)), {"price": "1", "colour": "red"}),
        (dict[str, str], Line(price=Decimal(1)), {"price": "1", "colour": "red"}),
        (Strict, {"at": NOW, "data": b"\x00"}, Strict(at=NOW, data=b"\x00")),
        (Strict, {"at": NOW.isoformat(), "data": "AA==", "colour": "red"}, Strict(at=NOW, data=b"\x00")),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_is_validated_and_converted(annotation: object, body: object, expected: object) -> None:
    assert convert(annotation, body) == expected


@pytest.mark.parametrize(
    ("annotation", "body", "text"),
    [
        (
            Order,
            {"orderId": 1, "at": NOW, "key": KEY, "items": [{"price": 1}, {"price": 2}, {"price": "x"}]},
            "Order.items[2].price: Input should be a valid decimal (got 'x')",
        ),
        (Line, {}, "Line.price: Field required"),
        (Line, b"{", "Line: Invalid JSON: EOF while parsing an object at line 1 column 1"),
        (Line, {"price": "y" * 200}, f"Line.price: Input should be a valid decimal (got '{'y' * 78}…)"),
        (Annotated[int, annotated_types.Gt(0)], -1, "constrained-int: Input should be greater than 0 (got -1)"),
        (Annotated[int, msgspec.Meta(gt=0)], -1, "Expected `int` >= 1"),
        (list[Part], [{"name": 1, "at": NOW}], "Expected `str`, got `int` - at `$[0].name`"),
        (Assembly, {"_serial": 1, "parts": [{"name": 1}]}, "Expected `str`, got `int` - at `$.parts[0].name`"),
        (Assembly, {"_serial": 1, "parts": [], "weight": 0}, "'weight' must be > 0: 0.0"),
        (
            Assembly,
            {"_serial": 1, "parts": [], "weight": "heavy"},
            "could not convert string to float: 'heavy' - at `$.weight`",
        ),
        (Assembly, {"parts": []}, "Object missing required field `_serial`"),
        (Assembly, 5, "Expected `object`, got `int`"),
        (list[Tree], [{"name": "a", "children": [{}]}], "Object missing required field `name` - at `$[0].children[0]`"),
        (
            list[Invoice | Refund],
            [{"id": "x"}],
            "not Invoice (Expected `int`, got `str` - at `$.id`); "
            "not Refund (Expected `int`, got `str` - at `$.id`) - at `$[0]`",
        ),
        (list[str], [1], "Expected `str`, got `int` - at `$[0]`"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_does_not_fit_names_the_field(annotation: object, body: object, text: str) -> None:
    assert problem(annotation, body) == text


def test_of_many_errors_the_first_three_are_shown() -> None:
    body = [{"price": "x"}] * 5
    assert problem(list[Line], body).count("Input should be") == 3
    assert problem(list[Line], body).endswith("; and 2 more")


def test_a_model_that_hides_its_input_is_obeyed() -> None:
    class Secret(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(hide_input_in_errors=True)
        pin: int

    assert "1234x" not in problem(list[Secret], [{"pin": "1234x"}])


class Login(pydantic.BaseModel):
    user: str
    pin: pydantic.SecretStr


def test_a_model_with_a_secret_shows_no_input() -> None:
    class Outer(pydantic.BaseModel):
        logins: list[Login]

    for annotation, body in ((Login, {"user": 7, "pin": 1234}), (Outer, {"logins": [{"user": "u", "pin": 1234}]})):
        with pytest.raises(PayloadMismatch, match="pin: Input should be a valid string") as raised:
            converter(annotation)(body)
        assert "1234" not in "".join(traceback.format_exception(raised.value))


class Renamed(pydantic.BaseModel):
    """Its validator changes the input, as many do that rename fields."""

    inner: dict[str, int]
    name: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def rename(cls, data: dict[str, Any]) -> dict[str, Any]:
        data["name"] = data.pop("title")
        data["inner"].pop("old")
        return data


def test_a_validator_that_changes_its_input_does_not_change_the_message(sync_bus: SyncMessageBus) -> None:
    typed: list[str] = []
    plain: list[object] = []

    def fail_once(body: Renamed) -> None:
        typed.append(body.name)
        if len(typed) == 1:
            raise ValueError("once")

    sync_bus.subscribe("c", fail_once, group="typed", retry_attempts=1, retry_delay=0)
    sync_bus.subscribe("c", lambda message: plain.append(message.body), group="plain")
    body = {"title": "a", "inner": {"old": 1}}
    sync_bus.publish("c", body)
    assert sync_bus.drain(GUARD_S)
    assert body == {"title": "a", "inner": {"old": 1}}
    assert plain == [body]
    assert typed == ["a", "a"]


def test_an_error_of_a_validator_without_a_text_is_a_mismatch() -> None:
    class Unprintable(ValueError):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @dataclasses.dataclass
    class Strict:
        a: int

        def __post_init__(self) -> None:
            raise Unprintable

    with pytest.raises(PayloadMismatch, match="expected Strict, the body is dict"):
        converter(Strict)({"a": 1})


@pytest.mark.parametrize("persistent", [False, True])
def test_it_is_a_dead_letter_at_once(stored: SyncMessageBus, persistent: bool) -> None:
    seen: list[Any] = []
    stored.create_channel("c", persistent=persistent)
    stored.subscribe("c", handler_of(Order, seen), group="g", retry_attempts=5)
    stored.publish("c", {"orderId": "one"})
    assert stored.drain(10)
    (dead,) = stored.dead_letters("c")
    assert dead.headers["DeadLetterReason"] == "PayloadMismatch"
    assert "Order.orderId: Input should be a valid integer" in str(dead.headers["DeadLetterErrorDescription"])
    assert dead.headers["DeadLetterAttempts"] == 1
    assert seen == []


def test_methods_partials_and_objects_are_typed_handlers(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    class Service:
        def method(self, line: Line) -> None:
            seen.append(line)

        def __call__(self, line: Line, message: Message) -> None:
            seen.append(line)

    def with_extra(extra: str, line: Line) -> None:
        seen.append(line)

    service = Service()
    for handler in (service.method, service, functools.partial(with_extra, "x")):
        sync_bus.subscribe("c", handler, dispatch="inline")
    sync_bus.publish("c", {"price": 1})
    assert seen == [Line(price=Decimal(1))] * 3


def test_the_validator_is_built_when_the_handler_is_subscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = plan_for(handler_of(list[Line], [])).convert
    assert convert is not None

    def refuse(*_: object) -> None:
        raise AssertionError("built for a message")

    monkeypatch.setattr(pydantic, "TypeAdapter", refuse)
    assert convert([{"price": 1}]) == [Line(price=Decimal(1))]


class Unfinished(pydantic.BaseModel):
    other: "Missing"  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Late:
    other: "Missing"  # type: ignore[name-defined]  # noqa: F821


class Opaque:
    pass


@pytest.mark.parametrize(
    "annotation",
    [list[Unfinished], list[Late], dict[str, "Unfound"], "Unfound", typing.ClassVar[int]],  # type: ignore[name-defined]  # noqa: F821
)
def test_an_annotation_that_no_body_can_have_is_refused(sync_bus: SyncMessageBus, annotation: object) -> None:
    with pytest.raises(HandlerInvalid) as caught:
        sync_bus.subscribe("c", handler_of(annotation, []))
    assert caught.value.hint


def test_a_class_that_cannot_be_converted_to_is_an_annotation_in_memory_only(stored: SyncMessageBus) -> None:
    stored.create_channel("memory", persistent=False)
    stored.create_channel("c", persistent=True)
    for body in (Late(1), Opaque()):
        seen: list[Any] = []
        subscription = stored.subscribe("memory", handler_of(type(body), seen), dispatch="inline", retry_attempts=0)
        stored.publish("memory", body)
        assert seen[0] is body
        stored.publish("memory", {"other": 1})
        assert stored.dead_letters("memory")[-1].headers["DeadLetterReason"] == "PayloadMismatch"
        subscription.cancel()
        with pytest.raises(HandlerInvalid, match=type(body).__name__):
            stored.subscribe("c", handler_of(type(body), []), group="g")


def test_receivers_ask_for_a_type(stored: SyncMessageBus) -> None:
    stored.create_queue("q")
    stored.send("q", {"price": "x"})
    (received,) = stored.receive_batch("q", 1, timeout=0)
    with received:
        with pytest.raises(PayloadMismatch, match=r"Line\.price"):
            received.body_as(Line)
        with pytest.raises(HandlerInvalid):
            received.body_as(Opaque)
        assert received.body_as(dict[str, str]) == {"price": "x"}
        constrained = Annotated[dict[str, str], pydantic.Field(max_length=3)]
        assert received.body_as(constrained) == {"price": "x"}  # type: ignore[arg-type]
        assert not received.settled


# Without the libraries

_PROGRAM = """
import sys
import traceback
import unibus, unibus.sync
names = ("pydantic", "pydantic_core", "annotated_types", "attr", "attrs")
print([name for name in names if name in sys.modules])
for name in names:
    sys.modules[name] = None  # Importing it raises ImportError.
from dataclasses import dataclass
from unibus import PayloadMismatch
from unibus.sync import MessageBus

@dataclass
class Order:
    id: int

@dataclass
class Refund:
    id: int
    why: str

with MessageBus("memory://") as bus:
    bus.create_queue("q")
    bus.send_many("q", [Refund(1, "x"), {"id": "x"}])
    first, second = bus.receive_batch("q", 2, timeout=0)
    print(first.body_as(Order | Refund))
    try:
        second.body_as(Order)
    except PayloadMismatch as error:
        print(error.what)
    bus.complete_many([first, second])
"""


@pytest.mark.processes
def test_without_pydantic_and_attrs() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (
        ["[]", "Refund(id=1, why='x')", "expected Order, the body is dict: Expected `int`, got `str` - at `$.id`"],
        "",
    )
