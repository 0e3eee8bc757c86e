"""The metrics for Prometheus (`servicebus_…`, `unibus_…`), collected when they are scraped.

Counters and gauges of entities are the store's own numbers, counted since it was opened. They are collected in slices:
the loop serves other requests in between, so a scrape of 10,000 entities blocks none of them for long.
"""

from collections.abc import Callable
from typing import Final

from unibus.bus.api.broker import Broker, EntityInfo, HealthStatus
from unibus.core.flow.deadletter import SUB_QUEUE
from unibus.endpoints.http.monitoring.exposition import CONTENT_TYPE, Family, labels_of
from unibus.endpoints.http.monitoring.process import process_families
from unibus.endpoints.http.overview import Slices, all_entities
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.statistics import Latencies, Statistics
from unibus.errors import EntityNotFound

_OTHERS: Final = labels_of([("entity_type", "other"), ("entity_name", "*")])
"""The labels of all entities beyond the busiest. No entity can have this name."""

_DEAD: Final = f"/{SUB_QUEUE.casefold()}"
_Value = Callable[[EntityInfo], float]
_COUNTERS: Final[tuple[tuple[str, str, _Value], ...]] = (
    ("servicebus_messages_sent_total", "Messages that arrived.", lambda info: info.sent),
    ("servicebus_messages_received_total", "Deliveries.", lambda info: info.delivered),
    ("servicebus_messages_completed_total", "Completed messages.", lambda info: info.completed),
    ("servicebus_messages_abandoned_total", "Abandoned deliveries.", lambda info: info.abandoned),
    ("servicebus_messages_deadlettered_total", "Dead-lettered messages.", lambda info: info.dead_lettered),
    (
        "servicebus_locks_expired_total",
        "Deliveries whose lock expired before they were settled.",
        lambda info: info.locks_expired,
    ),
)
_GAUGES: Final[tuple[tuple[str, str, _Value], ...]] = (
    ("servicebus_active_messages", "Backlog: messages that wait for a delivery.", lambda info: info.active),
    ("servicebus_deadletter_messages", "Messages in the dead-letter queue.", lambda info: info.dead),
    ("servicebus_locked_messages", "In-flight messages: delivered and not settled.", lambda info: info.locked),
    ("servicebus_scheduled_messages", "Scheduled messages.", lambda info: info.scheduled),
    ("servicebus_deferred_messages", "Deferred messages.", lambda info: info.deferred),
    ("servicebus_size_bytes", "Bytes of the messages.", lambda info: info.size_bytes),
)
_TOPIC_METRICS: Final = frozenset({"servicebus_messages_sent_total", "servicebus_scheduled_messages"})
"""A topic stores scheduled messages only; its subscriptions store all others."""

_HISTOGRAMS: Final = {
    "send": "Time to answer a send.",
    "receive": "Time to answer a receive that got a message, including its wait.",
    "complete": "Time to answer a complete.",
}


async def metrics(service: Service, request: Request) -> Response:
    settings = service.settings
    if not settings.metrics:
        raise EntityNotFound("metrics are switched off on this server", "switch on the setting metrics")
    body = await exposed(service.broker, service.observer.statistics, Slices(), settings.metrics_entities_max)
    return Response(200, body, CONTENT_TYPE, [("Cache-Control", "no-store")])


async def exposed(broker: Broker, statistics: Statistics, slices: Slices, entities_max: int) -> bytes:
    """The whole text of a scrape. Entities beyond `entities_max` are only counted, without series."""
    entities = _Entities(broker.now_ns(), entities_max)
    async for info in all_entities(broker, slices):
        entities.add(info)
    families = [*entities.families(), *_server_families(statistics, broker.health()), *process_families()]
    for kind in _HISTOGRAMS:
        families.append(_histogram(kind, statistics.latencies[kind], entities))
        await slices.pause()
    families.append(_filters(statistics.filters, entities))
    pieces: list[bytes] = []
    for family in families:
        pieces.append(family.encoded())
        await slices.pause()
    return b"".join(pieces)


class _Entities:
    """The families with a sample for each entity, and the sums."""

    def __init__(self, now_ns: int, entities_max: int) -> None:
        self._now_ns: Final = now_ns
        self._entities_max: Final = entities_max
        self._left_out = 0
        self._labels: dict[str, tuple[str, str]] = {}  # Type and name, by the casefolded name.
        self._counts = {"queue": 0, "topic": 0, "subscription": 0}
        self._locks = 0
        self._valued: Final = [(Family(name, "counter", text), value) for name, text, value in _COUNTERS]
        self._valued.extend([(Family(name, "gauge", text), value) for name, text, value in _GAUGES])
        self._of_topics: Final = [each for each in self._valued if each[0].name in _TOPIC_METRICS]
        name, text = "servicebus_oldest_message_age_seconds", "Age of the oldest message; 0 without any."
        self._age: Final = Family(name, "gauge", text)

    def add(self, info: EntityInfo) -> None:
        self._counts[info.kind] += 1
        self._locks += info.locked
        if len(self._labels) >= self._entities_max:
            self._left_out += 1
            return
        self._labels[info.name.casefold()] = (info.kind, info.name)
        labels = labels_of([("entity_type", info.kind), ("entity_name", info.name)])
        for family, value in self._of_topics if info.kind == "topic" else self._valued:
            family.add(labels, value(info))
        if info.kind != "topic":
            age_ns = max(0, self._now_ns - info.oldest_ns) if info.oldest_ns else 0
            self._age.add(labels, round(age_ns / 1e9, 3))

    def name(self, folded: str) -> str | None:
        """The name in its original case; None if the entity does not exist."""
        found = self._labels.get(folded)
        return None if found is None else found[1]

    def labels(self, folded: str) -> str | None:
        """The labels of an entity or of its dead-letter queue; None if it does not exist."""
        owner = folded.removesuffix(_DEAD)
        found = self._labels.get(owner)
        if found is None:
            return None
        kind = found[0] if owner == folded else "deadletter"
        return labels_of([("entity_type", kind), ("entity_name", found[1])])

    def families(self) -> list[Family]:
        sums = [Family("servicebus_active_locks", "gauge", "In-flight messages: delivered and not settled.")]
        sums[0].add("", self._locks)
        for kind, plural in (("queue", "queues"), ("topic", "topics"), ("subscription", "subscriptions")):
            sums.append(Family(f"servicebus_{plural}_count", "gauge", f"Number of {plural}."))
            sums[-1].add("", self._counts[kind])
        sums.append(Family("unibus_metrics_entities_left_out", "gauge", "Entities without series of their own."))
        sums[-1].add("", self._left_out)
        return [*[family for family, _ in self._valued], self._age, *sums]


def _histogram(kind: str, latencies: Latencies, entities: _Entities) -> Family:
    family = Family(f"servicebus_{kind}_duration_seconds", "histogram", _HISTOGRAMS[kind])
    latencies.rebalance(lambda name: entities.labels(name) is not None)
    for name, histogram in latencies.own.items():
        labels = entities.labels(name)
        assert labels is not None, "rebalance keeps those that exist"
        family.add_histogram(labels, histogram)
    if any(latencies.others.counts):
        family.add_histogram(_OTHERS, latencies.others)
    return family


def _filters(latencies: Latencies, entities: _Entities) -> Family:
    """Filter latencies by topic. A topic whose subscriptions accept everything has no filters, and no series."""
    name, text = (
        "servicebus_filter_evaluation_duration_seconds",
        "Time to evaluate the filters of a topic for a message.",
    )
    family = Family(name, "histogram", text)
    latencies.rebalance(lambda topic: entities.name(topic) is not None)
    for topic, histogram in latencies.own.items():
        family.add_histogram(labels_of([("topic_name", entities.name(topic) or topic)]), histogram)
    if any(latencies.others.counts):
        family.add_histogram(labels_of([("topic_name", "*")]), latencies.others)
    return family


def _server_families(statistics: Statistics, health: HealthStatus) -> list[Family]:
    errors = Family("servicebus_errors_total", "counter", "Requests that were answered with an error.")
    for (operation, code), number in sorted(statistics.errors.items()):
        errors.add(labels_of([("operation", operation), ("error_type", code)]), number)
    requests = Family("unibus_http_requests_total", "counter", "Answered HTTP requests.")
    for (operation, status), number in sorted(statistics.requests.items()):
        requests.add(labels_of([("operation", operation), ("status", str(status))]), number)
    state = Family("unibus_health", "gauge", "1 for the current state of the server.")
    for name in ("healthy", "degraded", "unhealthy"):
        state.add(labels_of([("status", name)]), int(health.status == name))
    families = [errors, requests, state]
    if health.store is not None:
        history = Family("unibus_store_history_bytes", "gauge", "Size of the store's history.")
        history.add("", health.store.history_bytes)
        last = Family("unibus_store_last_sequence", "counter", "Sequence number of the store's last change.")
        last.add("", health.store.last_seq)
        text = "1 while the disk is full: messages are delivered, and none is accepted."
        full = Family("unibus_store_full", "gauge", text)
        full.add("", int(bool(health.store.warning)))
        families += [history, last, full]
    return families
