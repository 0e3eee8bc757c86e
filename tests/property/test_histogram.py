"""Histograms against the sorted list of everything recorded."""

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.core.flow.histogram import LatencyHistogram, bucket_begins_ns, bucket_of

SCALE_END_NS = bucket_begins_ns(311)
"""Where the last bucket begins, which promises no accuracy."""

LATENCIES = st.one_of(st.integers(0, 100), st.integers(0, 10**6), st.integers(0, SCALE_END_NS - 1))
LISTS = st.lists(LATENCIES, min_size=1, max_size=100)
SHARES = st.one_of(st.sampled_from([0.0, 0.07, 0.1, 0.5, 0.9, 0.95, 0.99, 1.0]), st.floats(0.0, 1.0))


def recorded(values: list[int]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    return histogram


@settings(deadline=None)
@given(LISTS, SHARES)
def test_a_quantile_is_never_too_low_and_at_most_an_eighth_too_high(values: list[int], q: float) -> None:
    rank = max(1, math.ceil(Fraction(repr(q)) * len(values)))
    true = sorted(values)[rank - 1]
    got = recorded(values).quantile(q)
    assert true <= got <= min(max(values), true + true / 8)


@settings(deadline=None)
@given(LISTS, LISTS)
def test_merged_histograms_answer_as_one_that_saw_everything(one: list[int], other: list[int]) -> None:
    merged, whole = recorded(one), recorded(one + other)
    merged.merge(recorded(other))
    assert (merged.count, merged.sum_ns, merged.max_ns) == (len(one + other), sum(one + other), max(one + other))
    assert [merged.quantile(n / 10) for n in range(11)] == [whole.quantile(n / 10) for n in range(11)]
    assert merged.mean_us == whole.mean_us


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1))
def test_every_latency_falls_into_the_bucket_around_it(ns: int) -> None:
    index = bucket_of(ns)
    assert bucket_begins_ns(index) <= ns
    if index < 311:
        assert ns < bucket_begins_ns(index + 1)
