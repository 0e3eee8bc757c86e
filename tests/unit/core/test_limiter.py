"""The token bucket: what it grants and when, and which settings it rejects."""

import math

import pytest

from unibus.core.flow.limiter import TokenBucket
from unibus.errors import ConfigInvalid, UsageError

SECOND = 1_000_000_000


def test_it_starts_full_and_the_burst_is_twice_the_rate_by_default() -> None:
    bucket = TokenBucket(5.0)
    assert [bucket.try_acquire(1, 0) for _ in range(11)] == [True] * 10 + [False]


def test_a_given_burst_replaces_the_default() -> None:
    bucket = TokenBucket(5.0, 3.0)
    assert [bucket.try_acquire(1, 0) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.499])
def test_a_slow_rate_still_lets_one_message_through(rate: float) -> None:
    # Twice such a rate is less than one token, and the bucket would never grant any.
    bucket = TokenBucket(rate)
    assert bucket.try_acquire(1, 0)
    assert not bucket.try_acquire(1, 0)
    assert bucket.try_acquire(1, math.ceil(SECOND / rate))


def test_a_token_comes_exactly_when_it_is_due() -> None:
    bucket = TokenBucket(3.0, 1.0)
    assert bucket.try_acquire(1, 0)
    third = 333_333_334  # A third of a second, to the next nanosecond.
    assert not bucket.try_acquire(1, third - 1)
    assert bucket.try_acquire(1, third)


def test_a_rate_means_the_decimal_number_that_was_written() -> None:
    # The double nearest to 0.3 is a little less, and would be a nanosecond late.
    bucket = TokenBucket(0.3, 3.0)
    assert bucket.try_acquire(3, 0)
    assert not bucket.try_acquire(3, 10 * SECOND - 1)
    assert bucket.try_acquire(3, 10 * SECOND)


def test_many_small_steps_add_up_to_one_big_step() -> None:
    stepped = TokenBucket(0.7, 1_000.0)
    waited = TokenBucket(0.7, 1_000.0)
    for bucket in (stepped, waited):
        assert bucket.try_acquire(1_000, 0)
    for now_ns in range(0, 100_000 * 7_919, 7_919):
        stepped.has(1, now_ns)
    assert stepped.available(10 * SECOND) == waited.available(10 * SECOND) == 7.0


def test_it_never_holds_more_than_the_burst() -> None:
    bucket = TokenBucket(10.0, 4.0)
    assert bucket.available(3600 * SECOND) == 4.0
    assert not bucket.has(5, 3600 * SECOND)


def test_looking_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 2.0)
    assert all(bucket.has(2, 0) for _ in range(10))
    assert bucket.available(0) == 2.0
    assert bucket.try_acquire(2, 0)
    assert not bucket.has(1, 0)


def test_a_refusal_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 3.0)
    assert bucket.try_acquire(2, 0)
    assert not bucket.try_acquire(2, 0)
    assert bucket.try_acquire(1, 0)


def test_time_that_goes_back_neither_adds_nor_removes_tokens() -> None:
    bucket = TokenBucket(1.0, 10.0, now_ns=100 * SECOND)
    assert bucket.try_acquire(10, 100 * SECOND)
    assert bucket.available(105 * SECOND) == 5.0
    assert bucket.available(50 * SECOND) == 5.0
    # The five seconds up to the latest time were already paid.
    assert bucket.available(105 * SECOND) == 5.0
    assert bucket.available(106 * SECOND) == 6.0


def test_the_wait_ends_in_the_nanosecond_in_which_the_tokens_are_there() -> None:
    bucket = TokenBucket(4.0, 4.0)
    assert bucket.wait_s(4, 0) == 0.0
    assert bucket.try_acquire(4, 0)
    assert bucket.wait_s(1, 0) == 0.25
    assert bucket.wait_s(3, SECOND // 4) == 0.5
    assert bucket.wait_s(1, SECOND // 4) == 0.0
    assert bucket.available(0) == 1.0  # Waiting took nothing.


def test_more_than_the_burst_is_never_granted_and_the_wait_is_infinite() -> None:
    bucket = TokenBucket(1.0, 2.0)
    assert not bucket.has(3, 10**18)
    assert not bucket.try_acquire(3, 10**18)
    assert bucket.wait_s(3, 10**18) == math.inf
    assert bucket.wait_s(2, 10**18) == 0.0


def test_a_wait_that_no_float_can_say_is_infinite() -> None:
    bucket = TokenBucket(5e-324, 1.0)
    assert bucket.try_acquire(1, 0)
    assert bucket.wait_s(1, 0) == math.inf


def test_taking_nothing_always_succeeds_and_less_than_nothing_is_an_error() -> None:
    bucket = TokenBucket(1.0, 1.0)
    assert bucket.try_acquire(1, 0)
    assert bucket.try_acquire(0, 0)
    for call in (bucket.has, bucket.try_acquire, bucket.wait_s):
        with pytest.raises(UsageError):
            call(-1, 0)
    assert bucket.available(0) == 0.0


@pytest.mark.parametrize("value", [0.0, -1.0, -0.0, math.nan, math.inf, -math.inf])
def test_a_rate_or_burst_that_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(ConfigInvalid, match="rate_per_s"):
        TokenBucket(value)
    with pytest.raises(ConfigInvalid, match="burst"):
        TokenBucket(1.0, value)


def test_a_burst_below_one_token_is_refused_because_it_would_block_for_ever() -> None:
    with pytest.raises(ConfigInvalid, match="no message"):
        TokenBucket(100.0, 0.99)
    assert TokenBucket(100.0, 1.0).try_acquire(1, 0)


def test_extreme_rates_stay_exact() -> None:
    fast = TokenBucket(1e12, 1.0)
    assert fast.try_acquire(1, 0)
    assert fast.try_acquire(1, 1)  # A thousand tokens a nanosecond, capped at one.
    slow = TokenBucket(1e-9, 1.0)  # One token in 10**18 ns.
    assert slow.try_acquire(1, 0)
    assert not slow.try_acquire(1, 10**18 - 1)
    assert slow.try_acquire(1, 10**18)
