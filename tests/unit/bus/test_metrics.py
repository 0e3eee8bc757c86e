"""Counters that add up, under any number of threads."""

import asyncio
import contextlib

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Flaky, HandClock, eager_switching, run_together
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.clock import Clock
from unibus.core.envelope.message import Message
from unibus.errors import QueueFull, RateLimited

SIX = {
    "published",
    "dispatched",
    "dropped",
    "errors",
    "avg_publish_latency_us",
    "avg_dispatch_latency_us",
}


def test_metrics_have_the_six_keys_of_the_seed(sync_bus: SyncMessageBus) -> None:
    assert sync_bus.metrics() == dict.fromkeys(SIX, 0)
    sync_bus.publish("c")
    assert set(sync_bus.metrics()) == SIX
    assert set(sync_bus.metrics("c")) == SIX


@pytest.mark.parametrize("policy", ["drop_new", "drop_old"])
def test_counts_are_exact_under_eight_publisher_threads(policy: str) -> None:
    # Exact, not within 1 %. A small bound, so that refusals and evictions happen too.
    bus = SyncMessageBus()
    bus.create_channel("c", max_queue_size=5, drop_policy=policy)
    got = Collector()
    bus.subscribe("c", got)
    accepted, refused = [0] * 8, [0] * 8

    def publish(number: int) -> None:
        for step in range(500):
            try:
                bus.publish("c", (number, step), step % 3)
                accepted[number] += 1
            except QueueFull:
                refused[number] += 1

    with eager_switching():
        run_together(8, publish)
    assert bus.drain(GUARD_S)
    channel = bus.snapshot("c").channels[0]
    assert channel.outcomes["accepted"] == channel.published == sum(accepted)
    assert channel.outcomes["queue_full"] == sum(refused)
    assert sum(channel.outcomes.values()) == 4_000
    assert channel.dispatched + channel.evicted == channel.published
    assert len(got.bodies) == len(set(got.bodies)) == channel.dispatched
    assert len({message.id for message in got.messages}) == len(got.messages)
    assert len({message.sequence for message in got.messages}) == len(got.messages)
    bus.close(1)


def test_counts_are_exact_with_failures_and_several_channels() -> None:
    bus = SyncMessageBus()
    lock_free = Flaky(failures=0)

    def sometimes(message: Message) -> None:
        lock_free(message)
        if isinstance(message.body, int) and message.body % 10 == 0 and message.delivery_count == 1:
            raise ValueError("first time")

    bus.create_channel("a", max_queue_size=0)
    bus.create_channel("b", max_queue_size=0)
    bus.subscribe("a", sometimes, concurrency=4, retry_delay=0, group="g")
    bus.subscribe("b", sometimes, concurrency=4, retry_delay=0, group="g")
    with eager_switching():
        run_together(8, lambda number: [bus.publish("ab"[number % 2], step) for step in range(300)] and None)
        assert bus.drain(GUARD_S)
    assert bus.metrics()["published"] == 2_400
    assert bus.metrics()["dispatched"] == 2_400
    assert bus.metrics()["errors"] == 240
    assert bus.metrics("a")["published"] == bus.metrics("b")["published"] == 1_200
    assert len(lock_free.seen) == 2_640
    bus.close(1)


async def test_counts_are_exact_with_async_handlers(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=0)

    async def handler(message: Message) -> None:
        if message.sequence % 5 == 0:
            await asyncio.sleep(0)

    async_bus.subscribe("c", handler, concurrency=3)
    await asyncio.to_thread(
        run_together, 8, lambda number: [async_bus.publish_from_sync("c", step) for step in range(300)] and None
    )
    assert await async_bus.drain(GUARD_S)
    assert async_bus.metrics()["published"] == async_bus.metrics()["dispatched"] == 2_400


def test_inline_counts_are_exact_under_threads(sync_bus: SyncMessageBus) -> None:
    got: list[int] = []
    sync_bus.subscribe("c", lambda message: got.append(1), dispatch="inline")
    with eager_switching():
        run_together(8, lambda number: [sync_bus.publish("c") for _ in range(500)] and None)
    assert sync_bus.metrics()["published"] == sync_bus.metrics()["dispatched"] == len(got) == 4_000


def test_every_outcome_is_counted_once_by_its_kind(timed_bus: SyncMessageBus) -> None:
    timed_bus.create_channel("full", max_queue_size=1)
    timed_bus.create_channel("rate", rate_limit_per_sec=1, rate_limit_burst=1)
    timed_bus.create_channel("dup", dedup_window=60)
    for channel in ("full", "full", "rate", "rate", "nobody"):
        with contextlib.suppress(QueueFull, RateLimited):
            timed_bus.publish(channel)
    timed_bus.publish("dup", dedup_key="k")
    timed_bus.publish("dup", dedup_key="k")
    outcomes = {each.channel: {k: v for k, v in each.outcomes.items() if v} for each in timed_bus.snapshot().channels}
    assert outcomes["full"] == {"accepted": 1, "queue_full": 1}
    assert outcomes["rate"] == {"accepted": 1, "rate_limited": 1}
    assert outcomes["dup"] == {"accepted": 1, "duplicate": 1}
    assert outcomes["nobody"] == {"unrouted": 1}
    assert timed_bus.metrics()["dropped"] == 2


def test_publish_latency_is_of_successes_only_and_per_channel() -> None:
    # Quick refusals must not make an overloaded channel look fast, nor channels be mixed.
    class Ticking(HandClock):
        def step(self) -> int:
            self.monotonic += 1_000
            return self.monotonic

    ticking = Ticking()
    bus = SyncMessageBus(clock=Clock(wall_ns=lambda: ticking.wall, monotonic_ns=ticking.step))
    bus.create_channel("full", max_queue_size=1)
    bus.create_channel("open", max_queue_size=0)
    bus.publish("full")
    for _ in range(640):
        with pytest.raises(QueueFull):
            bus.publish("full")
    for _ in range(640):
        bus.publish("open")
    by_name = {each.channel: each for each in bus.snapshot().channels}
    assert by_name["full"].publish_latency.samples <= 1
    assert by_name["open"].publish_latency.samples == 10
    assert by_name["open"].publish_latency.mean_us == pytest.approx(1.0)
    assert bus.metrics("open")["avg_publish_latency_us"] == pytest.approx(1.0)
    bus.close(0.1)


def test_dispatch_latency_is_from_publish_to_hand_over(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.create_channel("c", max_queue_size=0)
    for number in range(128):
        timed_bus.publish("c", number)
    hand_clock.advance(0.5)
    timed_bus.subscribe("c", Collector())
    assert timed_bus.drain(GUARD_S)
    latency = timed_bus.snapshot("c").channels[0].dispatch_latency
    assert latency.samples == 2
    assert latency.mean_us == pytest.approx(500_000, rel=0.05)


def test_a_snapshot_does_not_change_afterwards(sync_bus: SyncMessageBus) -> None:
    sync_bus.publish("c")
    snapshot = sync_bus.snapshot()
    sync_bus.publish("c")
    assert sum(channel.outcomes["unrouted"] for channel in snapshot.channels) == 1


def test_failed_deliveries_are_errors_and_not_dispatched(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", Flaky(failures=9), retry_attempts=1, retry_delay=0)
    sync_bus.publish("c")
    assert sync_bus.drain(GUARD_S)
    channel = sync_bus.snapshot("c").channels[0]
    assert (channel.errors, channel.retried, channel.dead_lettered, channel.dispatched) == (2, 1, 1, 0)


def test_each_groups_delivery_is_counted(sync_bus: SyncMessageBus) -> None:
    for _ in range(3):
        sync_bus.subscribe("c", Collector())
    sync_bus.subscribe("", Collector(), match="prefix")
    sync_bus.publish("c")
    assert sync_bus.drain(GUARD_S)
    assert sync_bus.metrics("c")["published"] == 1
    assert sync_bus.metrics("c")["dispatched"] == 4
