"""A message with one delivery left is claimed only for an idle handler, and the group neither stops nor reorders."""

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate
from tests.unit.bus.rigs import Rig
from unibus.core.envelope.message import Message

GROUP = "c/Subscriptions/g"


@pytest.fixture
def channel_rig(rig: Rig) -> Rig:
    rig.create_channel("c", persistent=True)
    return rig


def test_without_retries_only_what_handlers_work_on_is_claimed(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.subscribe("c", gate, group="g", retry_attempts=0, concurrency=2)
    for body in range(20):
        channel_rig.publish("c", body)
    gate.wait_entered(2)
    assert channel_rig.counts(GROUP)[:2] == (18, 2)
    gate.open()
    assert channel_rig.drain(GUARD_S)
    assert sorted(message.body for message in gate.messages) == list(range(20))


def test_with_retries_messages_are_claimed_ahead(channel_rig: Rig) -> None:
    gate = Gate()
    channel_rig.subscribe("c", gate, group="g", retry_attempts=1)
    for body in range(20):
        channel_rig.publish("c", body)
    gate.wait_entered()
    assert channel_rig.counts(GROUP)[:2] == (0, 20)
    gate.open()
    assert channel_rig.drain(GUARD_S)


def test_a_last_delivery_keeps_its_place_before_what_is_claimed_ahead(channel_rig: Rig) -> None:
    seen: list[tuple[object, int]] = []

    def fails_first(message: Message) -> None:
        seen.append((message.body, message.delivery_count))
        if message.delivery_count == 1:
            raise ValueError("once")

    channel_rig.subscribe("c", fails_first, group="g", retry_attempts=1, retry_delay=0)
    for body in range(50):
        channel_rig.publish("c", body)
    assert channel_rig.drain(GUARD_S)
    assert seen == [(body, count) for body in range(50) for count in (1, 2)]


@pytest.mark.parametrize("concurrency", [2, 5])
def test_last_deliveries_of_several_handlers_all_begin(channel_rig: Rig, concurrency: int) -> None:
    seen: list[tuple[object, int]] = []

    def fails_first(message: Message) -> None:
        seen.append((message.body, message.delivery_count))
        if message.delivery_count == 1:
            raise ValueError("once")

    channel_rig.subscribe("c", fails_first, group="g", retry_attempts=1, retry_delay=0, concurrency=concurrency)
    channel_rig.publish_many("c", list(range(200)))
    assert channel_rig.drain(GUARD_S)
    assert sorted(seen) == [(body, count) for body in range(200) for count in (1, 2)]


def test_a_last_delivery_does_not_stop_those_after_it(channel_rig: Rig) -> None:
    """A receiver has abandoned the first message before the handler is subscribed."""
    receiver = Collector()
    subscription = channel_rig.subscribe("c", receiver, group="g", retry_attempts=1)
    channel_rig.unsubscribe(subscription)
    channel_rig.publish_many("c", list(range(10)))
    first = channel_rig.one(GROUP)
    channel_rig.do(first.abandon)
    channel_rig.subscribe("c", receiver, group="g", retry_attempts=1)
    assert channel_rig.drain(GUARD_S)
    assert receiver.bodies == list(range(10))


def test_a_cancelled_handler_that_still_runs_does_not_count(channel_rig: Rig) -> None:
    """It occupies no slot of the handlers that are left: those get every message, however long it runs."""
    gate, others = Gate(), Collector()
    first = channel_rig.subscribe("c", gate, group="g", retry_attempts=0)
    channel_rig.publish("c", "long")
    gate.wait_entered()
    channel_rig.subscribe("c", others, group="g", retry_attempts=0)
    first.cancel()
    channel_rig.publish_many("c", [1, 2, 3])
    others.wait(3)
    assert others.bodies == [1, 2, 3]
    gate.open()
    assert channel_rig.drain(GUARD_S)
