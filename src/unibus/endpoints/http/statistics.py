"""Counts the answers for the metrics: plain numbers and fixed buckets, about a microsecond for each request.

The number of series is bounded whatever clients send: operations, statuses and error codes are finite sets, and at most
`ENTITIES_MAX` entities have a histogram of their own. All others share one. An entity that becomes one of the busiest
gets a histogram that begins at zero; its former counts stay in the shared one. So a series never decreases, except by a
reset to zero, which Prometheus detects.
"""

import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

ENTITIES_MAX: Final = 100
ACTIVITY_MAX: Final = 10_000
"""Names whose activity is counted between two scrapes, to find the busiest."""

_MS: Final = 1_000_000
BOUNDS_NS: Final = tuple(
    int(ms * _MS) for ms in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000)
)
"""Upper bounds of the buckets. The latency goals (0.5, 1, 5 and 10 ms) are among them."""


FILTER_BOUNDS_NS: Final = tuple(
    int(us * 1_000) for us in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 100_000)
)
"""Finer buckets: filters take microseconds."""


class Histogram:
    """`counts` has one number more than `bounds_ns`, for durations above the last bound."""

    __slots__ = ("bounds_ns", "counts", "sum_ns")

    def __init__(self, bounds_ns: tuple[int, ...] = BOUNDS_NS) -> None:
        self.bounds_ns = bounds_ns
        self.counts = [0] * (len(bounds_ns) + 1)
        self.sum_ns = 0

    def record(self, ns: int) -> None:
        self.counts[bisect_left(self.bounds_ns, ns)] += 1
        self.sum_ns += ns


class Latencies:
    """The latencies of one kind of operation, by entity. `others` is the shared histogram."""

    def __init__(self, entities_max: int = ENTITIES_MAX, bounds_ns: tuple[int, ...] = BOUNDS_NS) -> None:
        self._entities_max: Final = entities_max
        self._bounds_ns: Final = bounds_ns
        self.own: dict[str, Histogram] = {}
        self.others = Histogram(bounds_ns)
        self._recent: dict[str, int] = {}  # Operations since the last rebalance, of up to ACTIVITY_MAX entities.

    def record(self, entity: str, ns: int) -> None:
        """`entity` is casefolded."""
        recent = self._recent
        if entity in recent:
            recent[entity] += 1
        elif len(recent) < ACTIVITY_MAX:
            recent[entity] = 1
        found = self.own.get(entity)
        if found is None:
            if len(self.own) < self._entities_max:
                found = self.own[entity] = Histogram(self._bounds_ns)
            else:
                found = self.others
        found.record(ns)

    def rebalance(self, exists: Callable[[str], bool]) -> None:
        """Assign the histograms to the entities that were busiest since the last call, and to no deleted one."""
        recent, self._recent = self._recent, {}
        for entity in [each for each in self.own if not exists(each)]:
            del self.own[entity]
        # A busier entity replaces the least busy one. It must be twice as busy: similar ones would swap forever.
        waiting = sorted([(count, name) for name, count in recent.items() if name not in self.own and exists(name)])
        holding = sorted([(recent.get(name, 0), name) for name in self.own], reverse=True)
        while waiting and (holding or len(self.own) < self._entities_max):
            count, name = waiting.pop()
            if len(self.own) >= self._entities_max:
                least, displaced = holding.pop()
                if count <= 2 * least:
                    return
                del self.own[displaced]
            self.own[name] = Histogram(self._bounds_ns)


class FilterLatencies(Latencies):
    """How long the filters of each topic took for a message. The broker reports it (`watch_filters`).

    It reports while it holds the store's lock, so calls never overlap; a concurrent scrape reads numbers that are off
    by one at most.
    """

    now_ns = staticmethod(time.perf_counter_ns)

    def evaluated(self, topic: str, duration_ns: int) -> None:
        self.record(topic.casefold(), duration_ns)


class Statistics:
    """Everything that the observer counts. `latencies` has an entry for each kind in LATENCY_OF."""

    def __init__(self, entities_max: int = ENTITIES_MAX) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self.filters: Final = FilterLatencies(entities_max, FILTER_BOUNDS_NS)
        self.latencies: Final = {kind: Latencies(entities_max) for kind in sorted(set(LATENCY_OF.values()))}

    def count(self, operation: str, status: int, error: str) -> None:
        key = (operation, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        if error:
            failed = (operation, error)
            self.errors[failed] = self.errors.get(failed, 0) + 1


_OPERATIONS: Final = {
    "send": ("send",),
    "receive": (
        *("receive", "receive_and_delete", "receive_list"),
        *("receive_in_session", "receive_and_delete_in_session", "receive_list_in_session"),
    ),
    "complete": ("complete", "complete_locked", "complete_by_token"),
}
LATENCY_OF: Final = {name: kind for kind, names in _OPERATIONS.items() for name in names}
"""Operations whose duration has a histogram. The duration of a receive includes its wait for a message."""
