"""The metrics, read by the parser of Prometheus's own client."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.endpoints.http.monitoring.conftest import Rig
from tests.unit.endpoints.http.namespace import ELSEWHERE, LOOPBACK, rule, token
from unibus.bus.api.broker import EntityInfo, HealthStatus
from unibus.bus.entities.entities import rule_of
from unibus.endpoints.http.monitoring.exposition import Family, labels_of
from unibus.endpoints.http.monitoring.metrics import exposed
from unibus.endpoints.http.overview import SLICE_NS, Slices
from unibus.endpoints.http.statistics import Statistics

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
SEED_NAMES = [
    *[f"servicebus_messages_{verb}" for verb in ("sent", "received", "completed", "abandoned", "deadlettered")],
    *("servicebus_errors", "servicebus_active_messages", "servicebus_deadletter_messages", "servicebus_active_locks"),
    *("servicebus_queues_count", "servicebus_topics_count", "servicebus_subscriptions_count"),
    *[f"servicebus_{kind}_duration_seconds" for kind in ("send", "receive", "complete", "filter_evaluation")],
]


def parsed(text: bytes) -> Series:
    """Every sample; a series that comes twice is a mistake."""
    found: Series = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def of(kind: str, name: str) -> tuple[tuple[str, str], ...]:
    return (("entity_name", name), ("entity_type", kind))


async def scrape(rig: Rig) -> Series:
    answer = await rig.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parsed(answer.body)


async def test_the_names_of_the_second_design_are_all_there(rig: Rig) -> None:
    answer = await rig.get("/servicebus/metrics")
    names = {family.name: family.type for family in text_string_to_metric_families(answer.body.decode())}
    assert set(SEED_NAMES) <= names.keys()
    assert names["servicebus_messages_sent"] == "counter"
    assert names["servicebus_send_duration_seconds"] == "histogram"


async def test_counters_and_gauges_follow_the_messages(rig: Rig) -> None:
    broker = rig.broker
    await broker.create("queue", "q", {"max_delivery_count": 100})
    await broker.create("topic", "t")
    await broker.create("subscription", "t/Subscriptions/s")
    for _ in range(6):
        await rig.send("q")
    await rig.send("t")
    claimed = await broker.receive("q", 4)
    for verb, each in zip(("complete", "abandon", "dead_letter"), claimed, strict=False):
        await broker.settle(verb, each.token)
    await rig.clock.advance_async(7)
    found = await scrape(rig)
    queue = of("queue", "q")
    expected = {
        "servicebus_messages_sent_total": 6,
        "servicebus_messages_received_total": 4,
        "servicebus_messages_completed_total": 1,
        "servicebus_messages_abandoned_total": 1,
        "servicebus_messages_deadlettered_total": 1,
        "servicebus_active_messages": 3,
        "servicebus_deadletter_messages": 1,
        "servicebus_locked_messages": 1,
        "servicebus_oldest_message_age_seconds": 7,
    }
    assert {name: found[name, queue] for name in expected} == expected
    assert found["servicebus_messages_sent_total", of("topic", "t")] == 1
    assert found["servicebus_active_messages", of("subscription", "t/Subscriptions/s")] == 1
    assert ("servicebus_active_messages", of("topic", "t")) not in found
    totals = {"active_locks": 1, "queues_count": 1, "topics_count": 1, "subscriptions_count": 1}
    assert {name: found[f"servicebus_{name}", ()] for name in totals} == totals
    assert found["unibus_health", (("status", "healthy"),)] == 1


async def test_locks_that_end_by_themselves_are_counted(rig: Rig) -> None:
    broker = rig.broker
    await broker.create("queue", "q", {"lock_duration": 10})
    await broker.create("queue", "s", {"lock_duration": 10, "requires_session": True})
    for _ in range(3):
        await rig.send("q")
        await broker.send("s", broker.message("s", "x", {"session_id": "one"}))
    settled = (await broker.receive("q", 3))[0]
    await broker.settle("complete", settled.token)
    session = await broker.accept_session("s", "one")
    await broker.receive("s", 2, session=session)
    await rig.clock.advance_async(11)
    found = await scrape(rig)
    name = "servicebus_locks_expired_total"
    assert (found[name, of("queue", "q")], found[name, of("queue", "s")]) == (2, 2)
    assert found["servicebus_messages_abandoned_total", of("queue", "q")] == 0


async def test_a_full_disk_has_a_gauge(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await scrape(rig))["unibus_store_full", ()] == 0
    found = rig.broker.health()
    assert found.store is not None
    full = replace(found, store=replace(found.store, warning="the disk is full"))
    broker: Any = Listed([])
    monkeypatch.setattr(Listed, "health", lambda self: full)
    assert parsed(await exposed(broker, Statistics(), Slices(), 1))["unibus_store_full", ()] == 1


async def test_names_from_outside_cannot_break_the_text(rig: Rig) -> None:
    names = ['a"b', "a\\b", "a\nb", 'x"} 1\nforged_total 7', "ü/ß", "a\\n", "  "]
    infos = [EntityInfo(name, "queue", sent=number) for number, name in enumerate(names)]
    text = await exposed(cast(Any, Listed(infos)), Statistics(), Slices(), 100)
    found = parsed(text)
    for number, name in enumerate(names):
        assert found["servicebus_messages_sent_total", of("queue", name)] == number
    assert not [key for key in found if key[0] == "forged_total"]


class Listed:
    """A broker that only has these entities."""

    def __init__(self, infos: list[EntityInfo]) -> None:
        self._infos = infos

    async def entities(self, kind: str, topic: str | None, skip: int, top: int) -> list[EntityInfo]:
        return [info for info in self._infos[skip : skip + top] if info.kind == kind]

    def now_ns(self) -> int:
        return 1

    def health(self) -> HealthStatus:
        return HealthStatus("healthy")


async def test_a_scrape_of_ten_thousand_entities_yields_to_the_loop() -> None:
    """By a clock that moves half a slice at each look: the text is written in as many slices as it has parts."""
    infos = [EntityInfo(f"queue-{number:05}", "queue") for number in range(10_000)]
    now = 0

    def clock_ns() -> int:
        nonlocal now
        now += SLICE_NS // 2
        return now

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    slices = Slices(clock_ns)
    text = await exposed(cast(Any, Listed(infos)), Statistics(), slices, 10_000)
    beside.cancel()
    # 100 pages, and a look for each; a pause at every second one or so.
    assert slices.count >= 50
    assert turns >= 50
    assert text.count(b"\n") > 12 * 10_000


async def test_entities_beyond_the_bound_are_counted_and_have_no_series(rig: Rig) -> None:
    rig.use(metrics_entities_max=2)
    for number in range(5):
        await rig.broker.create("queue", f"q{number}")
    found = await scrape(rig)
    assert found["servicebus_queues_count", ()] == 5
    assert found["unibus_metrics_entities_left_out", ()] == 3
    assert len([key for key in found if key[0] == "servicebus_active_messages"]) == 2


# Histograms


async def test_latencies_are_counted_in_buckets(rig: Rig) -> None:
    await rig.broker.create("queue", "Q1")
    latencies = rig.service.observer.statistics.latencies
    for milliseconds in (0.4, 0.5, 0.6, 3, 70_000):
        latencies["send"].record("q1", int(milliseconds * 1e6))
    latencies["receive"].record("q1/$deadletterqueue", 1_000_000)
    latencies["send"].record("deleted", 1)
    found = await scrape(rig)
    queue = of("queue", "Q1")
    name = "servicebus_send_duration_seconds"
    buckets = {
        dict(labels)["le"]: value
        for (sample, labels), value in found.items()
        if sample == f"{name}_bucket" and dict(labels)["entity_name"] == "Q1"
    }
    assert (buckets["0.00025"], buckets["0.0005"], buckets["0.001"], buckets["0.005"]) == (0, 2, 3, 4)
    assert (buckets["60"], buckets["+Inf"]) == (4, 5)
    assert found[f"{name}_count", queue] == 5
    assert found[f"{name}_sum", queue] == pytest.approx(70.0045)
    assert found["servicebus_receive_duration_seconds_count", of("deadletter", "Q1")] == 1
    assert (f"{name}_count", of("queue", "deleted")) not in found


async def test_beyond_the_busiest_all_entities_share_one_series(rig: Rig) -> None:
    rig.use(metrics_histograms_max=2)
    latencies = rig.service.observer.statistics.latencies["send"]
    for name in ("a", "b", "c", "d"):
        await rig.broker.create("queue", name)
        latencies.record(name, 1)
    found = await scrape(rig)
    name = "servicebus_send_duration_seconds_count"
    assert {labels: value for (sample, labels), value in found.items() if sample == name} == {
        of("queue", "a"): 1,
        of("queue", "b"): 1,
        of("other", "*"): 2,
    }


async def test_the_filters_of_a_topic_are_measured(rig: Rig) -> None:
    broker = rig.broker
    for topic, filtered in (("Tall", True), ("wide", False)):
        await broker.create("topic", topic)
        await broker.create("subscription", f"{topic}/Subscriptions/s")
        if filtered:
            await broker.delete_rule(f"{topic}/Subscriptions/s", "$Default")
            await broker.create_rule(f"{topic}/Subscriptions/s", rule_of("r", "x = 1", None))
    before = await scrape(rig)
    name = "servicebus_filter_evaluation_duration_seconds"
    assert (f"{name}_count", (("topic_name", "Tall"),)) not in before
    for topic in ("Tall", "wide", "Tall"):
        await broker.send(topic, broker.message(topic, b"", {"headers": {"x": 1}}))
    series = await scrape(rig)
    assert series[(f"{name}_count", (("topic_name", "Tall"),))] == 2
    assert series[(f"{name}_bucket", (("le", "+Inf"), ("topic_name", "Tall")))] == 2
    assert (f"{name}_count", (("topic_name", "wide"),)) not in series  # It has no filter to evaluate.


async def test_errors_and_requests_are_counted_by_operation(rig: Rig) -> None:
    await rig.get("/health")
    await rig.get("/metrics", peer=ELSEWHERE)
    found = await scrape(rig)
    assert found["unibus_http_requests_total", (("operation", "health"), ("status", "200"))] == 1
    assert found["servicebus_errors_total", (("error_type", "unauthorised"), ("operation", "metrics"))] == 1


# Access


async def test_metrics_need_a_key_once_there_are_rules(rig: Rig) -> None:
    listener, sender = rule("listener", ["Listen"], 1), rule("sender", ["Send"], 2)
    assert (await rig.get("/metrics", peer=LOOPBACK)).status == 200
    await rig.broker.set_namespace_rules([listener, sender])
    refused = await rig.get("/metrics", peer=LOOPBACK)
    assert (refused.status, refused.headers["www-authenticate"][:5]) == (401, "Basic")
    now_s = rig.broker.now_ns() // 10**9
    for by, status in ((listener, 200), (sender, 403)):
        text = token("", by, now_s + 60)
        assert (await rig.get("/metrics", {"Authorization": text}, ELSEWHERE)).status == status


async def test_they_can_be_switched_off(rig: Rig) -> None:
    rig.use(metrics=False)
    assert (await rig.get("/metrics")).status == 404


# The text


def test_a_family_without_samples_has_its_head() -> None:
    assert Family("a_total", "counter", "Help.").encoded() == b"# HELP a_total Help.\n# TYPE a_total counter\n"


def test_half_a_surrogate_pair_does_not_end_a_scrape() -> None:
    family = Family("a_total", "counter", "Help.")
    family.add(labels_of([("entity_name", "x\ud800")]), 1)
    assert b'entity_name="x?"' in family.encoded()
