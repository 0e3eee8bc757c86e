"""The rate limit of a channel: a token bucket without rounding errors.

The invariant: in any interval at most burst + rate * elapsed tokens are granted. Fractions of a token are whole numbers
of a unit that is chosen once, so nothing is rounded, and a million small steps add up to one large step. A rate means
the decimal number that Python prints for it: 0.1 is one tenth, not the nearest double.

Time only moves forward here: a `now_ns` before the latest one counts as the latest one.
"""

import math
from fractions import Fraction
from typing import final

from unibus.core.atomic import atomic
from unibus.errors import ConfigInvalid, UsageError
from unibus.limits import RATE_LIMIT_BURST_FACTOR


@final
class TokenBucket:
    """Starts full. Holds at most `burst` tokens and gains `rate_per_s` of them a second.

    Without a burst it holds two seconds of its rate, but at least one whole token: a smaller bucket would never grant
    one, so a burst below 1 is rejected. A request for more tokens than the burst is not an error: it is never granted,
    and its wait is infinite.
    """

    def __init__(self, rate_per_s: float, burst: float | None = None, now_ns: int = 0) -> None:
        rate = _positive("rate_per_s", rate_per_s)
        if burst is None:
            capacity = max(Fraction(1), rate * Fraction(RATE_LIMIT_BURST_FACTOR))
        else:
            capacity = _positive("burst", burst)
            if capacity < 1:
                raise ConfigInvalid(f"burst {burst!r} is below 1: no message could pass", "give at least 1")
        gain = rate / 1_000_000_000
        # The smallest unit in which a token, the gain of a nanosecond and the full bucket are all whole numbers.
        token = math.lcm(gain.denominator, capacity.denominator)
        self._token: int = token
        self._gain_per_ns: int = int(gain * token)
        self._capacity: int = int(capacity * token)
        self._level: int = self._capacity
        self._latest_ns: int = now_ns

    def has(self, n: int, now_ns: int) -> bool:
        """Whether `try_acquire` would succeed now. Takes no token."""
        self._refill(now_ns)
        return _counted(n) * self._token <= self._level

    def try_acquire(self, n: int, now_ns: int) -> bool:
        """Take all `n` tokens and return True, or take none and return False."""
        self._refill(now_ns)
        cost = _counted(n) * self._token
        if cost > self._level:
            return False
        self._level -= cost
        return True

    def refund(self, n: int) -> None:
        """Return tokens that were taken and not used; never beyond the burst."""
        self._level = min(self._capacity, self._level + _counted(n) * self._token)

    def wait_s(self, n: int, now_ns: int) -> float:
        """Seconds until the bucket has `n` tokens if none is taken, to the next nanosecond. Infinite above the
        burst."""
        self._refill(now_ns)
        cost = _counted(n) * self._token
        if cost > self._capacity:
            return math.inf
        missing = cost - self._level
        if missing <= 0:
            return 0.0
        try:
            return -(-missing // self._gain_per_ns) / 1_000_000_000
        except OverflowError:  # Beyond the range of a float.
            return math.inf

    def available(self, now_ns: int) -> float:
        """Tokens in the bucket now, fractions included."""
        self._refill(now_ns)
        return self._level / self._token

    def _refill(self, now_ns: int) -> None:
        elapsed_ns = now_ns - self._latest_ns
        if elapsed_ns <= 0:
            return
        self._latest_ns = now_ns
        self._level = min(self._capacity, self._level + elapsed_ns * self._gain_per_ns)


atomic(TokenBucket, "has", "try_acquire", "refund", "wait_s", "available")


def _positive(name: str, value: float) -> Fraction:
    if not value > 0.0 or math.isinf(value):
        raise ConfigInvalid(f"{name} must be a finite number above 0, got {value!r}")
    return Fraction(repr(value))


def _counted(n: int) -> int:
    if n < 0:
        raise UsageError(f"the number of tokens must be 0 or more, got {n}")
    return n
