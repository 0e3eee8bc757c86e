"""Dead-lettered messages of channels in memory: the reason, the target, and that none is lost."""

import gc
import threading

import msgspec
import pytest

from tests.unit.bus.probes import Collector, Flaky
from tests.unit.interrupts import interrupted
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.group import Group
from unibus.core.atomic import COMPILED
from unibus.core.envelope.message import Message
from unibus.errors import UsageError
from unibus.limits import CHANNEL_NAME_BYTES_MAX


def failing(message: Message) -> None:
    raise ValueError(f"cannot handle {message.body}")


def fail_on(bus: SyncMessageBus, channel: str, body: object = "x") -> None:
    subscription = bus.subscribe(channel, failing, retry_attempts=1, retry_delay=0)
    bus.publish(channel, body, trace_id="t", headers={"mine": 1})
    assert bus.drain(10)
    subscription.cancel()  # type: ignore[attr-defined]


def test_the_record_tells_reason_error_and_attempts(timed_bus: SyncMessageBus) -> None:
    fail_on(timed_bus, "c")
    (dead_message,) = timed_bus.dead_letters("c")
    headers = dead_message.headers
    assert dead_message.body == "x"
    assert dead_message.channel == "c/$DeadLetterQueue"
    assert headers["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert headers["DeadLetterErrorDescription"] == "cannot handle x"
    assert headers["DeadLetterErrorType"] == "ValueError"
    assert headers["DeadLetterAttempts"] == 2
    assert headers["DeadLetterSource"] == "c"
    assert str(headers["DeadLetterGroup"]).endswith("failing")
    assert headers["DeadLetterTimeNs"] == dead_message.timestamp_ns
    assert "cannot handle x" in str(headers["DeadLetterTraceback"])
    assert headers["mine"] == 1
    assert dead_message.trace_id == "t"


def test_looking_at_dead_letters_removes_nothing_and_pop_does(sync_bus: SyncMessageBus) -> None:
    fail_on(sync_bus, "c")
    assert len(sync_bus.dead_letters("c")) == 1
    assert len(sync_bus.dead_letters("c")) == 1
    assert sync_bus.queue_size("c/$DeadLetterQueue") == 1
    popped = sync_bus.pop("c/$DeadLetterQueue")
    assert popped is not None
    assert sync_bus.dead_letters("c") == []


@pytest.mark.skipif(COMPILED, reason="Ctrl-C is raised in plain Python only")
def test_an_interrupt_while_dead_letters_are_read_loses_none(sync_bus: SyncMessageBus) -> None:
    fail_on(sync_bus, "c", 1)
    fail_on(sync_bus, "c", 2)
    at = 1
    while interrupted(lambda: sync_bus.dead_letters("c"), at):
        gc.enable()  # A method that is cut short before its `try` has not done it.
        at += 1
        assert [message.body for message in sync_bus.dead_letters("c")] == [1, 2]
    assert at > 10


@pytest.mark.skipif(COMPILED, reason="Ctrl-C is raised in plain Python only")
def test_an_interrupt_while_a_group_takes_over_the_kept_messages_loses_none() -> None:
    at, is_cut = 0, True
    while is_cut:
        at += 1
        bodies = list(range(3))
        with SyncMessageBus() as bus:
            bus.create_channel("c")
            bus.publish_many("c", bodies)
            channel, group = bus._exchange.channels["c"], Group(1, "g", 0)
            is_cut = interrupted(lambda: channel.join(group, set(), True), at)  # noqa: B023
            gc.enable()
            assert {*(message.body for message in [*channel.kept.items(), *group.queue.items()])} == {*bodies}
            channel.kept.drain()
    assert at > 10


def test_a_named_channel_gets_them_instead(sync_bus: SyncMessageBus) -> None:
    # The configured channel is the target, and is created if it is missing.
    sync_bus.create_channel("c", dead_letter_channel="dlq")
    fail_on(sync_bus, "c")
    assert sync_bus.dead_letters("c") == []
    assert sync_bus.queue_size("dlq") == 1
    sync_bus.publish("dlq", "by hand")
    got = Collector()
    sync_bus.subscribe("dlq", got)
    assert got.wait(2) == ["x", "by hand"]


def test_a_dead_letter_channel_can_still_be_created_after_the_first_dead_letter(sync_bus: SyncMessageBus) -> None:
    # It had default settings until now, so create_channel does not change given ones.
    sync_bus.create_channel("c", dead_letter_channel="dlq")
    fail_on(sync_bus, "c")
    sync_bus.create_channel("dlq", max_queue_size=50)
    assert sync_bus.queue_size("dlq") == 1


def test_dead_letters_pass_every_bound(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("dlq", max_queue_size=1)
    sync_bus.create_channel("c", dead_letter_channel="dlq")
    for number in range(3):
        fail_on(sync_bus, "c", number)
    assert sync_bus.queue_size("dlq") == 3


def test_a_dead_letter_queue_that_drops_old_ones_keeps_the_latest(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("dlq", max_queue_size=2, drop_policy="drop_old")
    sync_bus.create_channel("c", dead_letter_channel="dlq")
    for number in range(4):
        fail_on(sync_bus, "c", number)
    assert [message.body for message in (sync_bus.pop("dlq"), sync_bus.pop("dlq")) if message] == [2, 3]


def test_dead_letters_wake_a_subscriber(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("c/$DeadLetterQueue", got)
    fail_on(sync_bus, "c")
    assert got.wait(1) == ["x"]


def test_no_message_circles(sync_bus: SyncMessageBus) -> None:
    # a -> b -> a: forwarded once, then into the sub-queue of where it failed, and from there nowhere.
    sync_bus.create_channel("a", dead_letter_channel="b")
    sync_bus.create_channel("b", dead_letter_channel="a")
    sync_bus.subscribe("a", failing, retry_attempts=0)
    sync_bus.subscribe("b", failing, retry_attempts=0)
    sync_bus.publish("a", "x")
    assert sync_bus.drain(10)
    (dead_message,) = sync_bus.dead_letters("b")
    assert dead_message.headers["DeadLetterSource"] == "b"
    sync_bus.subscribe("b/$DeadLetterQueue", failing, retry_attempts=0)
    assert sync_bus.drain(10)
    assert sync_bus.dead_letters("b") == []
    assert sum(channel.discarded for channel in sync_bus.snapshot().channels) == 1


def test_a_channel_that_names_itself_uses_its_sub_queue(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", dead_letter_channel="c")
    fail_on(sync_bus, "c")
    assert len(sync_bus.dead_letters("c")) == 1
    assert sync_bus.queue_size("c") == 0


def test_each_group_has_its_own_dead_letter(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", Flaky(failures=9), group="one", retry_attempts=0)
    sync_bus.subscribe("c", Flaky(failures=9), group="two", retry_attempts=0)
    ok = Flaky(failures=0)
    sync_bus.subscribe("c", ok, group="three")
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    assert sorted(str(dead_message.headers["DeadLetterGroup"]) for dead_message in sync_bus.dead_letters("c")) == [
        "one",
        "two",
    ]
    assert ok.seen == [("x", 1)]


def test_a_payload_that_does_not_fit_is_not_tried_again(sync_bus: SyncMessageBus) -> None:
    class Order(msgspec.Struct):
        number: int

    calls: list[Order] = []

    def handler(order: Order) -> None:
        calls.append(order)

    handler.__annotations__["order"] = Order
    sync_bus.subscribe("c", handler, retry_attempts=5, retry_delay=60)
    sync_bus.publish("c", {"number": "many"})
    assert sync_bus.drain(10)
    (dead_message,) = sync_bus.dead_letters("c")
    assert dead_message.headers["DeadLetterReason"] == "PayloadMismatch"
    assert dead_message.headers["DeadLetterAttempts"] == 1
    assert dead_message.body == {"number": "many"}
    assert calls == []


@pytest.mark.parametrize("length", [CHANNEL_NAME_BYTES_MAX, CHANNEL_NAME_BYTES_MAX - 1])
def test_a_channel_with_the_longest_name_loses_no_dead_letter(sync_bus: SyncMessageBus, length: int) -> None:
    # Its sub-queue's name is longer than a name may be.
    name = "n" * length
    fail_on(sync_bus, name)
    assert [dead_message.body for dead_message in sync_bus.dead_letters(name)] == ["x"]


def test_a_sub_queue_made_by_hand_in_another_case_loses_no_dead_letter(sync_bus: SyncMessageBus) -> None:
    # Two names must not differ in case only, so the message must go to the existing channel.
    sync_bus.create_channel("c/$deadletterqueue")
    fail_on(sync_bus, "c")
    assert sync_bus.queue_size("c/$deadletterqueue") == 1


def test_a_dead_letter_channel_in_another_case_loses_no_dead_letter(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("dlq")
    sync_bus.create_channel("c", dead_letter_channel="DLQ")
    fail_on(sync_bus, "c")
    assert sync_bus.queue_size("dlq") == 1


def test_an_error_that_cannot_be_printed_loses_no_message(sync_bus: SyncMessageBus) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    sync_bus.subscribe("c", Flaky(failures=1, error=Unprintable()), retry_attempts=0)
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    (dead_message,) = sync_bus.dead_letters("c")
    assert dead_message.headers["DeadLetterErrorType"] == "Unprintable"


def test_an_error_text_of_any_length_and_kind_is_kept_short(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", Flaky(failures=1, error=ValueError("\ud800" + "x" * 10_000)), retry_attempts=0)
    sync_bus.publish("c", "x")
    assert sync_bus.drain(10)
    (dead_message,) = sync_bus.dead_letters("c")
    text = str(dead_message.headers["DeadLetterErrorDescription"])
    assert len(text) <= 4096
    text.encode()


def test_strict_buses_have_dead_letters_too() -> None:
    with SyncMessageBus(strict=True) as bus:
        bus.create_channel("c", dead_letter_channel="dlq")
        bus.create_channel("d")
        fail_on(bus, "c")
        fail_on(bus, "d")
        assert bus.queue_size("dlq") == 1
        assert len(bus.dead_letters("d")) == 1


def test_a_dead_letter_is_no_publish_of_the_users(sync_bus: SyncMessageBus) -> None:
    # Every outcome of publish is counted once; dead-lettering has a counter of its own.
    fail_on(sync_bus, "c")
    assert sync_bus.metrics("c")["published"] == 1
    assert sync_bus.metrics()["published"] == 1
    assert sum(channel.dead_lettered for channel in sync_bus.snapshot().channels) == 1


def test_dead_letters_of_many_threads_are_all_there(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", failing, retry_attempts=0, concurrency=4)
    threads = [threading.Thread(target=lambda: sync_bus.publish_many("c", range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sync_bus.drain(10)
    assert len(sync_bus.dead_letters("c")) == 200


@pytest.mark.parametrize(("pattern", "match"), [("shop.#", "wildcard"), ("", "prefix"), ("shop", "prefix")])
def test_a_listener_by_pattern_does_not_take_dead_letters(sync_bus: SyncMessageBus, pattern: str, match: str) -> None:
    # An audit log that hears everything must not empty the dead-letter queues.
    heard: list[str] = []
    sync_bus.subscribe(pattern, lambda message: heard.append(message.channel), match=match)
    fail_on(sync_bus, "shop.orders")
    assert [dead_message.body for dead_message in sync_bus.dead_letters("shop.orders")] == ["x"]
    assert heard == ["shop.orders"]


def test_a_pattern_that_names_the_dead_letter_queues_gets_them(sync_bus: SyncMessageBus) -> None:
    heard: list[str] = []
    sync_bus.subscribe("shop.orders/$DeadLetterQueue", lambda message: heard.append(message.channel), match="prefix")
    fail_on(sync_bus, "shop.orders")
    assert sync_bus.drain(10)
    assert heard == ["shop.orders/$DeadLetterQueue"]


def test_without_a_channel_the_error_names_both_calls(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(UsageError) as error:
        sync_bus.dead_letters()
    assert str(error.value) == (
        "dead_letters() needs the name of a channel (write dead_letters('orders'); "
        "dead_letter_queue().list_messages() lists all of the store)"
    )
