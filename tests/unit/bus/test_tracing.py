"""Spans of a traced bus, as the SDK of OpenTelemetry sees them."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanContext, SpanKind, StatusCode

from tests.unit.bus.probes import GUARD_S, HandTimers
from tests.unit.bus.rigs import Rig, fails
from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.compat.backends import InMemoryQueueBackend
from unibus.bus.otel import spans as spans_module
from unibus.bus.otel.spans import Attempts
from unibus.bus.otel.tracing import instrument
from unibus.core.envelope.message import Message
from unibus.errors import (
    EntityNotFound,
    LockLost,
    QueueFull,
    RequestFailed,
    RequestTimeout,
    StoreUnavailable,
    UsageError,
)

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Seen(InMemorySpanExporter):
    """Every span that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self))
        self.tracer = self.provider.get_tracer("tests")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        with self._changed:
            self._changed.notify_all()
        return result

    def all(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The spans of a name, in the order of their ends; waits until there are `count`."""

        def found() -> list[ReadableSpan]:
            return [span for span in self.get_finished_spans() if span.name == name]

        with self._changed:
            arrived = self._changed.wait_for(lambda: len(found()) >= count, GUARD_S)
        assert arrived, f"no {count} of {name!r} among {self.names()}"
        assert len(found()) == count
        return found()

    def one(self, name: str) -> ReadableSpan:
        return self.all(name)[0]

    def names(self) -> list[str]:
        return [span.name for span in self.get_finished_spans()]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    same_trace = context_of(span).trace_id == context_of(parent).trace_id
    return same_trace and span.parent is not None and span.parent.span_id == context_of(parent).span_id


def links(span: ReadableSpan) -> dict[str, int]:
    """The ids of the linked spans, by their role."""
    return {str((link.attributes or {})["messaging.unibus.link"]): link.context.span_id for link in span.links}


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()}


def traced(rig: Rig, seen: Seen) -> Rig:
    instrument(rig.bus, seen.provider)
    return rig


# Publish and subscribe in memory


def test_a_publish_and_its_handling_are_one_trace(seen: Seen) -> None:
    got: list[Message] = []

    def handle(message: Message) -> None:
        with seen.tracer.start_as_current_span("inside"):
            got.append(message)

    with SyncMessageBus() as bus:
        assert instrument(bus, seen.provider) is bus
        bus.subscribe("orders", handle, group="desk")
        with seen.tracer.start_as_current_span("caller"):
            bus.publish("orders", b"abc", correlation_id="c-1")
    publish, process = seen.one("publish orders"), seen.one("process orders")
    assert is_child(publish, seen.one("caller"))
    assert is_child(process, publish)
    assert is_child(seen.one("inside"), process)
    assert (publish.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert links(process) == {"producer": id_of(publish)}
    shared = {
        "system": "unibus",
        "destination.name": "orders",
        "message.id": got[0].id,
        "message.conversation_id": "c-1",
        "message.body.size": 3,
    }
    assert attributes(publish) == {**shared, "operation.name": "publish", "operation.type": "send"}
    assert attributes(process) == {
        **shared,
        "operation.name": "process",
        "operation.type": "process",
        "consumer.group.name": "desk",
    }
    assert str(got[0].traceparent).startswith(f"00-{context_of(publish).trace_id:032x}-{id_of(publish):016x}-")


async def test_an_async_handler_runs_inside_of_its_span(seen: Seen) -> None:
    async def handle(body: dict[str, int], message: Message) -> None:
        await asyncio.sleep(0)
        with seen.tracer.start_as_current_span(f"inside {body['n']}"):
            await asyncio.sleep(0)

    async with instrument(MessageBus(), seen.provider) as bus:
        bus.subscribe("orders", handle, concurrency=2)
        for number in range(2):
            await bus.publish("orders", {"n": number}, fields={"subject": str(number)})
        await bus.drain()
        assert trace.get_current_span().get_span_context().is_valid is False
    publishes, processes = seen.all("publish orders", 2), seen.all("process orders", 2)
    for number in range(2):
        process = next(span for span in processes if is_child(seen.one(f"inside {number}"), span))
        assert any(is_child(process, publish) for publish in publishes)


@pytest.mark.parametrize("dispatch", ["pool", "inline"])
def test_every_group_has_a_span_of_its_own(dispatch: Any, seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.subscribe("orders", lambda message: None, group="a", dispatch=dispatch)
        bus.subscribe("ord", lambda message: None, match="prefix", group="b")
        bus.publish("orders", 1)
    publish = seen.one("publish orders")
    processes = seen.all("process orders", 2)
    assert all(is_child(process, publish) for process in processes)
    assert {attributes(process)["consumer.group.name"] for process in processes} == {"a", "b"}


def test_a_retry_points_at_the_attempt_before(seen: Seen) -> None:
    def fail_twice(message: Message) -> None:
        if message.delivery_count < 3:
            raise ValueError(f"attempt {message.delivery_count}")

    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.subscribe("orders", fail_twice, retry_attempts=2, retry_delay=0)
        bus.publish("orders", 1)
        bus.drain(GUARD_S)
    publish = seen.one("publish orders")
    first, second, third = seen.all("process orders", 3)
    assert [is_child(each, publish) for each in (first, second, third)] == [True] * 3
    assert links(first) == {"producer": id_of(publish)}
    assert links(second) == {"producer": id_of(publish), "earlier attempt": id_of(first)}
    assert links(third) == {"producer": id_of(publish), "earlier attempt": id_of(second)}
    assert [attributes(each).get("unibus.message.delivery_count") for each in (first, second, third)] == [None, 2, 3]
    assert (second.status.status_code, second.status.description) == (StatusCode.ERROR, "ValueError: attempt 2")
    assert attributes(second)["error.type"] == "ValueError"
    (event,) = second.events
    assert (event.name, (event.attributes or {})["exception.message"]) == ("exception", "attempt 2")
    assert third.status.status_code is StatusCode.UNSET


def test_a_refused_publish_is_an_error_and_leaves_no_trace_in_its_message(seen: Seen) -> None:
    message = Message.new("orders", 1).with_headers({"a": 1})
    properties = message.properties
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.create_channel("orders", max_queue_size=1)
        bus.publish("orders", 0)
        with pytest.raises(QueueFull) as refused:
            bus.publish(message)
        bus.pop("orders")
        assert refused.value.item is message
        assert message.properties is properties
        bus.publish(message)
    _, failed, again = seen.all("publish orders", 3)
    assert attributes(failed)["error.type"] == "unibus.errors.QueueFull"
    assert failed.status.status_code is StatusCode.ERROR
    assert message.traceparent is not None
    assert message.traceparent.split("-")[2] == f"{id_of(again):016x}"
    assert properties is not None
    assert properties.traceparent is None  # Copies of the message share it.


def test_many_are_one_span(seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.subscribe("orders", lambda message: None)
        bus.publish_many("orders", [1, 2, 3], headers={"a": 1})
    publish = seen.one("publish orders")
    assert attributes(publish)["batch.message_count"] == 3
    assert "message.id" not in attributes(publish)
    assert all(is_child(process, publish) for process in seen.all("process orders", 3))


async def test_many_are_one_span_for_a_loop_too(seen: Seen) -> None:
    async with instrument(MessageBus(), seen.provider) as bus:
        published = await bus.publish_many("orders", [1, 2])
        assert [message.body for message in published] == [1, 2]
        bus.create_channel("small", max_queue_size=1)
        with pytest.raises(QueueFull) as refused:
            await bus.publish_many("small", [1, 2])
        assert isinstance(refused.value.item, list)
    assert attributes(seen.one("publish orders"))["batch.message_count"] == 2
    assert attributes(seen.one("publish small"))["error.type"] == "unibus.errors.QueueFull"


async def test_a_publish_that_waits_for_room_ends_when_it_has_it(seen: Seen) -> None:
    async with instrument(MessageBus(), seen.provider) as bus:
        bus.create_channel("orders", max_queue_size=1, drop_policy="block")
        await bus.publish("orders", 1)
        waiting = asyncio.ensure_future(bus.publish("orders", 2))
        await asyncio.sleep(0)
        assert (waiting.done(), seen.names()) == (False, ["publish orders"])
        bus.pop("orders")
        assert (await waiting).body == 2
        assert seen.names() == ["publish orders"] * 2
        with pytest.raises(QueueFull):
            bus.publish_from_sync("orders", 3)  # An event loop must not block.
    assert seen.all("publish orders", 3)[2].status.status_code is StatusCode.ERROR


def test_a_thread_waits_for_room_inside_of_its_span(seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.create_channel("orders", max_queue_size=1, drop_policy="block", block_timeout=0.01)
        bus.publish("orders", 1)
        with pytest.raises(QueueFull):
            bus.publish("orders", 2)
    assert [span.status.status_code for span in seen.all("publish orders", 2)] == [StatusCode.UNSET, StatusCode.ERROR]


async def test_a_publish_that_cannot_wait_on_an_implicit_channel_is_an_error_span(seen: Seen) -> None:
    async with instrument(MessageBus(), seen.provider) as bus:
        bus.subscribe("orders", lambda message: None)
        assert await bus.stop()
        await bus.publish_many("orders", range(1_000))
        for publish in (bus.publish_from_sync, bus.publish):
            with pytest.raises(QueueFull):
                await asyncio.to_thread(publish, "orders", 1)
        with pytest.raises(QueueFull):
            await bus.publish("orders", 1)
    spans = seen.all("publish orders", 4)
    assert [span.status.status_code for span in spans] == [StatusCode.UNSET] + [StatusCode.ERROR] * 3


def test_publish_from_sync_is_traced(seen: Seen) -> None:
    bus = instrument(MessageBus(), seen.provider)
    message = bus.publish_from_sync("orders", 1)
    asyncio.run(bus.close())
    assert attributes(seen.one("publish orders"))["message.id"] == message.id


def test_a_context_that_a_message_has_is_kept(seen: Seen) -> None:
    got: list[Message] = []
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.subscribe("orders", got.append)
        bus.publish("orders", 1, fields={"traceparent": FOREIGN, "tracestate": "vendor=1"})
        with seen.tracer.start_as_current_span("caller"):
            bus.publish("orders", 2, fields={"traceparent": FOREIGN})
        bus.publish("orders", 3, fields={"traceparent": "rubbish"})
    first, second, third = seen.all("publish orders", 3)
    far = 0xB7AD6B7169203331
    assert [message.traceparent == FOREIGN for message in got] == [True, True, False]
    assert got[0].properties is not None
    assert got[0].properties.tracestate == "vendor=1"
    assert (first.kind, links(first), first.parent and first.parent.span_id) == (
        SpanKind.CLIENT,
        {"creation": far},
        far,
    )
    assert (second.kind, links(second)) == (SpanKind.CLIENT, {"creation": far})
    assert is_child(second, seen.one("caller"))
    assert third.kind is SpanKind.PRODUCER
    assert [process.parent and process.parent.span_id for process in seen.all("process orders", 3)] == [
        far,
        far,
        id_of(third),
    ]


# Existing handlers


@pytest.mark.parametrize(
    "handler",
    [
        lambda got: lambda message: got.append(message.body),
        lambda got: lambda: got.append(1),
        lambda got: _typed(got),
        lambda got: _both(got),
    ],
    ids=["message", "nothing", "body", "both"],
)
def test_handlers_subscribed_before_are_traced_too(handler: Callable[[list[int]], Any], seen: Seen) -> None:
    got: list[int] = []
    made = handler(got)
    with SyncMessageBus() as bus:
        bus.subscribe("orders", made)
        bus.publish("orders", 1)
        bus.drain()
        instrument(bus, seen.provider)
        bus.publish("orders", 1)
        bus.drain()
        assert bus.unsubscribe(made)
        bus.publish("orders", 1)
    assert (got, len(seen.all("process orders"))) == ([1, 1], 1)


def _typed(got: list[int]) -> Any:
    def handle(body: int) -> None:
        got.append(body)

    return handle


def _both(got: list[int]) -> Any:
    def handle(body: int, message: Message) -> None:
        got.append(body)

    return handle


async def test_a_parked_async_handler_is_traced_from_then_on(seen: Seen) -> None:
    got: list[int] = []

    async def handle(body: int) -> None:
        got.append(body)

    async with MessageBus() as bus:
        bus.subscribe("orders", handle)
        await bus.publish("orders", 1)
        await bus.drain()
        instrument(bus, seen.provider)
        await bus.publish("orders", 2)
        await bus.drain()
    assert (got, len(seen.all("process orders"))) == ([1, 2], 1)


def test_unsubscribing_a_traced_handler_needs_only_the_handler(seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:

        def handle(message: Message) -> None: ...

        bus.subscribe("orders", handle)
        assert not bus.unsubscribe(print)
        assert bus.unsubscribe(handle)


# Requests


def test_a_request_is_a_span_around_all_of_it(seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.subscribe("sum", lambda message: message.body + 1)
        with seen.tracer.start_as_current_span("caller"):
            assert bus.request("sum", 1) == 2
        assert trace.get_current_span().get_span_context().is_valid is False
    request = seen.one("request sum")
    assert (request.kind, request.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    assert is_child(request, seen.one("caller"))
    assert is_child(seen.one("publish sum"), request)
    assert is_child(seen.one("process sum"), seen.one("publish sum"))
    assert sorted(seen.names()) == ["caller", "process sum", "publish sum", "request sum"]  # The reply has none.


async def test_requests_side_by_side_keep_their_contexts(seen: Seen) -> None:
    async def slow(body: int) -> int:
        await asyncio.sleep(0)
        return body

    async with instrument(MessageBus(), seen.provider) as bus:
        bus.subscribe("sum", slow, concurrency=3)
        assert await asyncio.gather(*[bus.request("sum", number) for number in range(3)]) == [0, 1, 2]
    requests, publishes = seen.all("request sum", 3), seen.all("publish sum", 3)
    assert all(sum(is_child(publish, request) for publish in publishes) == 1 for request in requests)


def test_a_request_that_fails_says_why(seen: Seen) -> None:
    def refuse(message: Message) -> None:
        raise ValueError("no")

    gate = threading.Event()
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.subscribe("sum", refuse, retry_attempts=0)
        bus.subscribe("slow", lambda message: gate.wait(GUARD_S))
        with pytest.raises(RequestFailed):
            bus.request("sum", 1)
        with pytest.raises(RequestTimeout):
            bus.request("slow", 1, timeout=0.01)
        gate.set()
    assert attributes(seen.one("request sum"))["error.type"] == "MaxDeliveryCountExceeded"
    assert attributes(seen.one("request slow"))["error.type"] == "no_reply"


# Queues


def process(rig: Rig, message: Any, inside: Callable[[], None]) -> None:
    if isinstance(rig.bus, SyncMessageBus):
        with message:
            inside()
        return

    async def block() -> None:
        async with message:
            await asyncio.sleep(0)
            inside()

    rig.do(block)


def test_a_message_is_followed_through_the_store(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    result = rig.send("orders", b"abc", correlation_id="c-1")
    process(rig, rig.one("orders"), lambda: seen.tracer.start_span("inside").end())
    send, receive, handled, complete = (
        seen.one(name) for name in ("send orders", "receive orders", "process orders", "complete orders")
    )
    kinds = [span.kind for span in (send, receive, handled, complete)]
    assert kinds == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT]
    assert [attributes(span)["operation.type"] for span in (send, receive, handled, complete)] == [
        "send",
        "receive",
        "process",
        "settle",
    ]
    assert {attributes(span)["message.id"] for span in (send, receive, handled, complete)} == {result.id}
    assert {attributes(span)["message.conversation_id"] for span in (send, receive, handled, complete)} == {"c-1"}
    assert (attributes(send)["message.body.size"], attributes(send)["system"]) == (3, "unibus")
    assert (receive.parent, links(receive)) == (None, {"producer": id_of(send)})
    assert is_child(handled, send)
    assert links(handled) == {"producer": id_of(send), "receive": id_of(receive)}
    assert is_child(seen.one("inside"), handled)
    assert is_child(complete, handled)
    assert links(complete) == {"producer": id_of(send)}
    assert trace.get_current_span().get_span_context().is_valid is False


def test_a_redelivery_points_at_the_attempt_before(rig: Rig, seen: Seen) -> None:
    def refuse() -> None:
        raise ValueError("not yet")

    traced(rig, seen)
    rig.send("orders", 1)
    with fails(ValueError):
        process(rig, rig.one("orders"), refuse)
    process(rig, rig.one("orders"), lambda: None)
    first, second = seen.all("process orders", 2)
    assert attributes(first)["error.type"] == "ValueError"
    assert is_child(seen.one("abandon orders"), first)
    assert links(second)["earlier attempt"] == id_of(first)
    assert attributes(second)["unibus.message.delivery_count"] == 2
    assert [is_child(each, seen.one("send orders")) for each in (first, second)] == [True, True]


def test_an_explicit_settlement_belongs_to_the_caller(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    rig.send_many("orders", [1, 2, 3, 4, 5, 6])
    done, given_back, aside, dead, *rest = rig.take("orders", 6)
    rig.do(done.complete)
    rig.do(given_back.abandon)
    rig.do(aside.defer)
    rig.do(lambda: dead.dead_letter("Odd"))
    rig.complete_many(rest)
    (again,) = rig.receive_deferred("orders", [aside.sequence])
    rig.do(again.release)
    send, (receive, deferred) = seen.one("send orders"), seen.all("receive orders", 2)
    assert (attributes(send)["batch.message_count"], attributes(receive)["batch.message_count"]) == (6, 6)
    assert (len(receive.links), links(deferred)) == (6, {"producer": id_of(send)})
    for verb in ("abandon", "defer", "dead_letter", "release"):
        assert is_child(seen.one(f"{verb} orders"), send)
    single, many = seen.all("complete orders", 2)
    assert is_child(single, send)
    assert (attributes(many)["batch.message_count"], len(many.links)) == (2, 2)


def test_a_lost_lock_is_an_error_of_the_settlement(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    rig.send("orders", 1)
    message = rig.one("orders")
    rig.do(message.complete)
    with fails(LockLost):
        rig.do(message.complete)
    good, bad = seen.all("complete orders", 2)
    assert (good.status.status_code, attributes(bad)["error.type"]) == (StatusCode.UNSET, "unibus.errors.LockLost")


def test_nothing_received_is_no_span_and_a_failure_is_one(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    assert rig.take("orders") == []
    with fails(Exception):
        rig.take("unknown/Subscriptions/s")
    assert seen.names() == ["receive unknown/Subscriptions/s"]
    assert attributes(seen.one("receive unknown/Subscriptions/s"))["error.type"] == "unibus.errors.EntityNotFound"


def test_a_message_object_is_sent_with_a_context_and_stays_as_it_was(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    message = Message.new("orders", 1)
    rig.send(message)
    assert message.properties is None
    received = rig.one("orders").message
    assert received.traceparent is not None
    assert received.traceparent.split("-")[2] == f"{id_of(seen.one('send orders')):016x}"
    rig.send("orders", 2, traceparent=FOREIGN)
    assert rig.one("orders").message.traceparent == FOREIGN


def test_sends_that_are_refused_are_errors(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    with fails(UsageError):
        rig.send("orders", 1, colour="red")
    with fails(UsageError):
        rig.send_many("orders", "text")
    assert [attributes(span)["error.type"] for span in seen.all("send orders", 2)] == ["unibus.errors.UsageError"] * 2


def test_a_session_is_traced_like_a_queue(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    rig.create_queue("orders", requires_session=True)
    rig.send("orders", 1, session_id="s")
    session = rig.accept_session("orders", "s", 0)
    (message,) = rig.do(lambda: session.receive_batch(1, 0))
    rig.do(message.complete)
    rig.do(session.close)
    assert links(seen.one("receive orders")) == {"producer": id_of(seen.one("send orders"))}
    assert is_child(seen.one("complete orders"), seen.one("send orders"))


def test_scheduled_messages_are_sent(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)
    assert rig.schedule("orders", 1, 60) == 1
    assert seen.one("send orders").status.status_code is StatusCode.UNSET


def test_a_bus_in_memory_gets_traced_queues_with_its_first_send(seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:
        bus.send("orders", 1)
    assert seen.one("send orders").kind is SpanKind.PRODUCER


def test_a_transaction_sends_with_contexts(rig: Rig, seen: Seen) -> None:
    traced(rig, seen)

    def inside() -> Any:
        if isinstance(rig.bus, SyncMessageBus):
            with rig.bus.transaction():
                rig.bus.send("orders", 1)
                rig.bus.publish("news", 1)
            return None

        async def block() -> None:
            async with rig.bus.transaction():
                await rig.bus.send("orders", 1)
                await rig.bus.publish("news", 1)

        return block()

    rig.subscribe("news", lambda message: None)
    rig.do(inside)
    rig.drain()
    assert rig.one("orders").message.traceparent.split("-")[2] == f"{id_of(seen.one('send orders')):016x}"
    assert is_child(seen.one("process news"), seen.one("publish news"))


# Persistent channels


@pytest.mark.parametrize("before", [True, False], ids=["subscribed before", "subscribed after"])
def test_a_persistent_channel_is_traced_to_its_settlement(before: bool, rig: Rig, seen: Seen) -> None:
    rig.create_channel("orders", persistent=True)
    fails_once = [True]

    def handle(body: int, message: Message) -> None:
        with seen.tracer.start_as_current_span("inside"):
            if fails_once.pop() if fails_once else False:
                raise ValueError("not yet")

    if before:
        rig.subscribe("orders", handle, group="desk", retry_delay=0)
    traced(rig, seen)
    if not before:
        rig.subscribe("orders", handle, group="desk", retry_delay=0)
    rig.publish("orders", 1)
    entity = "orders/Subscriptions/desk"
    complete, abandon = seen.one(f"complete {entity}"), seen.one(f"abandon {entity}")
    publish, (first, second) = seen.one("publish orders"), seen.all("process orders", 2)
    assert [is_child(each, publish) for each in (first, second)] == [True, True]
    assert [is_child(*pair) for pair in zip(seen.all("inside", 2), (first, second), strict=True)] == [True, True]
    assert links(second)["earlier attempt"] == id_of(first)
    assert is_child(abandon, first)
    assert is_child(complete, second)
    assert attributes(first)["consumer.group.name"] == "desk"
    assert rig.unsubscribe(handle)


def test_persistent_publishes_are_traced_in_every_form(rig: Rig, seen: Seen) -> None:
    rig.create_channel("orders", persistent=True, max_queue_size=3)
    traced(rig, seen)
    rig.publish_many("orders", [1, 2])
    rig.publish_from_sync("orders", 3)
    with fails(QueueFull):
        rig.publish("orders", 4)
    publishes = [attributes(span) for span in seen.all("publish orders", 3)]
    assert sorted(each.get("batch.message_count", 1) for each in publishes) == [1, 1, 2]
    assert [each["error.type"] for each in publishes if "error.type" in each] == ["unibus.errors.QueueFull"]


# Turning it on


def test_a_bus_is_instrumented_once(seen: Seen) -> None:
    with instrument(SyncMessageBus(), seen.provider) as bus:
        with pytest.raises(UsageError, match="already traced"):
            instrument(bus)
        with pytest.raises(UsageError, match="or is traced"):
            bus.with_persistence("memory://")
        with pytest.raises(StoreUnavailable, match="cannot be persistent"):
            bus.create_channel("orders", persistent=True)


def test_only_a_bus_is_instrumented(seen: Seen) -> None:
    with pytest.raises(UsageError, match="not a str"):
        instrument("bus")  # type: ignore[type-var]
    bus = MessageBus(InMemoryQueueBackend())
    with pytest.raises(UsageError, match="with a backend"):
        instrument(bus)
    asyncio.run(bus.close())


def test_where_nothing_is_recorded_messages_carry_nothing() -> None:
    got: list[Message] = []
    with instrument(SyncMessageBus(), NoOpTracerProvider()) as bus:
        bus.subscribe("orders", got.append)
        bus.publish("orders", 1)
    assert got[0].properties is None


def test_only_so_many_attempts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "ATTEMPTS_MAX", 2)
    attempts = Attempts()
    context = SpanContext(1, 1, is_remote=False)
    for number in (1, 2, 1, 3):
        attempts.remember("q", str(number), context)
    assert [attempts.known("q", str(number)) is context for number in (1, 2, 3)] == [True, False, True]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.processes
def test_without_opentelemetry_the_error_names_the_extra() -> None:
    assert "pip install '.[otel]'" in run(
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import unibus.bus.otel.tracing as t, unibus.sync, unibus.errors as e\n"
        "with unibus.sync.MessageBus() as bus:\n"
        "    try: t.instrument(bus)\n"
        "    except e.ExtraMissing as error: print(error); assert isinstance(error, ImportError)\n"
    )


@pytest.mark.processes
def test_a_bus_that_is_not_traced_does_not_import_opentelemetry() -> None:
    code = "import sys, unibus; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    assert run(code) == "[]"


def test_retries_by_hand_are_one_trace(hand_timers: HandTimers, retry_bus: SyncMessageBus, seen: Seen) -> None:
    """Through the timers, where nothing of the first attempt is left but its envelope."""

    def fail_once(message: Message) -> None:
        if message.delivery_count == 1:
            raise ValueError("not yet")

    instrument(retry_bus, seen.provider).subscribe("orders", fail_once)
    retry_bus.publish("orders", 1)
    hand_timers.wait(1)
    hand_timers.fire()
    first, second = seen.all("process orders", 2)
    assert links(second)["earlier attempt"] == id_of(first)


async def test_the_operations_of_a_server_are_traced(seen: Seen) -> None:
    async with instrument(MessageBus(), seen.provider) as bus:
        broker = Broker(bus)
        await broker.create("queue", "q", {})
        await broker.send("q", broker.message("q", 1, {"message_id": "m"}))
        [claimed] = await broker.receive("q")
        assert await broker.receive("q") == []
        await broker.settle("complete", claimed.token)
        with pytest.raises(LockLost):
            await broker.settle("complete", claimed.token, entity="q")
        with pytest.raises(EntityNotFound):
            await broker.receive("nowhere")
    sent, received = seen.one("send q"), seen.one("receive q")
    assert sent.attributes is not None
    assert sent.attributes["messaging.message.id"] == "m"
    assert [link.context.span_id for link in received.links] == [sent.context.span_id]
    done, lost = seen.all("complete q", 2)
    assert [done.status.status_code, lost.status.status_code] == [StatusCode.UNSET, StatusCode.ERROR]
    assert seen.one("receive nowhere").status.status_code is StatusCode.ERROR
