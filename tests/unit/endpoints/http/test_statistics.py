"""Histograms for the busiest entities: bounded, and never decreasing."""

import pytest

from unibus.endpoints.http import statistics
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.statistics import BOUNDS_NS, LATENCY_OF, Histogram, Latencies, Statistics


def exists(name: str) -> bool:
    return not name.startswith("gone")


def total(latencies: Latencies) -> int:
    return sum([sum(each.counts) for each in latencies.own.values()]) + sum(latencies.others.counts)


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram()
    for bound in BOUNDS_NS:
        histogram.record(bound)
    assert histogram.counts == [1] * len(BOUNDS_NS) + [0]
    histogram.record(BOUNDS_NS[-1] + 1)
    histogram.record(0)
    assert (histogram.counts[-1], histogram.counts[0]) == (1, 2)
    assert histogram.sum_ns == sum(BOUNDS_NS) + BOUNDS_NS[-1] + 1


def test_a_busier_entity_takes_the_place_of_the_least_busy() -> None:
    latencies = Latencies(2)
    for name, count in (("a", 5), ("b", 1), ("c", 3)):
        for _ in range(count):
            latencies.record(name, 1)
    assert (set(latencies.own), sum(latencies.others.counts)) == ({"a", "b"}, 3)
    latencies.rebalance(exists)
    assert set(latencies.own) == {"a", "c"}
    assert sum(latencies.own["c"].counts) == 0
    assert sum(latencies.others.counts) == 3  # What it did before stays there: the series never decreases.
    latencies.record("c", 1)
    assert sum(latencies.own["c"].counts) == 1


def test_entities_that_are_alike_do_not_swap() -> None:
    latencies = Latencies(1)
    for _ in range(4):
        latencies.record("a", 1)
    for _ in range(8):
        latencies.record("b", 1)
    latencies.rebalance(exists)
    assert set(latencies.own) == {"a"}


def test_deleted_entities_free_their_place() -> None:
    latencies = Latencies(1)
    latencies.record("gone", 1)
    latencies.record("a", 1)
    latencies.rebalance(exists)
    assert set(latencies.own) == {"a"}
    latencies.rebalance(lambda name: False)
    assert not latencies.own


def test_only_what_was_done_since_the_last_call_counts_as_busy() -> None:
    latencies = Latencies(1)
    for _ in range(100):
        latencies.record("a", 1)
    latencies.rebalance(exists)
    for _ in range(3):
        latencies.record("b", 1)
    latencies.rebalance(exists)
    assert set(latencies.own) == {"b"}


def test_a_flood_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "ACTIVITY_MAX", 50)
    latencies = Latencies(10)
    for number in range(1_000):
        latencies.record(f"q{number}", 1)
    assert (len(latencies.own), len(latencies._recent), total(latencies)) == (10, 50, 1_000)
    latencies.rebalance(exists)
    assert len(latencies.own) == 10


def test_no_room_at_all_means_one_series() -> None:
    latencies = Latencies(0)
    latencies.record("a", 1)
    latencies.rebalance(exists)
    assert (latencies.own, total(latencies)) == ({}, 1)


def test_requests_and_errors() -> None:
    counted = Statistics()
    counted.count("send", 201, "")
    counted.count("send", 201, "")
    counted.count("send", 404, "entity_not_found")
    assert counted.requests == {("send", 201): 2, ("send", 404): 1}
    assert counted.errors == {("send", "entity_not_found"): 1}


def test_every_operation_that_has_a_histogram_exists() -> None:
    names = {operation.name for operation in TABLE.operations}
    messages = {operation.name for operation in TABLE.operations if operation.tag == "messages"}
    if messages:
        assert LATENCY_OF.keys() <= names
