"""Names of entities that newcomers write: the error names what was meant, and nothing is created."""

from collections.abc import Callable, Iterator

import pytest

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.queues.misspelt_queues import SENDS_COMPARED_MAX
from unibus.core import COMPILED
from unibus.errors import BusError, EntityNotFound, UsageError

Call = Callable[[SyncMessageBus], object]


@pytest.fixture
def bus() -> Iterator[SyncMessageBus]:
    with SyncMessageBus() as opened:
        opened.create_topic("events")
        opened.create_subscription("events", "high")
        opened.create_subscription("events", "low")
        opened.create_topic("empty")
        opened.create_queue("orders")
        yield opened


WRITE = "write 'events/Subscriptions/high': it is a subscription of a topic"


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda bus: bus.receive_batch("events/high", timeout=0), WRITE),
        (lambda bus: next(bus.receive("Events/HIGH", timeout=0)), WRITE),
        (lambda bus: bus.peek("events/high"), WRITE),
        (lambda bus: bus.update_entity("events/high", lock_duration=5), WRITE),
        (lambda bus: bus.delete_entity("events/high"), WRITE),
        (lambda bus: bus.accept_session("events/high", timeout=0), WRITE),
        (
            lambda bus: bus.receive_batch("events/Subscriptions/hihg", timeout=0),
            "did you mean 'events/Subscriptions/high'?",
        ),
        (
            lambda bus: bus.receive_batch("events/Subscriptions/other", timeout=0),
            "the subscriptions of 'events' are 'high', 'low'",
        ),
        (
            lambda bus: bus.receive_batch("empty/Subscriptions/x", timeout=0),
            "the topic 'empty' has no subscription: create it first",
        ),
        (
            lambda bus: bus.receive_batch("a/b", timeout=0),
            "create it first: create_queue or create_subscription",
        ),
        *[
            (
                lambda bus, name=name: bus.receive_batch(name, timeout=0),
                "write 'orders/$DeadLetterQueue': it is the dead-letter queue",
            )
            for name in ("orders/$deadletter", "orders/$DLQ", "orders/dead-letter", "orders/DeadLetterQueue")
        ],
        (
            lambda bus: bus.peek("events/Subscriptions/high/$deadletter"),
            "write 'events/Subscriptions/high/$DeadLetterQueue': it is the dead-letter queue",
        ),
        (
            lambda bus: bus.send("events/Subscriptions/hihg", 1),
            "send to the topic 'events': each of its subscriptions gets a copy that its rules match",
        ),
    ],
)
def test_a_missing_entity_names_what_was_meant(bus: SyncMessageBus, call: Call, hint: str) -> None:
    before = [info.name for info in bus.entities()]
    with pytest.raises(EntityNotFound) as error:
        call(bus)
    assert error.value.hint == hint
    assert [info.name for info in bus.entities()] == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda bus: bus.receive_batch("events", timeout=0),
            "messages cannot be received from 'events': it is a topic (receive from one of its subscriptions: "
            "'events/Subscriptions/high', 'events/Subscriptions/low')",
        ),
        (
            lambda bus: bus.receive_batch("empty", timeout=0),
            "messages cannot be received from 'empty': it is a topic (it has no subscription: "
            "create_subscription('empty', …) creates one)",
        ),
        (
            lambda bus: bus.send("events/Subscriptions/high", 1),
            "messages cannot be sent to 'events/Subscriptions/high' directly (send to the topic 'events': each of its "
            "subscriptions gets a copy that its rules match)",
        ),
    ],
)
def test_the_wrong_entity_names_the_right_one(bus: SyncMessageBus, call: Call, text: str) -> None:
    with pytest.raises(UsageError) as error:
        call(bus)
    assert str(error.value) == text


def test_a_topic_with_many_subscriptions_names_a_few(bus: SyncMessageBus) -> None:
    for number in range(7):
        bus.create_subscription("empty", f"s{number}")
    with pytest.raises(UsageError, match="'empty/Subscriptions/s4' and 2 more"):
        bus.receive_batch("empty", timeout=0)


def test_a_send_does_not_create_a_queue_beside_a_subscription(bus: SyncMessageBus) -> None:
    def refused(call: Call) -> BusError:
        with pytest.raises(EntityNotFound) as error:
            call(bus)
        return error.value

    text = (
        "there is no queue or topic 'events/high', but a subscription 'events/Subscriptions/high' (send to the topic "
        "'events': each of its subscriptions gets a copy that its rules match; a queue of that name has to be created "
        "first)"
    )
    assert str(refused(lambda bus: bus.send("events/high", 1))) == text
    assert str(refused(lambda bus: bus.send_many("events/high", [1, 2]))) == text
    bus.send("events/other", 1)  # No subscription has that name.
    bus.create_queue("events/high")
    bus.send("events/high", 1)
    [message] = bus.receive_batch("events/high", timeout=0, mode="receive_and_delete")
    bus.receive_batch("events/other", timeout=0, mode="receive_and_delete")
    assert message.body == 1


NEAR = "no message came from queue 'oders', which this receive created: did you mean 'orders'?"


def test_an_empty_receive_of_a_misspelt_queue_is_logged_once(
    bus: SyncMessageBus, caplog: pytest.LogCaptureFixture
) -> None:
    assert bus.receive_batch("oders", timeout=0) == []
    assert bus.receive_batch("oders", timeout=0) == []
    assert list(bus.receive("oders", timeout=0)) == []
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", NEAR)]


def test_the_right_queue_may_be_created_after_the_first_receive(caplog: pytest.LogCaptureFixture) -> None:
    with SyncMessageBus() as bus:
        bus.receive_batch("oders", timeout=0)
        assert caplog.records == []
        bus.send("orders", 1)
        bus.receive_batch("oders", timeout=0)
        bus.receive_batch("orders", timeout=0, mode="receive_and_delete")
    assert [each.getMessage() for each in caplog.records] == [NEAR]


async def test_the_async_bus_logs_it_too(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus() as bus:
        await bus.create_queue("orders")
        assert [each async for each in bus.receive("oders", timeout=0)] == []
        assert await bus.receive_batch("oders", timeout=0.001) == []
    assert [each.getMessage() for each in caplog.records] == [NEAR]


def test_other_empty_receives_log_nothing(bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    bus.receive_batch("orders", timeout=0)
    bus.receive_batch("invoices", timeout=0)  # No name is similar.
    bus.create_queue("order")
    bus.receive_batch("order", timeout=0)  # It was created on purpose.
    bus.send("ordres", 1)
    caplog.clear()  # The line of the send: see below.
    bus.receive_batch("ordres", timeout=0, mode="receive_and_delete")
    bus.receive_batch("ordres", timeout=0)
    assert caplog.records == []


SENT = "queue 'oders' is new, this send created it: did you mean 'orders'?"


def test_a_send_that_creates_a_queue_with_nearly_the_name_of_another_is_logged(
    bus: SyncMessageBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.send("oders", 1)
    bus.send("oders", 2)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", SENT)]
    bus.purge("oders")


def test_other_new_queues_of_sends_log_nothing(bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    created = ["invoices", "orders-eu", "orders-us", "customer-1", "customer-2", "customer-13", "payments"]
    for name in created:
        bus.send(name, 1)
    bus.send("orders", 1)
    bus.create_queue("order")
    bus.send("order", 1)  # It was created on purpose.
    assert caplog.records == []
    for name in [*created, "orders", "order"]:
        bus.purge(name)


def test_only_the_first_new_queues_of_a_bus_are_compared(caplog: pytest.LogCaptureFixture) -> None:
    with SyncMessageBus() as bus:
        for number in range(SENDS_COMPARED_MAX):
            bus.send(f"customer-{number}", 1)
        bus.send("customr-1", 1)
        assert caplog.records == []
        for info in bus.entities():
            bus.purge(info.name)


async def test_the_async_bus_logs_a_send_too(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus() as bus:
        await bus.create_queue("orders")
        await bus.send("oders", 1)
        await bus.purge("oders")
    assert [each.getMessage() for each in caplog.records] == [SENT]


PLAIN = pytest.mark.skipif(COMPILED, reason="compiled code refuses a value of another type before the method begins")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda bus: bus.send(5, 1), "a queue name is a str, not int"),
        (lambda bus: bus.send("", 1), "queue name '' must have 1 to"),
        pytest.param(lambda bus: bus.create_queue(5), "a name of a queue or topic is a str, not int", marks=PLAIN),
        pytest.param(lambda bus: bus.purge(None), "a queue name is a str, not NoneType", marks=PLAIN),
        (lambda bus: bus.publish(5, 1), "a channel name must be a str, not int"),
    ],
)
def test_the_error_of_a_name_says_what_it_names(bus: SyncMessageBus, call: Call, text: str) -> None:
    with pytest.raises(UsageError) as error:
        call(bus)
    assert str(error.value).startswith(text)
