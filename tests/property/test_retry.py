"""Whatever the settings, a delay stays within its bounds and delays do not shrink."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.core.flow.retry import RetryPolicy

CHANCES = st.floats(0.0, 1.0, exclude_max=True)
POLICIES = st.builds(
    lambda delay_s, cap, backoff, jitter: RetryPolicy(5, min(delay_s, cap), backoff, cap, jitter),
    st.floats(0.0, 3600.0),
    st.floats(0.0, 3600.0),
    st.floats(1.0, 1e6),
    st.floats(0.0, 1.0),
)


@settings(deadline=None)
@given(POLICIES, st.integers(1, 1_000_000), CHANCES)
def test_a_delay_is_the_capped_power_spread_by_no_more_than_the_jitter(
    policy: RetryPolicy, attempt: int, chance: float
) -> None:
    middle_s = Fraction(policy.delay_s_max)
    if policy.delay_s == 0.0:
        middle_s = Fraction(0)
    elif attempt <= 64:  # Beyond that only the cap is checked, else the fractions get too long.
        middle_s = min(middle_s, Fraction(policy.delay_s) * Fraction(policy.backoff) ** (attempt - 1))
    spread = middle_s * Fraction(policy.jitter)
    slack = middle_s * 10**9 / 10**12 + 1  # The rounding of a double and of the last nanosecond.
    delay_ns = policy.delay_ns(attempt, chance)
    assert 0 <= delay_ns <= (middle_s + spread) * 10**9 + slack
    if attempt <= 64:
        assert delay_ns >= (middle_s - spread) * 10**9 - slack


@settings(deadline=None)
@given(POLICIES, st.integers(1, 10_000), CHANCES)
def test_with_the_same_chance_a_later_retry_never_waits_less(policy: RetryPolicy, attempt: int, chance: float) -> None:
    assert policy.delay_ns(attempt, chance) <= policy.delay_ns(attempt + 1, chance)


@settings(deadline=None)
@given(POLICIES, st.integers(1, 100), CHANCES, CHANCES)
def test_a_larger_chance_never_waits_less(policy: RetryPolicy, attempt: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert policy.delay_ns(attempt, low) <= policy.delay_ns(attempt, high)
