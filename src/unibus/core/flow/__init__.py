"""The rules of one channel: priority queue, retry, expiry, dead letters, rate limit, dedup, metrics."""
