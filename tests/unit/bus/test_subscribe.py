"""Subscribing in every form, cancelling, filters, patterns, lossy subscribers."""

import random
import threading
from typing import Any

import pytest

from tests.unit.bus.probes import Collector, Gate, within
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.subscription import Subscription
from unibus.core.envelope.message import Message
from unibus.core.topics.pattern import Pattern
from unibus.errors import ConfigInvalid


class Owner:
    def __init__(self) -> None:
        self.got = Collector()

    def handle(self, message: Message) -> None:
        self.got(message)


def test_plain_call_gives_a_subscription(sync_bus: SyncMessageBus) -> None:
    subscription = sync_bus.subscribe("c", Collector())
    assert isinstance(subscription, Subscription)
    assert subscription.active
    assert subscription.channel == "c"
    assert "active" in repr(subscription)


async def test_an_awaited_call_gives_the_subscription(async_bus: MessageBus) -> None:
    got = Collector()
    subscription = await async_bus.subscribe("c", got)  # type: ignore[misc]
    assert isinstance(subscription, Subscription)
    await async_bus.publish("c", 1)
    got.wait(1)


def test_a_decorator_gives_the_handler_back_unchanged(sync_bus: SyncMessageBus) -> None:
    got = Collector()

    def handler(message: Message) -> None:
        got(message)

    assert sync_bus.subscribe("c", retry_attempts=0)(handler) is handler  # type: ignore[operator]
    sync_bus.publish("c", 1)
    assert got.wait(1) == [1]


def test_the_second_designs_positional_form(sync_bus: SyncMessageBus) -> None:
    # Subscribe(topic, handler, retry_attempts, retry_delay, concurrency); whole numbers are fine as delay.
    got = Collector()
    sync_bus.subscribe("c", got, 2, 0, 3)
    sync_bus.publish("c", 1)
    assert got.wait(1) == [1]


def test_the_first_designs_form_with_a_module_name(sync_bus: SyncMessageBus) -> None:
    # Both modules get the message although the callback is the same.
    got = Collector()
    one = sync_bus.subscribe("c", "module_a", got)
    two = sync_bus.subscribe("c", "module_b", got)
    assert isinstance(one, Subscription)
    assert isinstance(two, Subscription)
    assert one.id != two.id
    assert "module_a" in one.group
    sync_bus.publish("c", 1)
    assert got.wait(2) == [1, 1]


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"callback": print}, "handler"),
        ({"module_name": "billing", "callback": print}, "handler"),
        ({"concurency": 4}, "concurrency"),
        ({"retry_atempts": 1}, "retry_attempts"),
        ({"dispach": "inline"}, "dispatch"),
        ({"retries": 3}, "retry_attempts"),
        ({"max_retries": 3}, "retry_attempts"),
        ({"workers": 4}, "concurrency"),
        ({"consumer_group": "g"}, "group"),
        ({"pattern": True}, "match"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_in_every_form(
    sync_bus: SyncMessageBus, options: dict[str, Any], meant: str
) -> None:
    forms: list[tuple[Any, ...]] = [("c",), ("c", Collector()), ("c", "module", Collector())]
    for form in forms:
        with pytest.raises(ConfigInvalid) as caught:
            sync_bus.subscribe(*form, **options)
        assert f"did you mean {meant!r}?" in caught.value.hint
    assert sync_bus._runtime.subscriptions.all() == []


@pytest.mark.parametrize("concurrency", [0, -1, True, False, 1.5, "2", None])
def test_a_concurrency_that_is_no_whole_number_from_1_is_refused_in_every_form(
    sync_bus: SyncMessageBus, concurrency: Any
) -> None:
    forms: list[tuple[Any, ...]] = [("c",), ("c", Collector()), ("c", "module", Collector())]
    for form in forms:
        with pytest.raises(ConfigInvalid):
            sync_bus.subscribe(*form, concurrency=concurrency)


def test_the_first_designs_form_takes_the_other_options_too(sync_bus: SyncMessageBus) -> None:
    subscription: Any = sync_bus.subscribe("c", "module", Collector(), retry_delay=7.0, concurrency=3)  # type: ignore[call-overload]
    assert subscription.consumer.concurrency == 3
    assert subscription.consumer.retry.delay_ns(1, 0.5) == 7_000_000_000


def test_ids_grow_over_the_whole_process(sync_bus: SyncMessageBus) -> None:
    with SyncMessageBus() as other:
        ids = [bus.subscribe("c", Collector()).id for bus in (sync_bus, other, sync_bus)]  # type: ignore[attr-defined]
    assert ids == sorted(set(ids))
    assert ids[0] >= 1


def test_unsubscribe_by_the_returned_id_stops_delivery(sync_bus: SyncMessageBus) -> None:
    got, witness = Collector(), Collector()
    subscription = sync_bus.subscribe("c", got)
    sync_bus.subscribe("c", witness)
    sync_bus.publish("c", 1)
    got.wait(1)
    assert sync_bus.unsubscribe(subscription.id) is True  # type: ignore[attr-defined]
    assert sync_bus.unsubscribe(subscription.id) is False  # type: ignore[attr-defined]
    sync_bus.publish("c", 2)
    witness.wait(2)
    assert sync_bus.drain(10)
    assert got.bodies == [1]


def test_unsubscribe_by_subscription_and_by_handler(sync_bus: SyncMessageBus) -> None:
    # An unknown one is a no-op.
    got = Collector()
    subscription = sync_bus.subscribe("c", got)
    assert sync_bus.unsubscribe(subscription) is True
    sync_bus.subscribe("c", got)
    sync_bus.subscribe("d", got)
    assert sync_bus.unsubscribe(got) is True
    assert sync_bus.unsubscribe(got) is False
    assert sync_bus.unsubscribe(10**9) is False
    sync_bus.publish("d", 1)
    assert sync_bus.drain(10)
    assert got.bodies == []


def test_unsubscribe_by_a_method_of_an_object(sync_bus: SyncMessageBus) -> None:
    # `owner.handle` is a new object at each look, but the same handler.
    owner, other = Owner(), Owner()
    sync_bus.subscribe("c", owner.handle)
    sync_bus.subscribe("c", other.handle)
    assert sync_bus.unsubscribe(owner.handle) is True
    sync_bus.publish("c", 1)
    assert other.got.wait(1) == [1]
    assert owner.got.bodies == []


def test_cancel_twice_is_harmless(sync_bus: SyncMessageBus) -> None:
    subscription = sync_bus.subscribe("c", Collector())
    subscription.cancel()  # type: ignore[attr-defined]
    subscription.cancel()  # type: ignore[attr-defined]
    assert not subscription.active  # type: ignore[attr-defined]
    assert "cancelled" in repr(subscription)


def test_a_created_channel_keeps_what_its_last_subscriber_left(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    gate = Gate()
    subscription = sync_bus.subscribe("c", gate)
    for number in range(3):
        sync_bus.publish("c", number)
    gate.wait_entered()
    subscription.cancel()  # type: ignore[attr-defined]
    assert sync_bus.queue_size("c") == 2
    gate.open()
    got = Collector()
    sync_bus.subscribe("c", got)
    assert got.wait(2) == [1, 2]


def test_what_a_cancelled_subscriber_leaves_where_nobody_keeps_it_is_counted(sync_bus: SyncMessageBus) -> None:
    gate = Gate()
    subscription = sync_bus.subscribe("c", gate)
    for number in range(3):
        sync_bus.publish("c", number)
    gate.wait_entered()
    subscription.cancel()  # type: ignore[attr-defined]
    gate.open()
    assert sync_bus.drain(10)
    channel = sync_bus.snapshot("c").channels[0]
    assert (channel.published, channel.discarded, channel.dropped) == (3, 2, 2)


def test_drain_notices_that_the_backlog_was_cancelled(sync_bus: SyncMessageBus) -> None:
    sync_bus.stop(10)
    subscription = sync_bus.subscribe("c", Collector())
    sync_bus.publish("c", 1)
    waiting = threading.Thread(target=lambda: results.append(sync_bus.drain(10)), daemon=True)
    results: list[bool] = []
    waiting.start()
    subscription.cancel()  # type: ignore[attr-defined]
    waiting.join(5)
    assert results == [True]


# Filters


def test_a_filter_decides_at_publish(sync_bus: SyncMessageBus) -> None:
    even, everything = Collector(), Collector()
    sync_bus.subscribe("c", even, filter=lambda message: message.body % 2 == 0)
    sync_bus.subscribe("c", everything)
    for number in range(4):
        sync_bus.publish("c", number)
    assert everything.wait(4) == [0, 1, 2, 3]
    assert even.wait(2) == [0, 2]


def test_a_filter_may_return_anything_with_a_truth_value(sync_bus: SyncMessageBus) -> None:
    # Compiled or not, `lambda m: m.body.get("name")` is a filter.
    got = Collector()
    sync_bus.subscribe("c", got, filter=lambda message: message.body.get("name"))
    sync_bus.publish("c", {"name": "x"})
    sync_bus.publish("c", {"name": None})
    sync_bus.publish("c", {})
    assert got.wait(1) == [{"name": "x"}]
    assert sync_bus.drain(10)
    assert len(got.bodies) == 1


def test_a_filter_that_raises_hurts_only_its_own_subscriber(sync_bus: SyncMessageBus) -> None:
    # A failing subscriber never hurts another, nor the publisher.
    def broken(message: Message) -> bool:
        raise ValueError("broken filter")

    unlucky, healthy = Collector(), Collector()
    sync_bus.subscribe("c", unlucky, filter=broken)
    sync_bus.subscribe("c", healthy)
    sync_bus.publish("c", 1)
    assert healthy.wait(1) == [1]
    assert sync_bus.drain(10)
    assert unlucky.bodies == []


# Patterns


def test_three_kinds_of_pattern(sync_bus: SyncMessageBus) -> None:
    exact, prefix, one, tail, some = (Collector() for _ in range(5))
    sync_bus.subscribe("a.b", exact)
    sync_bus.subscribe("a.", prefix, match="prefix")
    sync_bus.subscribe(Pattern.wildcard("a.*"), one)
    sync_bus.subscribe("a.#", tail, match="wildcard")
    sync_bus.subscribe("a.>", some, match="wildcard")
    names = ["a", "a.b", "a.b.c", "ab", "a.b*"]
    for name in names:
        sync_bus.publish(name, name)
    assert sync_bus.drain(10)
    assert exact.bodies == ["a.b"]
    assert prefix.bodies == ["a.b", "a.b.c", "a.b*"]
    assert one.bodies == ["a.b", "a.b*"]
    assert tail.bodies == ["a", "a.b", "a.b.c", "a.b*"]
    assert some.bodies == ["a.b", "a.b.c", "a.b*"]


def test_the_empty_prefix_gets_everything_and_prefixes_match_the_exact_bytes(sync_bus: SyncMessageBus) -> None:
    everything, bytes_prefix = Collector(), Collector()
    sync_bus.subscribe("", everything, match="prefix")
    sync_bus.subscribe(Pattern.prefix("é".encode()[:1]), bytes_prefix)
    for name in ("é", "e", "É2"):
        sync_bus.publish(name, name)
    assert sync_bus.drain(10)
    assert everything.bodies == ["é", "e", "É2"]
    assert bytes_prefix.bodies == ["é", "É2"]


def test_patterns_route_as_a_plain_comparison_would(sync_bus: SyncMessageBus) -> None:
    draw = random.Random(4)
    names = ["".join(draw.choices("ab", k=draw.randint(1, 6))) for _ in range(60)]
    prefixes = sorted({name[: draw.randint(0, 4)] for name in names})
    collectors = {prefix: Collector() for prefix in prefixes}
    for prefix, got in collectors.items():
        sync_bus.subscribe(prefix, got, match="prefix", dispatch="inline")
    for name in names:
        sync_bus.publish(name, name)
    for prefix, got in collectors.items():
        assert got.bodies == [name for name in names if name.startswith(prefix)], prefix


def test_a_pattern_is_counted_per_subscriber(sync_bus: SyncMessageBus) -> None:
    # Two on the same prefix; one going does not take the other along, and coming back does not double it.
    first, second = Collector(), Collector()
    one = sync_bus.subscribe("p", first, match="prefix")
    sync_bus.subscribe("p", second, match="prefix")
    one.cancel()  # type: ignore[attr-defined]
    sync_bus.publish("p1", 1)
    assert second.wait(1) == [1]
    sync_bus.subscribe("p", first, match="prefix")
    sync_bus.publish("p1", 2)
    assert first.wait(1) == [2]
    assert second.wait(2) == [1, 2]
    assert sync_bus.drain(10)
    assert first.bodies == [2]


def test_a_channel_that_exists_already_is_routed_to_a_new_pattern(sync_bus: SyncMessageBus) -> None:
    sync_bus.publish("p1", "unrouted")
    got = Collector()
    sync_bus.subscribe("p", got, match="prefix")
    sync_bus.publish("p1", 1)
    assert got.wait(1) == [1]
    assert sync_bus.unsubscribe(got)
    sync_bus.publish("p1", 2)
    assert sync_bus.snapshot("p1").channels[0].outcomes["unrouted"] == 2


# Lossy subscribers


def test_a_lossy_subscriber_never_pushes_back_and_its_drops_are_counted(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=2)
    lossy, reliable = Gate(), Collector()
    subscription = sync_bus.subscribe("c", lossy, overflow="drop_oldest", queue_size=3)
    sync_bus.subscribe("c", reliable)
    sync_bus.publish("c", 0)
    lossy.wait_entered()
    for number in range(1, 11):
        sync_bus.publish("c", number)
        reliable.wait(number + 1)
    assert subscription.backlog == 3  # type: ignore[attr-defined]
    assert subscription.dropped == 7  # type: ignore[attr-defined]
    lossy.open()
    assert sync_bus.drain(10)
    assert [message.body for message in lossy.messages] == [0, 8, 9, 10]
    channel = sync_bus.snapshot("c").channels[0]
    assert (channel.overflowed, channel.dropped, channel.published) == (7, 7, 11)


def test_a_lossy_queue_keeps_what_is_more_urgent(sync_bus: SyncMessageBus) -> None:
    # The bound holds there, too.
    sync_bus.stop(10)
    got = Collector()
    subscription = sync_bus.subscribe("c", got, overflow="drop_oldest", queue_size=2)
    sync_bus.publish("c", "critical", 0)
    sync_bus.publish("c", "low", 75)
    sync_bus.publish("c", "high", 25)
    sync_bus.publish("c", "background", 100)
    assert subscription.dropped == 2  # type: ignore[attr-defined]
    sync_bus.start()
    assert got.wait(2) == ["critical", "high"]


def test_a_failing_subscriber_does_not_hurt_another(sync_bus: SyncMessageBus) -> None:
    def failing(message: Message) -> None:
        raise ValueError("always")

    got = Collector()
    sync_bus.subscribe("c", failing, retry_attempts=1, retry_delay=0)
    sync_bus.subscribe("c", got)
    for number in range(20):
        sync_bus.publish("c", number)
    assert got.wait(20) == list(range(20))
    assert within(lambda: sync_bus.drain(10)) is True
    assert len(sync_bus.dead_letters("c")) == 20


@pytest.mark.parametrize("option", [{"overflow": "drop_oldest"}, {"dispatch": "inline"}, {"filter": bool}])
def test_members_of_a_group_share_filter_dispatch_and_overflow(
    sync_bus: SyncMessageBus, option: dict[str, object]
) -> None:
    sync_bus.subscribe("c", Collector(), group="g")
    with pytest.raises(ConfigInvalid) as caught:
        sync_bus.subscribe("c", Collector(), group="g", **option)
    assert caught.value.hint
