"""Retries: how often a failed message is redelivered, and after which delay.

`attempts` counts the retries after the first delivery: attempts=3 means at most four deliveries, attempts=0 one.
`delivery_count` is incremented when a message is delivered, so it is 1 while its first handler runs.

The delays grow: delay, delay * backoff, delay * backoff * backoff, up to a cap. A random jitter is then added, so that
messages which failed together are not redelivered together. backoff=1.0 with jitter=0.0 is a fixed delay.
"""

import math
from typing import Final, final

from mypy_extensions import i64

from unibus.errors import ConfigInvalid, UsageError
from unibus.limits import (
    RETRY_ATTEMPTS_DEFAULT,
    RETRY_BACKOFF_DEFAULT,
    RETRY_DELAY_S_DEFAULT,
    RETRY_DELAY_S_MAX,
    RETRY_JITTER_DEFAULT,
)

DELAY_S_MAX: Final = 366 * 24 * 3600.0
"""The longest allowed cap, a year: a longer one is a mistake in the unit."""

ATTEMPTS_MAX: Final = 1_000_000
"""Keeps every count far inside of 64 bits; more retries than this are without end in practice."""


@final
class RetryPolicy:
    """How one subscription retries failed deliveries. Checked when created, and immutable."""

    def __init__(
        self,
        attempts: int = RETRY_ATTEMPTS_DEFAULT,
        delay_s: float = RETRY_DELAY_S_DEFAULT,
        backoff: float = RETRY_BACKOFF_DEFAULT,
        delay_s_max: float = RETRY_DELAY_S_MAX,
        jitter: float = RETRY_JITTER_DEFAULT,
    ) -> None:
        if not 0 <= attempts <= ATTEMPTS_MAX:
            raise ConfigInvalid(f"retry attempts {attempts!r} is out of range", f"give 0 (no retry) to {ATTEMPTS_MAX}")
        _within("retry delay cap", delay_s_max, 0.0, DELAY_S_MAX)
        _within("retry delay", delay_s, 0.0, delay_s_max)
        _within("retry backoff", backoff, 1.0, math.inf)
        _within("retry jitter", jitter, 0.0, 1.0)
        self.attempts: Final = attempts
        self.delay_s: Final = delay_s
        self.backoff: Final = backoff
        self.delay_s_max: Final = delay_s_max
        self.jitter: Final = jitter
        self.deliveries_max: Final = attempts + 1

    def delay_ns(self, attempt: int, chance: float) -> i64:
        """The delay before retry number `attempt` (the first is 1).

        The caller draws `chance` at random from [0, 1). The result differs from the capped delay by at most jitter *
        delay, in either direction, so it may exceed the cap by that much.
        """
        if attempt < 1:
            raise UsageError(f"there is no retry number {attempt}", "the first retry is number 1")
        if not 0.0 <= chance < 1.0:
            raise UsageError(f"chance {chance!r} is out of range", "draw it from 0 up to, not including, 1")
        delay = self._delay_capped_s(attempt) * 1e9
        return round(delay + delay * self.jitter * (2.0 * chance - 1.0))

    def _delay_capped_s(self, attempt: int) -> float:
        if self.delay_s == 0.0:
            return 0.0
        try:
            growth = math.pow(self.backoff, attempt - 1)
        except OverflowError:
            return self.delay_s_max
        return min(self.delay_s_max, self.delay_s * growth)


def _within(name: str, value: float, low: float, high: float) -> None:
    # In this form NaN, which compares false with everything, is rejected too.
    if not low <= value <= high or math.isinf(value):
        raise ConfigInvalid(f"{name} {value!r} is out of range", f"give a finite number from {low} to {high}")
