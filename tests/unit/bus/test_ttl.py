"""Time to live: the shorter wins, the expired are never handed over."""

import gc

import pytest

from tests.unit.bus.probes import Collector, Flaky, HandClock, HandTimers
from tests.unit.interrupts import interrupted
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.channel import Channel
from unibus.core.atomic import COMPILED
from unibus.core.envelope.message import restored
from unibus.errors import QueueFull


def test_an_expired_message_is_not_handed_over_but_counted(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    # Removed and counted where no dead-letter channel is named.
    timed_bus.create_channel("c")
    timed_bus.publish("c", "short", ttl=5)
    timed_bus.publish("c", "long")
    hand_clock.advance(5)
    got = Collector()
    timed_bus.subscribe("c", got)
    assert got.wait(1) == ["long"]
    assert timed_bus.drain(10)
    channel = timed_bus.snapshot("c").channels[0]
    assert (channel.expired, channel.dispatched, channel.errors) == (1, 1, 0)
    assert timed_bus.dead_letters("c") == []


def test_a_message_lives_up_to_its_very_instant(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.create_channel("c")
    timed_bus.publish("c", "x", ttl=5)
    hand_clock.wall += 5_000_000_000 - 1
    assert timed_bus.pop("c") is not None
    timed_bus.publish("c", "y", ttl=5)
    hand_clock.wall += 5_000_000_000
    assert timed_bus.pop("c") is None


@pytest.mark.parametrize(("own", "channel", "lives"), [(2, 10, 2), (10, 2, 2), (None, 3, 3), (3, None, 3)])
def test_the_shorter_of_message_and_channel_wins(
    timed_bus: SyncMessageBus, hand_clock: HandClock, own: float | None, channel: float | None, lives: float
) -> None:
    timed_bus.create_channel("c", ttl=channel)
    fields = {} if own is None else {"ttl": own}
    timed_bus.publish("c", "a", **fields)
    hand_clock.advance(lives - 0.001)
    assert timed_bus.pop("c") is not None
    timed_bus.publish("c", "b", **fields)
    hand_clock.advance(lives)
    assert timed_bus.pop("c") is None


def test_expired_messages_go_to_the_named_dead_letter_channel(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.create_channel("c", ttl=1, dead_letter_channel="dlq")
    timed_bus.publish("c", "x")
    hand_clock.advance(2)
    assert timed_bus.pop("c") is None
    letter = timed_bus.pop("dlq")
    assert letter is not None
    assert letter.headers["DeadLetterReason"] == "TTLExpiredException"
    assert letter.headers["DeadLetterAttempts"] == 0
    assert letter.expires_ns == 0
    hand_clock.advance(1000)
    assert timed_bus.snapshot("c").channels[0].expired == 1


def test_a_full_queue_of_expired_messages_has_room(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.create_channel("c", max_queue_size=2, ttl=1)
    timed_bus.publish("c", 1)
    timed_bus.publish("c", 2)
    with pytest.raises(QueueFull):
        timed_bus.publish("c", 3)
    hand_clock.advance(1)
    timed_bus.publish("c", 3)
    timed_bus.publish("c", 4)
    assert [message.body for message in (timed_bus.pop("c"), timed_bus.pop("c")) if message] == [3, 4]
    assert timed_bus.snapshot("c").channels[0].expired == 2


def test_sweeping_the_expired_keeps_the_order_of_the_rest(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.create_channel("c", max_queue_size=5)
    for body, priority, ttl in [("a", 50, 1), ("b", 25, None), ("c", 50, None), ("d", 25, 1), ("e", 50, None)]:
        timed_bus.publish("c", body, priority, **({} if ttl is None else {"ttl": ttl}))
    hand_clock.advance(1)
    timed_bus.publish("c", "f", 25)
    popped = [timed_bus.pop("c") for _ in range(4)]
    assert [message.body for message in popped if message] == ["b", "f", "c", "e"]


@pytest.mark.skipif(COMPILED, reason="Ctrl-C is raised in plain Python only")
def test_a_sweep_that_is_interrupted_loses_no_message_and_is_finished_by_the_next() -> None:
    at, is_cut = 0, True
    while is_cut:
        at += 1
        channel = Channel("c", True)
        messages = [restored(f"m{number}", "c", number, 1, None) for number in range(5)]
        for number, message in enumerate(messages):
            message.expires_ns = 5 if number % 2 else 20
            channel.may_expire(message.expires_ns)
            channel.keep([message])
        is_cut = interrupted(lambda: channel.sweep(10), at)  # noqa: B023
        gc.enable()  # A method that is cut short before its `try` has not done it.
        assert {*map(id, channel.kept.items()), *map(id, channel.expired)} == {*map(id, messages)}
        if is_cut:
            channel.sweep(10)
        assert [message.body for message in channel.kept.items()] == [0, 2, 4]
        assert [(each.message.body, each.expired) for each in channel.take_evicted()] == [(1, True), (3, True)]
        assert (channel.first_expiry_ns, channel.take_evicted()) == (20, [])
    assert at > 20


def test_a_message_that_expires_while_it_waits_for_its_retry_is_not_tried_again(hand_clock: HandClock) -> None:
    timers = HandTimers()
    bus = SyncMessageBus(clock=hand_clock.clock(timers))
    handler = Flaky(failures=1)
    bus.subscribe("c", handler, retry_delay=1)
    bus.publish("c", "x", ttl=5)
    timers.wait(1)
    hand_clock.advance(5)
    timers.fire()
    assert bus.drain(10)
    assert len(handler.seen) == 1
    assert bus.snapshot("c").channels[0].expired == 1
    bus.close(1)


def test_each_group_counts_its_own_expiry(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.stop(10)
    one, two = Collector(), Collector()
    timed_bus.subscribe("c", one)
    timed_bus.subscribe("c", two)
    timed_bus.publish("c", "x", ttl=1)
    hand_clock.advance(1)
    timed_bus.publish("c", "y", ttl=1)
    timed_bus.start()
    assert one.wait(1) == ["y"]
    assert two.wait(1) == ["y"]
    assert timed_bus.drain(10)
    assert timed_bus.snapshot("c").channels[0].expired == 2
