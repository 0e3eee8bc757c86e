"""Channels: made, made again, made on the fly, kept messages, one name space."""

import threading

import pytest

from tests.unit.bus.probes import Collector, HandClock, eager_switching, event_wait
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.settings import ChannelConfig
from unibus.bus.subscriptions.kept import ROUNDS_MAX
from unibus.core.envelope.message import Message
from unibus.errors import BusError, ChannelExists, ChannelNotFound, QueueFull, RateLimited
from unibus.limits import IMPLICIT_CHANNELS_MAX


def test_a_created_channel_keeps_messages_for_its_first_subscriber_in_order(sync_bus: SyncMessageBus) -> None:
    # Strictly by (priority, sequence), also among what was kept.
    sync_bus.create_channel("c")
    for number, priority in enumerate([50, 0, 100, 50, 25, 0]):
        sync_bus.publish("c", number, priority)
    assert sync_bus.queue_size("c") == 6
    got = Collector()
    sync_bus.subscribe("c", got)
    assert got.wait(6) == [1, 5, 4, 0, 3, 2]


def test_kept_messages_go_to_the_first_subscriber_only(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    sync_bus.publish("c", "old")
    first, second = Collector(), Collector()
    sync_bus.subscribe("c", first)
    sync_bus.subscribe("c", second)
    sync_bus.publish("c", "new")
    assert first.wait(2) == ["old", "new"]
    assert second.wait(1) == ["new"]
    assert sync_bus.drain(10)
    assert second.bodies == ["new"]


def test_kept_messages_are_bounded_and_the_bound_is_the_channels(sync_bus: SyncMessageBus) -> None:
    # 1000 by default.
    sync_bus.create_channel("c")
    for number in range(1000):
        sync_bus.publish("c", number)
    with pytest.raises(QueueFull):
        sync_bus.publish("c", 1000)
    assert sync_bus.queue_size("c") == 1000


def test_max_queue_size_zero_is_unbounded(sync_bus: SyncMessageBus) -> None:
    # A load test without a consumer needs max_queue_size=0.
    sync_bus.create_channel("c", max_queue_size=0)
    for number in range(5_000):
        sync_bus.publish("c", number)
    assert sync_bus.queue_size("c") == 5_000


def test_kept_messages_reach_a_pattern_subscriber_too(sync_bus: SyncMessageBus) -> None:
    # Messages are kept while no group takes them; a pattern that matches is a group, and its order must hold.
    sync_bus.create_channel("a.b")
    sync_bus.publish("a.b", 1)
    got = Collector()
    sync_bus.subscribe("a.", got, match="prefix")
    sync_bus.publish("a.b", 2)
    assert got.wait(2) == [1, 2]


@pytest.mark.parametrize("pattern", ["a.b", "a.*"])
def test_the_filter_of_the_first_group_chooses_among_kept_messages(sync_bus: SyncMessageBus, pattern: str) -> None:
    sync_bus.create_channel("a.b")
    for number in range(6):
        sync_bus.publish("a.b", number)
    got = Collector()
    sync_bus.subscribe(pattern, got, filter=lambda message: message.body % 2 == 0)
    sync_bus.publish("a.b", 7)
    sync_bus.publish("a.b", 8)
    assert sync_bus.drain(10)
    assert got.bodies == [0, 2, 4, 8]
    assert sync_bus.queue_size("a.b") == 0


def test_a_filter_that_raises_for_a_kept_message_is_counted(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    for body in ({"n": 1}, "text", {"n": 3}):
        sync_bus.publish("c", body)
    got = Collector()
    sync_bus.subscribe("c", got, filter=lambda message: message.body["n"] > 0)
    assert sync_bus.drain(10)
    assert got.bodies == [{"n": 1}, {"n": 3}]
    assert sync_bus.snapshot("c").channels[0].errors == 1


@pytest.mark.parametrize("publishes", [3, 3 * ROUNDS_MAX])
def test_a_filter_that_waits_for_another_publisher_sees_all_kept_messages(
    sync_bus: SyncMessageBus, publishes: int
) -> None:
    # The filter runs without the lock of the bus while a message that was not asked for can be published.
    sync_bus.create_channel("c", max_queue_size=0)
    sync_bus.publish("c", 0)
    got = Collector()

    def accepts(message: Message) -> bool:
        number = message.body
        if number < publishes:
            publisher = threading.Thread(target=sync_bus.publish, args=("c", number + 1))
            if number < ROUNDS_MAX - 2:
                publisher.start()
                publisher.join()
            else:  # In the last round the filter may run under the lock: then only its own thread can publish.
                sync_bus.publish("c", number + 1)
        return bool(number % 2)

    sync_bus.subscribe("c", got, filter=accepts)
    assert sync_bus.drain(10)
    assert got.bodies == [number for number in range(publishes + 1) if number % 2]


def test_order_holds_while_a_first_subscriber_comes_between_publishes() -> None:
    # What was kept is older than what is published while it is handed over.
    with eager_switching():
        for _ in range(40):
            with SyncMessageBus(worker_count=1) as bus:
                bus.create_channel("c", max_queue_size=0)
                for number in range(20):
                    bus.publish("c", number)
                begun = threading.Event()

                def publish_on(bus: SyncMessageBus = bus, begun: threading.Event = begun) -> None:
                    for number in range(20, 120):
                        bus.publish("c", number)
                        begun.set()

                publisher = threading.Thread(target=publish_on)
                publisher.start()
                event_wait(begun)
                got = Collector()
                bus.subscribe("c", got)
                publisher.join()
                assert got.wait(120) == list(range(120))


def test_the_same_settings_again_change_nothing(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=5, ttl=60)
    got = Collector()
    sync_bus.publish("c", 1)
    sync_bus.create_channel("c", max_queue_size=5, ttl=60)
    sync_bus.create_channel("c", ChannelConfig(max_queue_size=5, ttl=60))
    assert sync_bus.queue_size("c") == 1
    sync_bus.subscribe("c", got)
    sync_bus.create_channel("c", max_queue_size=5, ttl=60)
    sync_bus.publish("c", 2)
    assert got.wait(2) == [1, 2]


def test_the_same_settings_again_do_not_refill_the_rate(timed_bus: SyncMessageBus) -> None:
    # "no-op". Else any caller could get round the limit by creating the channel again.
    timed_bus.create_channel("c", rate_limit_per_sec=1, rate_limit_burst=1)
    timed_bus.publish("c", 1)
    timed_bus.create_channel("c", rate_limit_per_sec=1, rate_limit_burst=1)
    with pytest.raises(RateLimited):
        timed_bus.publish("c", 2)


def test_the_same_settings_again_do_not_forget_dedup_keys(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    sync_bus.publish("c", 1, dedup_key="k")
    sync_bus.create_channel("c")
    sync_bus.publish("c", 1, dedup_key="k")
    assert sync_bus.queue_size("c") == 1


def test_other_settings_are_refused_and_change_nothing(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1)
    sync_bus.publish("c", 1)
    with pytest.raises(ChannelExists) as caught:
        sync_bus.create_channel("c", max_queue_size=2)
    assert "update=True" in caught.value.hint
    with pytest.raises(QueueFull):
        sync_bus.publish("c", 2)
    assert sync_bus.queue_size("c") == 1


def test_update_changes_the_settings_and_keeps_queue_and_subscribers(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1)
    sync_bus.publish("c", 1)
    sync_bus.create_channel("c", max_queue_size=2, update=True)
    sync_bus.publish("c", 2)
    got = Collector()
    sync_bus.subscribe("c", got)
    sync_bus.create_channel("c", max_queue_size=3, update=True)
    sync_bus.publish("c", 3)
    assert got.wait(3) == [1, 2, 3]


def test_update_can_shorten_the_dedup_window(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.create_channel("c", dedup_window=1000)
    timed_bus.create_channel("c", dedup_window=10, update=True)
    timed_bus.publish("c", 1, dedup_key="k")
    hand_clock.advance(11)
    timed_bus.publish("c", 2, dedup_key="k")
    assert timed_bus.queue_size("c") == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate_limit_per_sec", -1.0),
        ("rate_limit_per_sec", 0.0),
        ("rate_limit_per_sec", float("nan")),
        ("rate_limit_per_sec", "fast"),
        ("dedup_window", 10_000_000.0),
        ("dead_letter_channel", "x" * 261),
        ("dead_letter_channel", "bad\nname"),
        ("dead_letter_channel", 5),
    ],
)
def test_a_setting_that_is_refused_leaves_no_channel_behind(sync_bus: SyncMessageBus, name: str, value: object) -> None:
    with pytest.raises((BusError, TypeError)):
        sync_bus.create_channel("c", **{name: value})
    assert sync_bus.channels() == []
    sync_bus.create_channel("c", max_queue_size=7)


@pytest.mark.parametrize(("name", "value"), [("rate_limit_per_sec", -1.0), ("dedup_window", 10_000_000.0)])
def test_an_update_that_is_refused_changes_nothing(sync_bus: SyncMessageBus, name: str, value: object) -> None:
    sync_bus.create_channel("c", max_queue_size=1)
    with pytest.raises(BusError):
        sync_bus.create_channel("c", max_queue_size=5, update=True, **{name: value})
    sync_bus.publish("c", 1)
    with pytest.raises(QueueFull):
        sync_bus.publish("c", 2)
    sync_bus.create_channel("c", max_queue_size=1)


def test_names_that_differ_only_by_case_cannot_both_exist(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("Orders")
    for use in (sync_bus.create_channel, sync_bus.publish):
        with pytest.raises(ChannelExists) as caught:
            use("ORDERS")
        assert "Orders" in caught.value.hint
    with pytest.raises(ChannelExists):
        sync_bus.subscribe("orders", Collector())
    assert sync_bus.channels() == ["Orders"]


def test_queue_size_and_pop_of_an_unknown_channel_are_none_and_make_nothing(sync_bus: SyncMessageBus) -> None:
    assert sync_bus.queue_size("nobody") is None
    assert sync_bus.pop("nobody") is None
    assert sync_bus.dead_letters("nobody") == []
    assert sync_bus.channels() == []
    with pytest.raises(ChannelNotFound):
        sync_bus.metrics("nobody")


def test_pop_takes_what_is_kept_in_order(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    for number, priority in enumerate([75, 25, 75]):
        sync_bus.publish("c", number, priority)
    popped = [sync_bus.pop("c") for _ in range(4)]
    assert [None if message is None else message.body for message in popped] == [1, 0, 2, None]


def test_messages_that_nobody_reads_are_counted_as_unrouted(sync_bus: SyncMessageBus) -> None:
    message = sync_bus.publish("nobody", 1)
    assert message.body == 1
    (channel,) = [each for each in sync_bus.snapshot().channels if each.channel == "nobody"]
    assert channel.outcomes["unrouted"] == 1
    assert channel.published == 0
    assert channel.dropped == 0
    got = Collector()
    sync_bus.subscribe("nobody", got)
    sync_bus.publish("nobody", 2)
    assert got.wait(1) == [2]


def test_unique_names_do_not_fill_the_memory_and_totals_stay_exact(sync_bus: SyncMessageBus) -> None:
    # See limits.IMPLICIT_CHANNELS_MAX.
    count = 2 * IMPLICIT_CHANNELS_MAX + 1
    for number in range(count):
        sync_bus.publish(f"topic-{number}")
    assert len(sync_bus.channels()) <= IMPLICIT_CHANNELS_MAX
    snapshot = sync_bus.snapshot()
    assert len(snapshot.channels) <= IMPLICIT_CHANNELS_MAX + 2
    assert sum(channel.outcomes["unrouted"] for channel in snapshot.channels) == count
    assert f"topic-{count - 1}" in sync_bus.channels()


def test_a_sequence_never_goes_back_when_a_forgotten_channel_is_made_again(sync_bus: SyncMessageBus) -> None:
    # A sequence survives deletion and re-creation.
    before = [sync_bus.publish("first").sequence for _ in range(3)]
    for number in range(IMPLICIT_CHANNELS_MAX):
        sync_bus.publish(f"topic-{number}")
    assert "first" not in sync_bus.channels()
    assert sync_bus.publish("first").sequence > before[-1]


def test_a_channel_with_a_subscriber_or_created_is_never_forgotten(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("made")
    sync_bus.publish("made", 1)
    got = Collector()
    sync_bus.subscribe("read", got)
    for number in range(IMPLICIT_CHANNELS_MAX + 1):
        sync_bus.publish(f"topic-{number}")
    sync_bus.publish("read", 2)
    assert got.wait(1) == [2]
    assert sync_bus.queue_size("made") == 1


def test_a_delivery_is_counted_although_its_channel_was_forgotten_meanwhile(sync_bus: SyncMessageBus) -> None:
    # Totals are exact, whatever happens to the channel while its message is handled.
    def handler(message: object) -> None:
        for number in range(IMPLICIT_CHANNELS_MAX + 1):
            sync_bus.publish(f"other-{number}")

    sync_bus.subscribe("mine", handler, match="prefix")
    sync_bus.publish("mine.1")
    assert sync_bus.drain(10)
    assert "mine.1" not in sync_bus.channels()
    assert sync_bus.metrics()["published"] == 1
    assert sync_bus.metrics()["dispatched"] == 1


def test_names_with_subscribers_may_be_more_than_the_limit_for_unused_ones(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    count = IMPLICIT_CHANNELS_MAX + 50
    for number in range(count):
        sync_bus.subscribe(f"s{number}", got)
    sync_bus.publish("unused")
    assert len(sync_bus.channels()) >= count
    for number in (0, count // 2, count - 1):
        sync_bus.publish(f"s{number}", number)
    assert sorted(got.wait(3), key=str) == sorted([0, count // 2, count - 1], key=str)
