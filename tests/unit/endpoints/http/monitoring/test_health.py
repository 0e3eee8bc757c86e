"""Health: the emulator's words, what orchestrators ask, and consumers that have stopped."""

import asyncio
import dataclasses
import json
from typing import Any, cast

import pytest

from tests.unit.endpoints.asgi_client import Answer
from tests.unit.endpoints.http.monitoring.conftest import Rig
from tests.unit.endpoints.http.namespace import ELSEWHERE
from unibus.bus.api.broker import Broker, EntityInfo
from unibus.endpoints.http.overview import PAGE, Overview, Slices, all_entities
from unibus.errors import StoreUnavailable

HEALTHY = b'{"status":"healthy","message":"Service is healthy."}'
PATHS = ["/health", "/servicebus/health", "/servicebus/health/live", "/servicebus/health/ready"]


class Down:
    """A server whose store is being opened again."""

    @property
    def broker(self) -> Broker:
        raise StoreUnavailable("the store /secret/path.db is being opened again")


class Reported:
    """The broker, with another report of its health."""

    def __init__(self, broker: Broker, **changes: object) -> None:
        self._broker = broker
        store = broker.health().store
        assert store is not None
        status = "degraded" if "warning" in changes else "unhealthy"
        self._health = dataclasses.replace(
            broker.health(), status=status, store=dataclasses.replace(store, **cast(Any, changes))
        )

    def health(self) -> object:
        return self._health

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)


def json_of(answer: Answer) -> dict[str, Any]:
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


async def test_the_bare_path_gives_the_emulators_exact_body_to_everyone(rig: Rig) -> None:
    answer = await rig.get("/health", peer=ELSEWHERE)
    assert (answer.status, answer.body) == (200, HEALTHY)
    assert answer.headers["content-type"].startswith("application/json")


async def test_while_the_store_is_opened_again_only_liveness_is_healthy(rig: Rig) -> None:
    rig.service._serving = Down()
    for path in PATHS:
        answer = await rig.get(path, peer=ELSEWHERE)
        live = path.endswith("live")
        assert (answer.status, json_of(answer)["status"]) == ((200, "healthy") if live else (503, "unhealthy"))
        assert b"secret" not in answer.body
    assert (await rig.get("/health")).body == b'{"status":"unhealthy","message":"Service is unhealthy."}'
    assert (await rig.get("/servicebus/health/consumers")).status == 503


async def test_a_store_that_has_failed_is_unhealthy_and_its_text_stays_inside(rig: Rig) -> None:
    rig.holding.broker = Reported(rig.broker, ok=False, problem="cannot write /secret/path.db")
    for path, status in zip(PATHS, (503, 503, 200, 503), strict=True):
        answer = await rig.get(path)
        assert answer.status == status
        assert b"secret" not in answer.body


async def test_a_full_disk_is_unhealthy_for_senders_and_degraded_otherwise(rig: Rig) -> None:
    rig.holding.broker = Reported(rig.broker, warning="the disk of /secret is full")
    assert (await rig.get("/health")).status == 503
    ready = await rig.get("/servicebus/health/ready")
    assert (ready.status, json_of(ready)) == (200, {"status": "degraded"})
    overall = await rig.get("/servicebus/health")
    assert (overall.status, json_of(overall)["status"]) == (200, "degraded")
    assert json_of(overall)["reasons"] == ["disk_full"]


async def test_a_closed_bus_is_unhealthy(rig: Rig) -> None:
    await rig.bus.close()
    assert (await rig.get("/health")).status == 503
    assert (await rig.get("/servicebus/health/ready")).status == 503


async def test_the_overall_path_has_the_sums(rig: Rig) -> None:
    await rig.broker.create("queue", "q")
    await rig.broker.create("topic", "t")
    await rig.broker.create("subscription", "t/Subscriptions/s")
    for _ in range(3):
        await rig.send("q")
    await rig.send("t")
    await rig.broker.receive("q")
    assert json_of(await rig.get("/servicebus/health", peer=ELSEWHERE)) == {
        "status": "healthy",
        "reasons": [],
        "queues": 1,
        "topics": 1,
        "subscriptions": 1,
        "active_messages": 3,
        "deadletter_messages": 0,
        "scheduled_messages": 0,
        "active_locks": 1,
        "stalled_consumers": 0,
    }


async def test_a_consumer_that_has_stopped_is_degraded_and_has_its_own_check(rig: Rig) -> None:
    await rig.broker.create("queue", "busy")
    await rig.broker.create("queue", "unused")
    for name in ("busy", "busy", "unused"):
        await rig.send(name)
    await rig.broker.receive("busy", lock=False)
    assert json_of(await rig.get("/servicebus/health"))["status"] == "healthy"
    await rig.clock.advance_async(301)
    overall = json_of(await rig.get("/servicebus/health"))
    assert (overall["status"], overall["reasons"], overall["stalled_consumers"]) == (
        "degraded",
        ["stalled_consumers"],
        1,
    )
    consumers = await rig.get("/servicebus/health/consumers")
    assert (consumers.status, json_of(consumers)) == (503, {"status": "degraded", "stalled_consumers": 1})
    ready = await rig.get("/servicebus/health/ready")
    assert (ready.status, json_of(ready)) == (200, {"status": "healthy"})
    await rig.broker.receive("busy", lock=False)
    await rig.clock.advance_async(2)
    assert (await rig.get("/servicebus/health/consumers")).status == 200


async def test_sums_are_computed_once_a_second_and_once_for_all_who_wait(rig: Rig) -> None:
    walks: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> object:
            if name == "entities":
                walks.append(1)
            return getattr(rig.broker, name)

    rig.holding.broker = Counting()
    await asyncio.gather(*[rig.get("/servicebus/health") for _ in range(20)])
    assert len(walks) == 3  # One page of each kind.
    await rig.get("/servicebus/health")
    assert len(walks) == 3
    await rig.clock.advance_async(1)
    await rig.get("/servicebus/health")
    assert len(walks) == 6


async def test_a_client_that_leaves_does_not_cancel_the_sums_of_others(rig: Rig) -> None:
    for number in range(5):
        await rig.broker.create("queue", f"q{number}")
    overview = Overview(300)
    first = asyncio.ensure_future(overview.sums(rig.broker))
    second = asyncio.ensure_future(overview.sums(rig.broker))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).queues == 5


# Reading all entities


class Shifting:
    """Pages of a list into which a name is inserted after each page, in front of all others."""

    def __init__(self, count: int) -> None:
        self._names = [f"q{number:05}" for number in range(count)]
        self._added = 0

    async def entities(self, kind: str, topic: str | None, skip: int, top: int) -> list[EntityInfo]:
        if kind != "queue":
            return []
        page = self._names[skip : skip + top]
        self._added += 1
        self._names.insert(0, f"a{self._added}")
        return [EntityInfo(name, "queue") for name in page]


async def test_no_entity_comes_twice_though_others_are_created_meanwhile() -> None:
    found = [info.name async for info in all_entities(cast(Any, Shifting(3 * PAGE)), Slices())]
    assert len(found) == len(set(found)) >= 3 * PAGE


@pytest.mark.parametrize(("step_ms", "slices"), [(0, 1), (1, 3), (5, 11), (9, 11)])
async def test_the_loop_runs_after_each_slice(step_ms: int, slices: int) -> None:
    """Ten pauses, the clock moves by one step at each."""
    now = 0
    turns = 0

    def clock_ns() -> int:
        return now

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(others())
    counted = Slices(clock_ns)
    for _ in range(10):
        now += step_ms * 1_000_000
        await counted.pause()
    assert counted.count == slices
    assert turns == slices - 1
    other.cancel()
