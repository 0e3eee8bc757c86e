"""A latency histogram of bounded size: counts in buckets whose width grows with the value.

Below 8 ns each value has its own bucket. From there on every power of two is cut into 8 equal parts, so a bucket
is at most an eighth of its value wide, whatever the scale:

    0 1 2 … 7 | 8 9 … 15 | 16 18 … 30 | 32 36 … 60 | 64 72 …        the value at which each bucket begins

The last bucket counts everything from 2,061,584,302,080 ns (34 minutes) on. Count, sum and maximum are exact.
The first record allocates the buckets: an unused histogram costs nothing.
"""

from fractions import Fraction
from typing import Final, final

from mypy_extensions import i64

from unibus.core.atomic import atomic
from unibus.errors import UsageError

_EXPONENT_MAX: Final = 40
BUCKET_COUNT: Final = (_EXPONENT_MAX - 1) * 8


@final
class LatencyHistogram:
    def __init__(self) -> None:
        self.count: i64 = 0
        self.sum_ns: i64 = 0
        self.max_ns: i64 = 0
        self._buckets: list[int] = []

    def record(self, ns: i64) -> None:
        """Count one latency. A negative one (the clock was set back) counts as 0."""
        if ns < 0:
            ns = 0
        if not self._buckets:
            self._make_buckets()
        self.count += 1
        self.sum_ns += ns
        if ns > self.max_ns:
            self.max_ns = ns
        self._buckets[bucket_of(ns)] += 1

    @property
    def mean_us(self) -> float:
        """The exact mean in microseconds; 0.0 if nothing was recorded."""
        if self.count == 0:
            return 0.0
        sum_ns: int = self.sum_ns
        count: int = self.count
        return sum_ns / count / 1_000.0

    def quantile(self, q: float) -> i64:
        """The value in ns that the share `q` of all records does not exceed; 0 if nothing was recorded.

        Never below the exact one, at most an eighth above it (the last bucket is wider), never above the maximum.
        """
        if not 0.0 <= q <= 1.0:
            raise UsageError(f"a quantile must be from 0.0 to 1.0, got {q!r}")
        if self.count == 0:
            return 0
        # 0.07 of 100 records are 7. The product of the floats is a little more, and would select the eighth.
        share = Fraction(repr(q)) * int(self.count)
        rank = max(1, -(-share.numerator // share.denominator))
        return min(self.max_ns, self._value_at(rank))

    def merge(self, other: "LatencyHistogram") -> None:
        """Add the counts of the other, which is not changed."""
        if other.count == 0:
            return
        if not self._buckets:
            self._make_buckets()
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        for index, number in enumerate(other._buckets):
            self._buckets[index] += number

    def _make_buckets(self) -> None:
        buckets = [0] * BUCKET_COUNT
        if not self._buckets:  # Check again: the allocation may have run another thread (see core.atomic).
            self._buckets = buckets

    def _value_at(self, rank: int) -> i64:
        """The largest value of the bucket that holds the record of that rank, counted from 1."""
        passed = 0
        for index, number in enumerate(self._buckets):
            passed += number
            if passed >= rank and index < BUCKET_COUNT - 1:
                return bucket_begins_ns(index + 1) - 1
        return self.max_ns


atomic(LatencyHistogram, "record", "quantile", "merge")


def bucket_of(ns: i64) -> i64:
    """The bucket that counts this latency, which must not be negative."""
    if ns < 8:
        return ns
    whole: int = ns
    exponent: i64 = whole.bit_length() - 1
    if exponent > _EXPONENT_MAX:
        return BUCKET_COUNT - 1
    # The three bits after the leading one select the part; the leading one itself adds 8.
    return (exponent - 3) * 8 + (ns >> (exponent - 3))


def bucket_begins_ns(index: i64) -> i64:
    """The smallest latency that the bucket counts."""
    if index < 8:
        return index
    shift = (index >> 3) - 1
    part: i64 = 8 + (index & 7)
    return part << shift
