"""Latency histograms: exact where promised, an eighth off where not."""

import math

import pytest

from unibus.core.flow.histogram import BUCKET_COUNT, LatencyHistogram, bucket_begins_ns, bucket_of
from unibus.errors import UsageError


def filled(*values: int) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    return histogram


def test_nothing_recorded_reads_as_zero() -> None:
    empty = LatencyHistogram()
    assert (empty.count, empty.sum_ns, empty.max_ns) == (0, 0, 0)
    assert empty.mean_us == 0.0
    assert [empty.quantile(q) for q in (0.0, 0.5, 1.0)] == [0, 0, 0]


def test_count_sum_maximum_and_mean_are_exact() -> None:
    histogram = filled(1_001, 2_002, 123_456_789)
    assert (histogram.count, histogram.sum_ns, histogram.max_ns) == (3, 123_459_792, 123_456_789)
    assert histogram.mean_us == 123_459_792 / 3 / 1_000


def test_small_values_have_buckets_of_their_own() -> None:
    histogram = filled(*range(16))
    assert [histogram.quantile(n / 16) for n in range(1, 17)] == list(range(16))


def test_a_quantile_is_at_most_an_eighth_above_the_true_one() -> None:
    histogram = filled(*range(1_000, 101_000, 10))
    for q, true in ((0.5, 50_990), (0.9, 90_990), (0.99, 99_990)):
        assert true <= histogram.quantile(q) <= true * 9 / 8


def test_no_quantile_is_above_the_maximum() -> None:
    histogram = filled(1_000_001)
    assert {histogram.quantile(q) for q in (0.0, 0.5, 0.999, 1.0)} == {1_000_001}


def test_the_share_is_meant_as_written() -> None:
    # 0.07 * 100 is a little more than 7 in doubles, and would find the eighth record.
    histogram = filled(*[1] * 7, *[1_000] * 93)
    assert histogram.quantile(0.07) == 1
    assert histogram.quantile(0.071) > 1


@pytest.mark.parametrize("q", [-0.01, 1.01, math.nan, math.inf])
def test_a_share_outside_of_zero_to_one_is_refused(q: float) -> None:
    with pytest.raises(UsageError, match="quantile"):
        filled(1).quantile(q)


def test_a_negative_latency_counts_as_zero() -> None:
    histogram = filled(-5)
    assert (histogram.count, histogram.sum_ns, histogram.max_ns, histogram.quantile(1.0)) == (1, 0, 0, 0)


def test_latencies_beyond_the_scale_share_the_last_bucket_and_keep_the_maximum() -> None:
    day = 86_400_000_000_000
    histogram = filled(1, day, 2 * day)
    assert histogram.max_ns == 2 * day
    assert histogram.quantile(1.0) == 2 * day
    assert histogram.quantile(0.3) == 1
    assert bucket_of(day) == bucket_of(2**62) == BUCKET_COUNT - 1


def test_buckets_begin_where_the_one_before_ends() -> None:
    for index in range(BUCKET_COUNT):
        begins = bucket_begins_ns(index)
        assert bucket_of(begins) == index
        if index > 0:
            assert bucket_of(begins - 1) == index - 1
            assert begins - bucket_begins_ns(index - 1) <= max(1, begins / 8)


def test_merging_is_like_recording_both() -> None:
    one, other = filled(1, 50, 70_000), filled(3, 900, 80_000_000)
    one.merge(other)
    both = filled(1, 50, 70_000, 3, 900, 80_000_000)
    assert (one.count, one.sum_ns, one.max_ns) == (both.count, both.sum_ns, both.max_ns)
    assert [one.quantile(n / 6) for n in range(7)] == [both.quantile(n / 6) for n in range(7)]
    assert (other.count, other.max_ns) == (3, 80_000_000)
    other.record(5)
    assert one.count == 6


def test_merging_with_nothing_changes_nothing_and_from_nothing_copies() -> None:
    one = filled(7, 8)
    one.merge(LatencyHistogram())
    assert (one.count, one.quantile(1.0)) == (2, 8)
    fresh = LatencyHistogram()
    fresh.merge(one)
    assert (fresh.count, fresh.sum_ns, fresh.max_ns, fresh.quantile(0.5)) == (2, 15, 8, 7)
