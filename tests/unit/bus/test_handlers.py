"""What a handler is called with: read from its signature, converted only when needed."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest

from tests.unit.bus.probes import GUARD_S
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Payload, SerializationFormat
from unibus.core.envelope.views import BusMessage
from unibus.errors import HandlerInvalid


class Order(msgspec.Struct):
    id: int
    total: float = 0.0


@dataclass
class Item:
    name: str
    count: int = 1


class Opaque:
    """A type that msgspec knows nothing about."""


def delivered(bus: SyncMessageBus, handler: Any, body: object) -> list[Message]:
    """Publish to the handler inline and give the dead letters."""
    bus.subscribe("c", handler, dispatch="inline", retry_attempts=0)
    bus.publish("c", body)
    return bus.dead_letters("c")


def test_a_parameter_without_annotation_gets_the_message(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []
    assert delivered(sync_bus, lambda anything: seen.append(anything), {"a": 1}) == []
    assert isinstance(seen[0], Message)


def test_the_annotation_message_gets_the_message(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    def handler(m: Message) -> None:
        seen.append(m)

    assert delivered(sync_bus, handler, {"a": 1}) == []
    assert isinstance(seen[0], Message)


def test_two_parameters_get_body_and_message(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    def handler(order: Order, message: Message) -> None:
        seen.extend([order, message])

    assert delivered(sync_bus, handler, {"id": 1}) == []
    assert seen[0] == Order(1)
    assert seen[1].body == {"id": 1}


def test_two_parameters_without_annotation_get_the_very_body(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []
    body = Opaque()
    assert delivered(sync_bus, lambda b, m: seen.extend([b, m]), body) == []
    assert seen[0] is body


def test_no_parameter_gets_nothing(sync_bus: SyncMessageBus) -> None:
    seen: list[int] = []
    assert delivered(sync_bus, lambda: seen.append(1), "x") == []
    assert seen == [1]


def test_open_parameters_get_the_message(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    def handler(*args: Any, **keywords: Any) -> None:
        seen.extend(args)
        assert not keywords

    assert delivered(sync_bus, handler, "x") == []
    assert len(seen) == 1
    assert isinstance(seen[0], Message)


def test_parameters_with_defaults_are_left_alone(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    def handler(order: Order, flag: bool = False, *, more: int = 3) -> None:
        seen.extend([order, flag, more])

    assert delivered(sync_bus, handler, Order(1)) == []
    assert seen == [Order(1), False, 3]


def test_builtins_methods_partials_classes_and_mocks_are_handlers(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []
    made: list[Any] = []

    class Reaction:
        def __init__(self, message: Message) -> None:
            made.append(message)

    def with_extra(extra: str, order: Order) -> None:
        seen.append((extra, order))

    mock = Mock(return_value=None)
    assert delivered(sync_bus, seen.append, Order(1)) == []
    sync_bus.subscribe("c", functools.partial(with_extra, "extra"), dispatch="inline")
    sync_bus.subscribe("c", Reaction, dispatch="inline")
    sync_bus.subscribe("c", mock, dispatch="inline")
    sync_bus.publish("c", Order(2))
    assert isinstance(seen[0], Message)
    assert ("extra", Order(2)) in seen
    assert isinstance(made[0], Message)
    mock.assert_called_once()


@pytest.mark.parametrize(
    ("annotation", "body"),
    [
        (Order, Order(1)),
        (Item, Item("a")),
        (dict, {"a": 1}),
        (list, [1]),
        (str, "text"),
        (bytes, b"raw"),
        (int, 5),
        (Opaque, Opaque()),
        (object, Opaque()),
        (Any, Opaque()),
        (Order | None, Order(1)),
        (Order | Item, Item("a")),
        (dict[str, int], {"a": 1}),
        (list[int], [1]),
    ],
    ids=str,
)
def test_a_body_that_has_the_type_already_is_not_copied(
    sync_bus: SyncMessageBus, annotation: Any, body: object
) -> None:
    # The very object that was published.
    seen: list[Any] = []

    def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    assert delivered(sync_bus, handler, body) == []
    assert seen[0] is body


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (Order, {"id": 1, "total": 2.5}, Order(1, 2.5)),
        (Order, b'{"id": 1}', Order(1)),
        (Order, Payload.serialized(SerializationFormat.JSON, b'{"id": 2}'), Order(2)),
        (Order, Payload.serialized(SerializationFormat.MESSAGE_PACK, msgspec.msgpack.encode({"id": 3})), Order(3)),
        (Item, {"name": "a", "count": 2}, Item("a", 2)),
        (dict, Order(1, 2.0), {"id": 1, "total": 2.0}),
        (dict, Item("a"), {"name": "a", "count": 1}),
        (dict[str, Any], Order(1, 2.0), {"id": 1, "total": 2.0}),
        (float, 1, 1.0),
        (list[Order], [{"id": 1}], [Order(1)]),
        (Order | None, None, None),
    ],
    ids=str,
)
def test_a_body_is_converted_to_the_annotated_type(
    sync_bus: SyncMessageBus, annotation: Any, body: object, expected: object
) -> None:
    seen: list[Any] = []

    def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    assert delivered(sync_bus, handler, body) == []
    assert seen == [expected]


@pytest.mark.parametrize(
    ("annotation", "body"),
    [
        (Order, {"id": "x"}),
        (Order, {}),
        (Order, None),
        (Order, b"not json"),
        (Order, b"\xff"),
        (Order, b"[" * 100_000),
        (Order, Payload.serialized(SerializationFormat.RKYV, b"x")),
        (Item, "text"),
        (int, "5"),
        (str, b"bytes"),
        (Opaque, {"a": 1}),
        (Opaque, b"{}"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_does_not_fit_is_a_dead_letter_with_its_reason(
    sync_bus: SyncMessageBus, annotation: Any, body: object
) -> None:
    seen: list[Any] = []

    def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    (letter,) = delivered(sync_bus, handler, body)
    assert letter.headers["DeadLetterReason"] == "PayloadMismatch"
    assert seen == []


def test_a_handler_that_needs_too_much_is_refused(sync_bus: SyncMessageBus) -> None:
    def three(a: int, b: int, c: int) -> None: ...

    def keyword(a: int, *, b: int) -> None: ...

    for handler in (three, keyword):
        with pytest.raises(HandlerInvalid) as caught:
            sync_bus.subscribe("c", handler)
        assert caught.value.hint
    assert sync_bus.channels() == []


def test_a_handler_whose_body_would_never_run_is_refused(sync_bus: SyncMessageBus) -> None:
    # Calling a generator function runs nothing: every message would count as handled and be lost.
    def generator(message: Message) -> Iterator[None]:
        yield

    async def async_generator(message: Message) -> AsyncIterator[None]:
        yield

    for handler in (generator, async_generator):
        with pytest.raises(HandlerInvalid):
            sync_bus.subscribe("c", handler)


def test_a_sync_handler_that_returns_a_coroutine_has_failed(sync_bus: SyncMessageBus) -> None:
    # It would never run; saying nothing would lose the message.
    async def work() -> None: ...

    (letter,) = delivered(sync_bus, lambda message: work(), "x")
    assert letter.headers["DeadLetterErrorType"] == "HandlerInvalid"


async def test_async_handlers_of_every_make(async_bus: MessageBus) -> None:
    seen: list[Any] = []

    class Service:
        async def __call__(self, order: Order) -> None:
            seen.append(("call", order))

        async def method(self, order: Order, message: Message) -> None:
            seen.append(("method", order))

    async def with_extra(extra: str, order: Order) -> None:
        seen.append((extra, order))

    service = Service()
    async_bus.subscribe("c", service)
    async_bus.subscribe("c", service.method)
    async_bus.subscribe("c", functools.partial(with_extra, "partial"))
    await async_bus.publish("c", {"id": 1})
    assert await async_bus.drain(GUARD_S)
    assert sorted(seen, key=str) == [("call", Order(1)), ("method", Order(1)), ("partial", Order(1))]


async def test_an_async_mock_is_an_async_handler(async_bus: MessageBus) -> None:
    # What people test their programs with.
    mock = AsyncMock(return_value=None)
    async_bus.subscribe("c", mock, retry_attempts=0)
    await async_bus.publish("c", 1)
    assert await async_bus.drain(GUARD_S)
    mock.assert_awaited_once()
    assert async_bus.dead_letters("c") == []


async def test_a_typed_async_handler_that_gets_the_wrong_payload(async_bus: MessageBus) -> None:
    async def handler(order: Order) -> None:
        raise AssertionError("not to be called")

    async_bus.subscribe("c", handler)
    await async_bus.publish("c", {"id": "x"})
    assert await async_bus.drain(GUARD_S)
    (letter,) = async_bus.dead_letters("c")
    assert letter.headers["DeadLetterReason"] == "PayloadMismatch"


def test_the_second_designs_view(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    def handler(message: BusMessage) -> None:
        seen.append(message)

    sync_bus.subscribe("c", handler, dispatch="inline", retry_attempts=0)
    sync_bus.publish("c", {"a": 1}, 7, correlation_id="x", fields={"tracing": {"t": "1"}, "metadata": {"m": 2}})
    assert sync_bus.dead_letters("c") == []
    (view,) = seen
    assert isinstance(view, BusMessage)
    assert (view.topic, view.priority, view.payload, view.correlation_id) == ("c", 7, {"a": 1}, "x")
    assert (dict(view.tracing), dict(view.metadata), view.delivery_attempts) == ({"t": "1"}, {"m": 2}, 1)
    assert view.backend_id is None


def test_handlers_of_a_subclass_of_the_bus_work() -> None:
    # Compiled classes allow it; people wrap publish.
    class Loud(SyncMessageBus):
        def publish(self, channel: object, payload: object = None, *rest: Any, **fields: Any) -> Message:
            return super().publish(channel, [payload], *rest, **fields)

    with Loud() as bus:
        seen = threading.Event()
        bodies: list[object] = []
        bus.subscribe("c", lambda message: (bodies.append(message.body), seen.set()))
        bus.publish("c", 1)
        assert seen.wait(GUARD_S)
        assert bodies == [[1]]


async def test_a_reply_of_an_async_handler_may_be_any_object(async_bus: MessageBus) -> None:
    thing = Opaque()

    async def handler(message: Message) -> object:
        await asyncio.sleep(0)
        return thing

    async_bus.subscribe("c", handler)
    assert await async_bus.request("c", timeout=GUARD_S) is thing


class Shape(TypedDict):
    a: int


class Quacks(Protocol):
    def quack(self) -> None: ...


@pytest.mark.parametrize("annotation", [dict[str, object], dict[str, Any], list[Any], dict[str, object] | None])
def test_a_container_of_anything_is_not_looked_into(sync_bus: SyncMessageBus, annotation: Any) -> None:
    # mypy asks for dict[str, object] where one means dict; the objects inside must stay what they are.
    body: object = [Opaque()] if "list" in str(annotation) else {"o": Opaque()}
    seen: list[object] = []

    def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    assert delivered(sync_bus, handler, body) == []
    assert seen[0] is body


def test_a_typed_dict_is_checked(sync_bus: SyncMessageBus) -> None:
    seen: list[object] = []

    def handler(value: Shape) -> None:
        seen.append(value)

    body = {"a": 1}
    assert delivered(sync_bus, handler, body) == []
    assert seen == [body]
    (letter,) = delivered(sync_bus, handler, {"a": "one"})
    assert letter.headers["DeadLetterReason"] == "PayloadMismatch"


def test_handlers_that_would_get_something_else_than_they_say_are_refused(sync_bus: SyncMessageBus) -> None:
    def swapped(message: Message, body: dict[str, object]) -> None: ...

    def second_is_no_message(body: object, message: int) -> None: ...

    def protocol(body: Quacks) -> None: ...

    async def late(message: Message) -> bool:
        return False

    for handler in (swapped, second_is_no_message, protocol):
        with pytest.raises(HandlerInvalid):
            sync_bus.subscribe("c", handler)
    with pytest.raises(HandlerInvalid):
        sync_bus.subscribe("c", print, filter=late)


class Shop:
    def bill(self, message: Message) -> None:
        return None


def test_default_groups_have_readable_names_and_are_one_for_each_handler() -> None:
    """No address of an object: it would be another one in each run, and in each line of the log."""

    def nested(message: Message) -> None:
        return None

    one, two = Shop(), Shop()
    with SyncMessageBus() as bus:
        handlers = [nested, nested, lambda message: None, lambda message: None, one.bill, one.bill, two.bill, [].append]
        groups = [bus.subscribe("c", handler).group for handler in handlers]
    around = f"{__name__}.test_default_groups_have_readable_names_and_are_one_for_each_handler"
    assert groups == [
        f"{around}.nested",
        f"{around}.nested",
        f"{around}.lambda",
        f"{around}.lambda#2",
        f"{__name__}.Shop.bill",
        f"{__name__}.Shop.bill",
        f"{__name__}.Shop.bill#2",
        "?.list.append",
    ]
