"""Counters that add up, and the six totals of a snapshot."""

import pytest

from unibus import errors
from unibus.core.flow.metrics import COUNTERS, SEED_KEYS, ChannelMetrics, total
from unibus.errors import (
    BusClosed,
    BusError,
    ChannelNotFound,
    DuplicateMessage,
    HeaderInvalid,
    MessageTooLarge,
    NameInvalid,
    PriorityInvalid,
    PublishError,
    QueueFull,
    RateLimited,
    SerializationFailed,
)

ERROR_CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BusError)]


class StoreFailed(PublishError):
    """An error without a counter of its own."""


def test_nothing_counted_is_all_zero_with_zero_averages() -> None:
    assert (
        total([]).as_dict()
        == total([ChannelMetrics("a")]).as_dict()
        == {
            "published": 0,
            "dispatched": 0,
            "dropped": 0,
            "errors": 0,
            "avg_publish_latency_us": 0.0,
            "avg_dispatch_latency_us": 0.0,
        }
    )


def test_the_dict_has_the_seeds_six_keys_and_no_other() -> None:
    assert tuple(total([ChannelMetrics("a")]).as_dict()) == SEED_KEYS


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (QueueFull("x"), "queue_full"),
        (RateLimited("x"), "rate_limited"),
        (MessageTooLarge("x"), "too_large"),
        (ChannelNotFound("x"), "not_found"),
        (BusClosed("x"), "closed"),
        (SerializationFailed("x"), "serialization_failed"),
        (DuplicateMessage("x"), "duplicate"),
        (PriorityInvalid("x"), "invalid"),
        (NameInvalid("x"), "invalid"),
        (HeaderInvalid("x"), "invalid"),
        (StoreFailed("x"), "failed"),
    ],
)
def test_a_refusal_is_counted_under_the_kind_of_its_error(error: BusError, kind: str) -> None:
    metrics = ChannelMetrics("a")
    metrics.count_refusal(error)
    assert {name: number for name, number in metrics.outcomes().items() if number} == {kind: 1}


@pytest.mark.parametrize("error_class", ERROR_CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_there_is_counts_exactly_once(error_class: type[BusError]) -> None:
    metrics = ChannelMetrics("a")
    metrics.count_refusal(error_class("x"))
    assert sum(metrics.outcomes().values()) == 1
    assert metrics.published == 0


def test_every_outcome_is_counted_once_so_that_their_sum_is_all_publishes() -> None:
    metrics = ChannelMetrics("a")
    metrics.published += 5
    metrics.unrouted += 3
    metrics.duplicate += 2
    for error in (QueueFull("x"), RateLimited("x"), RateLimited("x"), StoreFailed("x")):
        metrics.count_refusal(error)
    outcomes = metrics.outcomes()
    assert outcomes["accepted"] == 5
    assert sum(outcomes.values()) == 14
    assert metrics.refused == 4


def test_dropped_is_what_somebody_missed() -> None:
    # A failed publish is dropped. A duplicate is not: its first copy was taken.
    metrics = ChannelMetrics("a")
    metrics.duplicate += 10
    metrics.unrouted += 10
    metrics.expired += 10
    assert metrics.dropped == 0
    metrics.queue_full += 1
    metrics.evicted += 20
    metrics.overflowed += 300
    metrics.discarded += 4000
    assert metrics.dropped == 4321
    assert total([metrics]).dropped == 4321


def test_averages_are_of_the_measured_successes_alone() -> None:
    # Refusals and publishes that were not measured leave the average as it is.
    metrics = ChannelMetrics("a")
    metrics.published += 1_000
    for ns in (1_000, 3_000):
        metrics.publish_latency.record(ns)
    metrics.dispatch_latency.record(500)
    for _ in range(100):
        metrics.count_refusal(QueueFull("x"))
    snapshot = total([metrics])
    assert snapshot.avg_publish_latency_us == 2.0
    assert snapshot.avg_dispatch_latency_us == 0.5
    assert snapshot.channels[0].publish_latency.samples == 2


def test_the_total_is_the_sum_over_the_channels() -> None:
    first, second = ChannelMetrics("a"), ChannelMetrics("b")
    first.published, second.published = 3, 4
    first.dispatched, second.dispatched = 30, 40
    first.errors, second.errors = 1, 2
    first.evicted, second.queue_full = 5, 6
    # Averages weigh messages, not channels: one of 10 µs and three of 2 µs.
    first.publish_latency.record(10_000)
    for _ in range(3):
        second.publish_latency.record(2_000)
    snapshot = total([first, second])
    assert snapshot.as_dict() == {
        "published": 7,
        "dispatched": 70,
        "dropped": 11,
        "errors": 3,
        "avg_publish_latency_us": 4.0,
        "avg_dispatch_latency_us": 0.0,
    }
    assert [channel.channel for channel in snapshot.channels] == ["a", "b"]
    assert [channel.published for channel in snapshot.channels] == [3, 4]


def test_a_snapshot_does_not_move() -> None:
    metrics = ChannelMetrics("a")
    metrics.published += 1
    metrics.publish_latency.record(1_000)
    snapshot = total([metrics])
    metrics.published += 1
    metrics.publish_latency.record(9_000)
    metrics.count_refusal(QueueFull("x"))
    assert (snapshot.published, snapshot.dropped, snapshot.avg_publish_latency_us) == (1, 0, 1.0)
    assert snapshot.channels[0].outcomes["queue_full"] == 0
    assert snapshot.channels[0].publish_latency.max_us == 1.0
    with pytest.raises(AttributeError):
        snapshot.published = 5  # type: ignore[misc]


def test_a_channel_by_itself_shows_everything_that_is_counted() -> None:
    metrics = ChannelMetrics("a")
    for number, name in enumerate(COUNTERS, start=1):
        for _ in range(number):
            metrics.count(name)
    snapshot = metrics.snapshot()
    shown = snapshot._asdict() | snapshot.outcomes
    assert {name: shown[name] for name in COUNTERS} == {name: number for number, name in enumerate(COUNTERS, start=1)}
    assert snapshot.outcomes["accepted"] == snapshot.published


def test_a_channel_shows_how_its_latencies_are_spread() -> None:
    metrics = ChannelMetrics("a")
    for ns in range(1_000, 101_000, 1_000):
        metrics.dispatch_latency.record(ns)
    latency = metrics.snapshot().dispatch_latency
    assert (latency.samples, latency.mean_us, latency.max_us) == (100, 50.5, 100.0)
    for got, true in ((latency.p50_us, 50.0), (latency.p95_us, 95.0), (latency.p99_us, 99.0)):
        assert true <= got <= true * 9 / 8


def test_merging_adds_every_counter_and_the_latencies() -> None:
    kept, gone = ChannelMetrics("a"), ChannelMetrics("b")
    for name in COUNTERS:
        kept.count(name)
        gone.count(name)
        gone.count(name)
    gone.publish_latency.record(1_000)
    gone.dispatch_latency.record(2_000)
    kept.merge(gone)
    assert {getattr(kept, name) for name in COUNTERS} == {3}
    assert {getattr(gone, name) for name in COUNTERS} == {2}
    assert (kept.publish_latency.sum_ns, kept.dispatch_latency.sum_ns) == (1_000, 2_000)


def test_the_list_of_counters_is_complete() -> None:
    metrics = ChannelMetrics("a")
    numbers = {name for name in dir(metrics) if not name.startswith("_") and type(getattr(metrics, name)) is int}
    assert set(COUNTERS) == numbers - {"dropped", "refused"}
