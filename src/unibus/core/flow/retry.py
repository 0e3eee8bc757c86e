"""When a failed message is tried again, and when it is not.

`attempts` counts the retries after the first delivery: attempts=3 means at most four deliveries, attempts=0 one.
`delivery_count` is counted when a message is handed over, so it is 1 while its first handler runs.

The waits grow: delay, delay * backoff, delay * backoff * backoff, up to a cap. Each is then spread by chance, so that
messages which failed together do not come back together. backoff=1.0 with jitter=0.0 is a fixed delay.
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
"""No cap may be longer than a year: a wait that nobody will see the end of is a mistake in units."""

ATTEMPTS_MAX: Final = 1_000_000
"""Keeps every count far inside 64 bits; more retries than this is "for ever"."""


@final
class RetryPolicy:
    """One subscription's answer to failures. Checked when made, never changed after."""

    def __init__(
        self,
        attempts: int = RETRY_ATTEMPTS_DEFAULT,
        delay_s: float = RETRY_DELAY_S_DEFAULT,
        backoff: float = RETRY_BACKOFF_DEFAULT,
        delay_s_max: float = RETRY_DELAY_S_MAX,
        jitter: float = RETRY_JITTER_DEFAULT,
    ) -> None:
        if not 0 <= attempts <= ATTEMPTS_MAX:
            raise ConfigInvalid(f"retry attempts is {attempts!r}", f"give 0 (no retry) to {ATTEMPTS_MAX}")
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
        """How long to wait before retry number `attempt` (the first is 1).

        `chance` is drawn by the caller from [0, 1). The wait lies within jitter * delay of the capped delay, on
        either side, so it may pass the cap by that much.
        """
        if attempt < 1:
            raise UsageError(f"there is no retry number {attempt}", "the first retry is number 1")
        if not 0.0 <= chance < 1.0:
            raise UsageError(f"chance is {chance!r}", "draw it from 0 up to, not including, 1")
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
    # Written so that NaN, which compares false with everything, is refused too.
    if not low <= value <= high or math.isinf(value):
        raise ConfigInvalid(f"{name} is {value!r}", f"give a finite number from {low} to {high}")
