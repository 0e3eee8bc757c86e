"""The rules of one channel: priority queue, retry, expiry, dead-lettering, rate limit, dedup, metrics."""
