"""The rules of time to live.

A message may have a ttl and its channel may have one. The shorter applies, so the ttl of a channel is an upper limit.
An expiry is an instant of wall time in nanoseconds. For both, 0 means "none": the message does not expire.
"""

from typing import Final

from mypy_extensions import i64

from unibus.errors import UsageError

INSTANT_NS_MAX: Final = 9_223_372_036_854_775_807
"""The largest instant in 64 bits (the year 2262). A later expiry is stored as this one."""


def effective_ttl_ns(message_ttl_ns: int, channel_ttl_ns: int) -> int:
    """The shorter of those that are set; 0 if neither is."""
    if message_ttl_ns < 0 or channel_ttl_ns < 0:
        raise UsageError("a ttl cannot be negative", "0 means that the message does not expire")
    if message_ttl_ns == 0:
        return channel_ttl_ns
    if channel_ttl_ns == 0:
        return message_ttl_ns
    return min(message_ttl_ns, channel_ttl_ns)


def expires_at_ns(timestamp_ns: int, ttl_ns: int) -> i64:
    """The instant at which a message of that timestamp and ttl expires; 0 for never. Saturates, never overflows."""
    if ttl_ns < 0:
        raise UsageError("a ttl cannot be negative", "0 means that the message does not expire")
    if ttl_ns == 0:
        return 0
    instant = timestamp_ns + ttl_ns
    if instant == 0:  # A timestamp before 1970: this one instant would mean "never".
        return 1
    if instant > INSTANT_NS_MAX:
        return INSTANT_NS_MAX
    return instant


def is_expired(expires_ns: i64, now_ns: i64) -> bool:
    """A message is expired at its instant of expiry and after it."""
    return expires_ns != 0 and now_ns >= expires_ns
