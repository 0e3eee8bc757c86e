"""How often a failed message is retried, and after which delays."""

import math

import pytest

from unibus.core.flow.deadletter import Verdict, after_failure
from unibus.core.flow.retry import RetryPolicy
from unibus.errors import ConfigInvalid, UsageError
from unibus.limits import (
    RETRY_ATTEMPTS_DEFAULT,
    RETRY_BACKOFF_DEFAULT,
    RETRY_DELAY_S_DEFAULT,
    RETRY_DELAY_S_MAX,
    RETRY_JITTER_DEFAULT,
)

MS = 1_000_000


def test_the_defaults_are_the_seeds_with_backoff_and_jitter() -> None:
    # Retry_attempts=3, retry_delay=0.1
    policy = RetryPolicy()
    assert (policy.attempts, policy.delay_s) == (3, 0.1) == (RETRY_ATTEMPTS_DEFAULT, RETRY_DELAY_S_DEFAULT)
    assert (policy.backoff, policy.jitter) == (RETRY_BACKOFF_DEFAULT, RETRY_JITTER_DEFAULT)
    assert policy.delay_s_max == RETRY_DELAY_S_MAX


def test_delays_double_up_to_the_cap() -> None:
    policy = RetryPolicy(attempts=9, delay_s=0.1, backoff=2.0, delay_s_max=1.0, jitter=0.0)
    assert [policy.delay_ns(attempt, 0.9) // MS for attempt in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]


@pytest.mark.parametrize("delay_s", [0.1, 0.3, 1.0, 7.7])
def test_backoff_one_without_jitter_is_the_second_seeds_fixed_delay(delay_s: float) -> None:
    policy = RetryPolicy(delay_s=delay_s, backoff=1.0, jitter=0.0)
    delays = {policy.delay_ns(attempt, chance) for attempt in (1, 2, 3, 1000) for chance in (0.0, 0.5, 0.999)}
    assert delays == {round(delay_s * 1e9)}


def test_chance_spreads_the_delay_evenly_around_its_middle() -> None:
    policy = RetryPolicy(delay_s=1.0, jitter=0.1)
    assert policy.delay_ns(1, 0.0) == 900 * MS
    assert policy.delay_ns(1, 0.5) == 1000 * MS
    assert policy.delay_ns(1, 0.75) == 1050 * MS
    assert policy.delay_ns(1, math.nextafter(1.0, 0.0)) == 1100 * MS


def test_jitter_comes_after_the_cap() -> None:
    # Otherwise everything that has reached the cap would be redelivered at once.
    policy = RetryPolicy(delay_s=1.0, delay_s_max=2.0, jitter=0.5)
    assert policy.delay_ns(30, 0.0) == 1000 * MS
    assert policy.delay_ns(30, 0.75) == 2500 * MS


def test_a_number_of_retries_that_no_float_can_raise_to_still_meets_the_cap() -> None:
    policy = RetryPolicy(backoff=1e300, jitter=0.0)
    assert policy.delay_ns(2, 0.0) == policy.delay_ns(1_000_000, 0.0) == 60_000 * MS


def test_no_delay_stays_no_delay() -> None:
    policy = RetryPolicy(delay_s=0.0, backoff=10.0)
    assert {policy.delay_ns(attempt, 0.9) for attempt in (1, 2, 10_000)} == {0}


@pytest.mark.parametrize(("attempts", "deliveries"), [(0, 1), (1, 2), (3, 4)])
def test_attempts_count_the_retries_after_the_first_delivery(attempts: int, deliveries: int) -> None:
    policy = RetryPolicy(attempts=attempts)
    delivery_count = 1
    while after_failure(delivery_count, policy.deliveries_max) is not Verdict.DEAD_LETTER:
        delivery_count += 1
    assert delivery_count == deliveries == policy.deliveries_max


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("attempts", -1),
        ("attempts", 10**9),
        ("delay_s", -0.1),
        ("delay_s", math.nan),
        ("delay_s", math.inf),
        ("delay_s", 60.1),  # More than the cap.
        ("delay_s_max", -1.0),
        ("delay_s_max", math.nan),
        ("delay_s_max", math.inf),
        ("backoff", 0.9),
        ("backoff", math.nan),
        ("backoff", math.inf),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", math.nan),
    ],
)
def test_a_setting_out_of_its_range_is_refused(setting: str, value: float) -> None:
    with pytest.raises(ConfigInvalid, match="retry"):
        RetryPolicy(**{setting: value})  # type: ignore[arg-type]


def test_the_edges_of_the_ranges_are_allowed() -> None:
    RetryPolicy(attempts=0, delay_s=0.0, backoff=1.0, delay_s_max=0.0, jitter=0.0)
    RetryPolicy(delay_s=60.0, jitter=1.0)
    RetryPolicy(delay_s=120.0, delay_s_max=120.0)


def test_a_retry_or_a_chance_that_cannot_be_is_refused() -> None:
    policy = RetryPolicy()
    with pytest.raises(UsageError, match="number 0"):
        policy.delay_ns(0, 0.5)
    for chance in (-0.1, 1.0, math.nan):
        with pytest.raises(UsageError, match="chance"):
            policy.delay_ns(1, chance)
