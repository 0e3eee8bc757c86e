# mypyc: compiled
"""Rate limits of a server's clients: a token bucket for each entity and operation (send, receive).

The rates are settings of the entity (`max_sends_per_second`, `max_receives_per_second`); without them nothing is
counted. A bucket holds two seconds of its rate. Time is an argument, so that a test can move it. The Python API of the
process that owns the store is not limited here: its channels have rate limits of their own.
"""

import math
from typing import Final

from unibus.core.envelope.message import Message
from unibus.core.flow.limiter import TokenBucket
from unibus.core.lifecycle.envelope import send_of
from unibus.errors import RateLimited
from unibus.stores.seam.catalog import Catalog, KnownEntity

SEND: Final = "send"
RECEIVE: Final = "receive"
BUCKETS_MAX: Final = 20_000
"""More than a store has entities by default. Beyond that all buckets are dropped: a new one is a full one."""


class RateLimits:
    """The buckets of one server."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, str], tuple[float, TokenBucket]] = {}

    def admit_sends(self, entity: KnownEntity, count: int, now_ns: int) -> None:
        """Take the tokens for all of them, or raise RateLimited and take none."""
        rate = entity.settings.sends_per_s
        if rate:
            bucket = self._bucket(entity, SEND, rate, now_ns)
            # All or none: a batch is stored as a whole, so half of its tokens would be of no use.
            if not bucket.try_acquire(count, now_ns):
                raise _limited(entity, SEND, bucket.wait_s(count, now_ns))

    def admit_messages(self, entity: KnownEntity, messages: list[Message], catalog: Catalog, now_ns: int) -> None:
        """The same. Duplicates need no token: a client may send again a message that it got no answer for."""
        try:
            # Optimistic: to count the duplicates costs a lookup for each message, and most sends are within the rate.
            self.admit_sends(entity, len(messages), now_ns)
        except RateLimited:
            # Without a dedup window only messages with a key of their own can be duplicates.
            keyed = any(
                [message.properties is not None and message.properties.dedup_key is not None for message in messages]
            )
            if not entity.settings.dedup_ns and not keyed:
                raise
            new = catalog.count_new([send_of(message, entity.name) for message in messages])
            if new:
                self.admit_sends(entity, new, now_ns)

    def admit_receives(self, entity: KnownEntity, count: int, now_ns: int) -> int:
        """How many messages may be received now, up to `count`; takes that many tokens. Raises RateLimited for none."""
        rate = entity.settings.receives_per_s
        if not rate:
            return count
        bucket = self._bucket(entity, RECEIVE, rate, now_ns)
        # Not all or none, as for sends: a receiver that asks for a hundred messages is content with ten. Rounded down:
        # a fraction of a token is no message.
        allowed = min(count, int(bucket.available(now_ns)))
        if allowed < 1 or not bucket.try_acquire(allowed, now_ns):
            raise _limited(entity, RECEIVE, bucket.wait_s(1, now_ns))
        return allowed

    def refund_receives(self, entity: KnownEntity, count: int, now_ns: int) -> None:
        """Return the tokens of messages that were not received."""
        rate = entity.settings.receives_per_s
        if rate and count > 0:
            # If the rate was changed meanwhile, this is a new and full bucket, and a refund never exceeds the burst.
            self._bucket(entity, RECEIVE, rate, now_ns).refund(count)

    def _bucket(self, entity: KnownEntity, operation: str, rate: float, now_ns: int) -> TokenBucket:
        key = (entity.number, operation)
        found = self._buckets.get(key)
        # By the number of the entity and not by its name: an entity that was deleted and created again begins with a
        # full bucket.
        if found is None or found[0] != rate:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.clear()
            found = (rate, TokenBucket(rate, None, now_ns))
            self._buckets[key] = found
        return found[1]


def _limited(entity: KnownEntity, operation: str, wait_s: float) -> RateLimited:
    if math.isfinite(wait_s):
        hint = f"try again in {wait_s:.3f} s"
    else:
        # Infinite: the bucket never holds that many tokens, so a retry of the same batch would never succeed.
        hint = "the batch is larger than two seconds of the rate: send fewer messages at once"
    return RateLimited(f"entity {entity.name!r} is over its {operation} rate limit", hint, wait_s)
