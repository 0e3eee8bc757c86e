"""Many producers at once: bounds hold, nothing is lost or doubled."""

import threading

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, eager_switching, run_together
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import ChannelExists, QueueFull, RateLimited

ROUNDS = 200
BOUND = 7


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "group"])
def test_the_queue_never_exceeds_its_bound(kept: bool) -> None:
    # A plain run without a lock broke this in 4 of 300 rounds.
    bus = SyncMessageBus()
    bus.create_channel("c", max_queue_size=BOUND)
    bus.stop(GUARD_S)
    if not kept:
        bus.subscribe("c", Collector())
    accepted = [0] * 6
    over: list[int] = []
    round_begins, round_ends = threading.Barrier(7), threading.Barrier(7)

    def produce(number: int) -> None:
        for _ in range(ROUNDS):
            round_begins.wait(GUARD_S)
            for _ in range(3):
                try:
                    bus.publish("c")
                    accepted[number] += 1
                except QueueFull:
                    pass
                size = bus.queue_size("c") or 0
                if size > BOUND:
                    over.append(size)
            round_ends.wait(GUARD_S)

    threads = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    with eager_switching():
        for _ in range(ROUNDS):
            round_begins.wait(GUARD_S)
            round_ends.wait(GUARD_S)
            assert bus.queue_size("c") == BOUND
            popped = [bus.pop("c") for _ in range(BOUND + 1)]
            assert [message is None for message in popped] == [False] * BOUND + [True]
    assert over == []
    assert sum(accepted) == ROUNDS * BOUND
    bus.close(0.1)


def test_an_urgent_mix_of_threads_keeps_each_publishers_order(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=0)
    got = Collector()
    sync_bus.subscribe("c", got)

    def publish(number: int) -> None:
        for step in range(300):
            sync_bus.publish("c", (number, step))

    with eager_switching():
        run_together(6, publish)
        got.wait(1_800)
    for number in range(6):
        assert [body for body in got.bodies if body[0] == number] == [(number, step) for step in range(300)]  # type: ignore[index]
    sequences = [message.sequence for message in got.messages]
    assert sequences == sorted(sequences)


def test_subscribers_come_and_go_while_others_publish(sync_bus: SyncMessageBus) -> None:
    # Whatever is accepted by the one that stays arrives there exactly once.
    sync_bus.create_channel("c", max_queue_size=0)
    steady = Collector()
    sync_bus.subscribe("c", steady)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            exact = sync_bus.subscribe("c", Collector())
            prefix = sync_bus.subscribe("c", Collector(), match="prefix")
            exact.cancel()  # type: ignore[attr-defined]
            prefix.cancel()  # type: ignore[attr-defined]

    churner = threading.Thread(target=churn, daemon=True)
    with eager_switching():
        churner.start()
        run_together(4, lambda number: [sync_bus.publish("c", (number, step)) for step in range(200)] and None)
        stop.set()
        churner.join(GUARD_S)
    assert sync_bus.drain(GUARD_S)
    assert sorted(steady.bodies) == [(number, step) for number in range(4) for step in range(200)]  # type: ignore[type-var]


def test_a_created_channel_loses_nothing_while_its_only_subscriber_comes_and_goes(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=0)
    got = Collector()
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            sync_bus.subscribe("c", got).cancel()  # type: ignore[attr-defined]

    churner = threading.Thread(target=churn, daemon=True)
    with eager_switching():
        churner.start()
        run_together(4, lambda number: [sync_bus.publish("c", (number, step)) for step in range(200)] and None)
        stop.set()
        churner.join(GUARD_S)
    sync_bus.subscribe("c", got)
    assert sync_bus.drain(GUARD_S)
    assert sorted(got.bodies) == [(number, step) for number in range(4) for step in range(200)]  # type: ignore[type-var]


def test_channels_are_made_once_when_many_threads_want_them(sync_bus: SyncMessageBus) -> None:
    wins: list[str] = []

    def use(number: int) -> None:
        name = "Channel" if number % 2 else "CHANNEL"
        for step in range(50):
            try:
                sync_bus.publish(f"{name}-{step}")
                wins.append(f"{name}-{step}")
            except ChannelExists:
                pass

    with eager_switching():
        run_together(6, use)
    assert len(sync_bus.channels()) == 50
    assert set(sync_bus.channels()) == set(wins)
    assert sum(channel.outcomes["unrouted"] for channel in sync_bus.snapshot().channels) == len(wins) == 150


def test_rate_limits_are_exact_under_threads(timed_bus: SyncMessageBus) -> None:
    # The token bucket is checked and taken in one step.
    timed_bus.create_channel("c", max_queue_size=0, rate_limit_per_sec=1, rate_limit_burst=100)
    accepted = [0] * 8

    def publish(number: int) -> None:
        for _ in range(50):
            try:
                timed_bus.publish("c")
                accepted[number] += 1
            except RateLimited:
                pass

    with eager_switching():
        run_together(8, publish)
    assert sum(accepted) == timed_bus.queue_size("c") == 100


def test_a_dedup_key_is_accepted_once_under_threads(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=0)
    with eager_switching():
        run_together(8, lambda number: [sync_bus.publish("c", dedup_key=f"k{step}") for step in range(100)] and None)
    assert sync_bus.queue_size("c") == 100
    assert sync_bus.snapshot("c").channels[0].outcomes["duplicate"] == 700


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "group"])
def test_one_message_published_by_many_threads_gets_a_sequence_for_each(kept: bool) -> None:
    bus = SyncMessageBus()
    bus.create_channel("c")
    bus.stop(GUARD_S)
    if not kept:
        bus.subscribe("c", Collector())
    with eager_switching():
        for _ in range(ROUNDS // 2):
            message = Message.new("c", "shared")
            published: list[Message] = []

            def publish(number: int, message: Message = message, published: list[Message] = published) -> None:
                published.append(bus.publish(message))

            run_together(4, publish)
            assert len({each.sequence for each in published}) == 4
            assert {each.id for each in published} == {message.id}
            waiting = [each for each in (bus.pop("c") for _ in range(4)) if each is not None]
            assert sorted(each.sequence for each in waiting) == sorted(each.sequence for each in published)
            assert len({id(each) for each in waiting}) == 4
    bus.close(1)


def test_a_message_that_was_refused_is_published_itself_the_next_time(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=1)
    sync_bus.publish("c", 1)
    message = Message.new("c", 2)
    with pytest.raises(QueueFull):
        sync_bus.publish(message)
    assert sync_bus.pop("c") is not None
    assert sync_bus.publish(message) is message
    assert message.sequence == 2
    assert sync_bus.publish_from_sync(Message.new("d")).sequence == 1
