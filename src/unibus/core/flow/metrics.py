"""The counters of a channel, whose numbers add up.

Each publish has exactly one outcome, and exactly one outcome counter is incremented: `published` for an accepted
message, else the counter of the reason. What happens to an accepted message later (dispatched, retried, expired, …) is
counted separately. Sums such as `dropped` are computed on access, so they cannot disagree with their parts.

The counters are plain numbers: a compiled caller writes `metrics.published += 1` and pays for one addition. Latencies
are recorded for the publishes and dispatches that the caller samples, and for successes only: an average with quick
rejections in it would show an overloaded channel as fast. `samples` is how many were measured.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from mypy_extensions import i64

from unibus.core.atomic import LOCK
from unibus.core.flow.histogram import LatencyHistogram
from unibus.counting import counted
from unibus.display import quoted, shortened
from unibus.errors import (
    BusClosed,
    BusError,
    ChannelNotFound,
    DuplicateMessage,
    MessageTooLarge,
    QueueFull,
    RateLimited,
    SerializationFailed,
    UsageError,
)

SEED_KEYS: Final = (
    "published",
    "dispatched",
    "dropped",
    "errors",
    "avg_publish_latency_us",
    "avg_dispatch_latency_us",
)


COUNTERS: Final = (
    "published",
    "duplicate",
    "unrouted",
    "queue_full",
    "rate_limited",
    "too_large",
    "not_found",
    "closed",
    "serialization_failed",
    "invalid",
    "failed",
    "dispatched",
    "errors",
    "retried",
    "dead_lettered",
    "expired",
    "evicted",
    "overflowed",
    "discarded",
    "locks_lost",
)


_TOTALS: Final = ("published", "dispatched", "dropped", "errors")


def _totals(counts: tuple[int, ...]) -> str:
    return ", ".join([f"{count:,} {name}" for count, name in zip(counts, _TOTALS, strict=True)])


class LatencySummary(NamedTuple):
    """The summary of one histogram. All zero if nothing was measured."""

    samples: int
    mean_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    max_us: float


class ChannelSnapshot(NamedTuple):
    """One channel at one instant. `outcomes` has every kind, with 0 for one that never happened; its sum is the number
    of all publishes."""

    channel: str
    published: int
    dispatched: int
    dropped: int
    errors: int
    retried: int
    dead_lettered: int
    expired: int
    evicted: int
    overflowed: int
    discarded: int
    locks_lost: int
    outcomes: dict[str, int]
    publish_latency: LatencySummary
    dispatch_latency: LatencySummary

    def __repr__(self) -> str:
        return shortened(f"<ChannelSnapshot {quoted(self.channel)}, {_totals(self[1:5])}>")


class MetricsSnapshot(NamedTuple):
    """All channels together, and each one. Immutable: later events do not change it."""

    published: int
    dispatched: int
    dropped: int
    errors: int
    avg_publish_latency_us: float
    avg_dispatch_latency_us: float
    channels: tuple[ChannelSnapshot, ...]

    def __repr__(self) -> str:
        return f"<MetricsSnapshot {_totals(self[:4])}, {counted(len(self.channels), 'channel')}>"

    def as_dict(self) -> dict[str, int | float]:
        """The six totals, without the channels."""
        return {
            "published": self.published,
            "dispatched": self.dispatched,
            "dropped": self.dropped,
            "errors": self.errors,
            "avg_publish_latency_us": self.avg_publish_latency_us,
            "avg_dispatch_latency_us": self.avg_dispatch_latency_us,
        }


@final
class ChannelMetrics:
    def __init__(self, channel: str = "") -> None:
        self.channel = channel
        # Outcomes of publish: exactly one of these is incremented for each.
        self.published: i64 = 0
        self.duplicate: i64 = 0
        self.unrouted: i64 = 0
        self.queue_full: i64 = 0
        self.rate_limited: i64 = 0
        self.too_large: i64 = 0
        self.not_found: i64 = 0
        self.closed: i64 = 0
        self.serialization_failed: i64 = 0
        self.invalid: i64 = 0
        self.failed: i64 = 0
        # Accepted messages. `errors` are failed deliveries: the handler raised, or could not be called.
        self.dispatched: i64 = 0
        self.errors: i64 = 0
        self.retried: i64 = 0
        self.dead_lettered: i64 = 0
        self.expired: i64 = 0
        self.evicted: i64 = 0
        self.overflowed: i64 = 0
        self.discarded: i64 = 0  # Removed with their last subscriber, or failed again after they were dead-lettered.
        self.locks_lost: i64 = 0  # Persistent channels: the lock expired before the handler was called, or during it.
        self.publish_latency = LatencyHistogram()
        self.dispatch_latency = LatencyHistogram()

    @property
    def refused(self) -> int:
        """Publishes that raised because the message was rejected. Not a duplicate: its first copy was accepted."""
        refusals = self.queue_full + self.rate_limited + self.too_large + self.not_found + self.closed
        return refusals + self.serialization_failed + self.invalid + self.failed

    @property
    def dropped(self) -> int:
        """Messages that were not delivered: rejected, evicted by `drop_old`, overflowed from a lossy group's queue, or
        discarded."""
        return self.refused + self.evicted + self.overflowed + self.discarded

    def count(self, name: str) -> None:
        """Increment a counter by its name: for paths that are not hot; exact from any thread."""
        with LOCK:
            setattr(self, name, getattr(self, name) + 1)

    def merge(self, other: "ChannelMetrics") -> None:
        """Add all counts of another."""
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.publish_latency.merge(other.publish_latency)
        self.dispatch_latency.merge(other.dispatch_latency)

    def count_refusal(self, error: BusError, messages: int = 1) -> None:
        """Count the outcome of a publish that raises `error`, by the class of the error; `failed` for any other."""
        with LOCK:
            for _ in range(messages):
                self._count_refusal(error)

    def _count_refusal(self, error: BusError) -> None:
        if isinstance(error, QueueFull):
            self.queue_full += 1
        elif isinstance(error, RateLimited):
            self.rate_limited += 1
        elif isinstance(error, MessageTooLarge):
            self.too_large += 1
        elif isinstance(error, ChannelNotFound):
            self.not_found += 1
        elif isinstance(error, BusClosed):
            self.closed += 1
        elif isinstance(error, SerializationFailed):
            self.serialization_failed += 1
        elif isinstance(error, DuplicateMessage):
            self.duplicate += 1
        elif isinstance(error, UsageError):
            self.invalid += 1
        else:
            self.failed += 1

    def outcomes(self) -> dict[str, int]:
        """The number of publishes by outcome."""
        return {
            "accepted": self.published,
            "duplicate": self.duplicate,
            "unrouted": self.unrouted,
            "queue_full": self.queue_full,
            "rate_limited": self.rate_limited,
            "too_large": self.too_large,
            "not_found": self.not_found,
            "closed": self.closed,
            "serialization_failed": self.serialization_failed,
            "invalid": self.invalid,
            "failed": self.failed,
        }

    def snapshot(self) -> ChannelSnapshot:
        return ChannelSnapshot(
            channel=self.channel,
            published=self.published,
            dispatched=self.dispatched,
            dropped=self.dropped,
            errors=self.errors,
            retried=self.retried,
            dead_lettered=self.dead_lettered,
            expired=self.expired,
            evicted=self.evicted,
            overflowed=self.overflowed,
            discarded=self.discarded,
            locks_lost=self.locks_lost,
            outcomes=self.outcomes(),
            publish_latency=summary(self.publish_latency),
            dispatch_latency=summary(self.dispatch_latency),
        )


def total(channels: Sequence[ChannelMetrics]) -> MetricsSnapshot:
    """The sum over the channels. Averages are over all measured messages, not over channels; 0.0 without any."""
    publish_latency = LatencyHistogram()
    dispatch_latency = LatencyHistogram()
    for metrics in channels:
        publish_latency.merge(metrics.publish_latency)
        dispatch_latency.merge(metrics.dispatch_latency)
    snapshots = tuple([metrics.snapshot() for metrics in channels])
    return MetricsSnapshot(
        published=sum([snapshot.published for snapshot in snapshots]),
        dispatched=sum([snapshot.dispatched for snapshot in snapshots]),
        dropped=sum([snapshot.dropped for snapshot in snapshots]),
        errors=sum([snapshot.errors for snapshot in snapshots]),
        avg_publish_latency_us=publish_latency.mean_us,
        avg_dispatch_latency_us=dispatch_latency.mean_us,
        channels=snapshots,
    )


def summary(histogram: LatencyHistogram) -> LatencySummary:
    return LatencySummary(
        samples=histogram.count,
        mean_us=histogram.mean_us,
        p50_us=_us(histogram.quantile(0.50)),
        p95_us=_us(histogram.quantile(0.95)),
        p99_us=_us(histogram.quantile(0.99)),
        max_us=_us(histogram.max_ns),
    )


def _us(ns: int) -> float:
    return ns / 1_000.0
