"""A histogram of durations with four buckets per power of two, so a quantile read from it is wrong by less than 20 %.

Bucket b holds durations from 2^(b/4) up to 2^((b+1)/4) microseconds, bucket 0 also shorter ones. Histograms of several
minutes, channels or batches can be added; quantiles could not.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_STEPS = 4
_ROUNDING = 1e-9
"""The computed logarithm of a power of two may be slightly too small."""


def bucket_of(duration_us: int) -> int:
    return math.floor(math.log2(max(duration_us, 1)) * _STEPS + _ROUNDING)


def buckets_of(durations_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
    logarithms = np.log2(np.maximum(durations_us, 1).astype(np.float64))
    return np.floor(logarithms * _STEPS + _ROUNDING).astype(np.int16)


def lower_us(bucket: int) -> float:
    return 0.0 if bucket <= 0 else float(2 ** (bucket / _STEPS))


def upper_us(bucket: int) -> float:
    return float(2 ** ((bucket + 1) / _STEPS))


def quantile_us(counts: Iterable[tuple[int, int]], share: float) -> float | None:
    """From (bucket, n): the geometric middle of the bucket in which that share is reached. None if all are empty."""
    ordered = sorted((bucket, n) for bucket, n in counts if n > 0)
    wanted = share * sum(n for _bucket, n in ordered)
    for bucket, n in ordered:
        wanted -= n
        if wanted <= 0:
            return math.sqrt(max(lower_us(bucket), 1.0) * upper_us(bucket))
    return None
