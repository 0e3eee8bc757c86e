"""Duplicates on full and rate-limited channels and entities: they store nothing, so no limit refuses them."""

import pytest

from tests.unit.bus.probes import Publisher
from tests.unit.bus.rigs import Rig
from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.core.envelope.message import Message
from unibus.errors import QueueFull, RateLimited
from unibus.testing.clock.virtual_clock import VirtualClock

GROUP = "c/Subscriptions/g"


def again(message: Message) -> Message:
    """The same message, sent once more by a program that does not know whether the first send arrived."""
    return message.with_priority(message.priority)


def full(rig: Rig, **settings: object) -> Message:
    rig.create_channel("c", persistent=True, max_queue_size=1, dedup_window=60, **settings)
    rig.create_subscription("c", "g")
    message = Message.new("c", "first")
    rig.publish(message)
    return message


def test_a_duplicate_on_a_full_channel_is_none_too_many(rig: Rig) -> None:
    message = full(rig)
    rig.publish(again(message))
    with pytest.raises(QueueFull):
        rig.publish("c", "new")
    assert [each.body for each in rig.peek(GROUP, 10)] == ["first"]
    assert rig.bus.snapshot("c").channels[0].outcomes["duplicate"] == 1


def test_a_duplicate_in_a_transaction_on_a_full_channel(rig: Rig) -> None:
    message = full(rig)

    async def publish_async() -> None:
        async with rig.bus.transaction():
            await rig.bus.publish(again(message))

    def publish() -> None:
        with rig.bus.transaction():
            rig.bus.publish(again(message))

    rig.do(publish_async if isinstance(rig.bus, MessageBus) else publish)
    assert [each.body for each in rig.peek(GROUP, 10)] == ["first"]
    rig.do(rig.one(GROUP).complete)
    rig.publish("c", "room")


def test_a_duplicate_does_not_wait_for_room(rig: Rig) -> None:
    message = full(rig, drop_policy="block")
    waiting = Publisher(lambda: rig.publish("c", "new"))
    Publisher(lambda: rig.publish(again(message))).join()
    rig.do(rig.one(GROUP).complete)
    waiting.join()
    assert [each.body for each in rig.peek(GROUP, 10)] == ["new"]


def test_duplicates_spend_no_rate(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, rate_limit_per_sec=0.001, rate_limit_burst=2, dedup_window=60)
    rig.create_subscription("c", "g")
    message = Message.new("c", "first")
    for _ in range(4):
        rig.publish(again(message))
    rig.publish("c", "second")
    rig.publish(again(message))  # There is no token left, and none is needed.
    with pytest.raises(RateLimited):
        rig.publish("c", "third")
    assert [each.body for each in rig.peek(GROUP, 10)] == ["first", "second"]


async def test_a_client_may_repeat_what_it_sent() -> None:
    with VirtualClock() as clock:
        async with MessageBus(clock=clock) as bus:
            broker = Broker(bus)
            await broker.create("queue", "q", {"max_sends_per_second": 1, "dedup_window": 60})
            await broker.create("queue", "plain", {"max_sends_per_second": 1})
            for number in range(2):
                for name in ("q", "plain"):
                    await broker.send(name, broker.message(name, number, {"message_id": str(number)}))
            assert (await broker.send("q", broker.message("q", 0, {"message_id": "0"}))).duplicate
            with pytest.raises(RateLimited):
                await broker.send("q", broker.message("q", 2, {"message_id": "2"}))
            with pytest.raises(RateLimited):
                await broker.send("plain", broker.message("plain", 0, {"message_id": "0"}))
