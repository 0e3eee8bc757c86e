"""The token bucket against rational arithmetic: nothing granted too early, too late or too often."""

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.core.flow.limiter import TokenBucket

SECOND = 1_000_000_000
RATES = st.one_of(
    st.sampled_from([0.1, 1 / 3, 0.5, 1.0, 7.0, 1000.1, 1e6, 1e9]), st.floats(1e-3, 1e9, allow_subnormal=False)
)
BURSTS = st.one_of(st.none(), st.sampled_from([1.0, 1.5, 10.0]), st.floats(1.0, 1e6))
STEPS = st.one_of(
    st.integers(0, 10), st.integers(-SECOND, SECOND), st.integers(0, 3600 * SECOND), st.sampled_from([SECOND // 3])
)
REQUESTS = st.lists(st.tuples(STEPS, st.integers(0, 12)), min_size=1, max_size=60)


class Model:
    """The rule written down once more, in fractions and without any thought of speed."""

    def __init__(self, rate: float, burst: float | None) -> None:
        self.rate = Fraction(repr(rate))
        self.burst = max(Fraction(1), 2 * self.rate) if burst is None else Fraction(repr(burst))
        self.tokens = self.burst
        self.latest_ns = 0

    def advance(self, now_ns: int) -> None:
        if now_ns > self.latest_ns:
            self.tokens = min(self.burst, self.tokens + self.rate * (now_ns - self.latest_ns) / SECOND)
            self.latest_ns = now_ns

    def try_acquire(self, n: int, now_ns: int) -> bool:
        self.advance(now_ns)
        if n > self.tokens:
            return False
        self.tokens -= n
        return True


@settings(deadline=None)
@given(RATES, BURSTS, REQUESTS)
def test_it_grants_what_the_model_grants(rate: float, burst: float | None, requests: list[tuple[int, int]]) -> None:
    bucket, model, now_ns = TokenBucket(rate, burst), Model(rate, burst), 0
    for step_ns, n in requests:
        now_ns += step_ns
        model.advance(now_ns)
        assert bucket.has(n, now_ns) == (n <= model.tokens)
        assert bucket.try_acquire(n, now_ns) == model.try_acquire(n, now_ns)
        assert math.isclose(bucket.available(now_ns), model.tokens, rel_tol=1e-12)


@settings(deadline=None)
@given(RATES, BURSTS, REQUESTS)
def test_no_interval_gets_more_than_the_burst_and_what_the_rate_gives(
    rate: float, burst: float | None, requests: list[tuple[int, int]]
) -> None:
    bucket, now_ns = TokenBucket(rate, burst), 0
    exact_rate = Fraction(repr(rate))
    room = max(Fraction(1), 2 * exact_rate) if burst is None else Fraction(repr(burst))
    granted: list[tuple[int, int]] = []
    for step_ns, n in requests:
        now_ns += abs(step_ns)
        if bucket.try_acquire(n, now_ns):
            granted.append((now_ns, n))
    for begin in range(len(granted)):
        total = 0
        for end_ns, n in granted[begin:]:
            total += n
            assert total <= room + exact_rate * (end_ns - granted[begin][0]) / SECOND


@settings(deadline=None)
@given(RATES, BURSTS, st.integers(0, 10), st.integers(1, 10))
def test_the_wait_is_long_enough_and_no_nanosecond_longer(rate: float, burst: float | None, taken: int, n: int) -> None:
    bucket, model = TokenBucket(rate, burst), Model(rate, burst)
    assert bucket.try_acquire(taken, 0) == model.try_acquire(taken, 0)
    wait_s = bucket.wait_s(n, 0)
    if n > model.burst:
        assert wait_s == math.inf
        return
    wait_ns = max(0, math.ceil((n - model.tokens) / model.rate * SECOND))
    assert wait_s == wait_ns / SECOND
    assert bucket.has(n, wait_ns)
    if wait_ns > 0:
        # A bucket cannot be asked about the past, so another one is asked a nanosecond earlier.
        earlier = TokenBucket(rate, burst)
        earlier.try_acquire(taken, 0)
        assert not earlier.has(n, wait_ns - 1)
