"""The HTTP endpoint inside of an application, on the bus of that application."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from tests.unit.endpoints.asgi_client import Answer
from tests.unit.endpoints.http.namespace import ALL, rule, token
from tests.unit.integrations.running_app import RunningApp, running
from unibus.core.access.rules import well_known_rule
from unibus.errors import ConfigInvalid
from unibus.integrations.fastapi import Bus, BusLifespan, bus_of, http_endpoint, http_router, lifespan

RULE = rule("shop", ALL, 1)
PREFIX = "/in/side"
GUARD_S = 30.0


def mounted(app: FastAPI, bus: BusLifespan, **settings: Any) -> None:
    app.mount(PREFIX, http_endpoint(bus, **settings))


def included(app: FastAPI, bus: BusLifespan, **settings: Any) -> None:
    app.include_router(http_router(bus, PREFIX, **settings))


def made(add: Callable[..., None], **settings: Any) -> FastAPI:
    bus = lifespan()
    app = FastAPI(lifespan=bus)

    @app.get("/own")
    async def own(bus: Bus) -> int:
        return len(await bus.peek("q", 10))

    add(app, bus, **settings)
    return app


def headers(by: Any = RULE) -> dict[str, str]:
    return {"Authorization": token("", by, int(time.time()) + 3600)}


async def send(app: RunningApp, by: Any = RULE) -> Answer:
    return await app.client("POST", f"{PREFIX}/q/messages", "hello", headers(by))


@pytest.mark.parametrize("add", [mounted, included])
async def test_routes_and_the_endpoint_have_one_bus(add: Callable[..., None]) -> None:
    app = made(add, authorization_rules=[RULE])
    for _ in range(2):  # A second start has another bus, which the endpoint has to notice.
        async with running(app) as run:
            await bus_of(app).create_queue("q")
            assert (await send(run)).status == 201
            assert (await run.client("GET", "/own")).body == b"1"
            await bus_of(app).send("q", {"by": "a route"})
            answers = [await run.client("DELETE", f"{PREFIX}/q/messages/head", "", headers()) for _ in range(2)]
            assert [answer.body for answer in answers] == [b"hello", b'{"by":"a route"}']


@pytest.mark.parametrize("add", [mounted, included])
async def test_pages_of_the_endpoint_work_below_its_prefix(add: Callable[..., None]) -> None:
    async with running(made(add, authorization_rules=[RULE])) as app:
        assert (await app.client("GET", f"{PREFIX}/health")).status == 200
        document: Any = (await app.client("GET", f"{PREFIX}/openapi.json", "", headers())).json()
        assert "/{entity}/messages" in document["paths"]
        assert b"servicebus_queues_count" in (await app.client("GET", f"{PREFIX}/metrics", "", headers())).body
        assert (await app.client("GET", f"{PREFIX}/unibus/nothing", "", headers())).status == 404


@pytest.mark.parametrize("add", [mounted, included])
async def test_before_the_start_the_endpoint_is_unavailable(add: Callable[..., None]) -> None:
    app = RunningApp(made(add, authorization_rules=[RULE]))
    assert (await send(app)).status == 503
    assert (await app.client("GET", f"{PREFIX}/health")).status == 503


@pytest.mark.parametrize(("settings", "status"), [({}, 401), ({"well_known_key": True}, 201)])
async def test_the_well_known_key_is_accepted_only_where_it_is_asked_for(settings: dict[str, Any], status: int) -> None:
    app = made(mounted, **settings)
    async with running(app) as run:
        await bus_of(app).create_queue("q")
        assert (await send(run, well_known_rule())).status == status
        assert (await run.client("GET", f"{PREFIX}/metrics")).status == (401 if status == 401 else 200)


async def test_the_well_known_key_in_a_rule_of_the_settings_is_refused_too() -> None:
    app = made(mounted, authorization_rules=[well_known_rule()])
    async with running(app) as run:
        await bus_of(app).create_queue("q")
        assert (await send(run, well_known_rule())).status == 401


async def test_networks_are_trusted_with_the_well_known_key_where_it_is_asked_for() -> None:
    app = made(mounted, well_known_key=True, allow_networks="203.0.113.0/24")
    async with running(app) as run:
        answer = await run.elsewhere()("PUT", f"{PREFIX}/servicebus/queues/q", "", headers(well_known_rule()))
        assert answer.status == 201


async def test_two_endpoints_of_an_application_have_one_broker() -> None:
    """Rates are counted by the broker: with two of them a client could send twice as much."""
    bus = lifespan()
    endpoints: list[Any] = [http_endpoint(bus), http_endpoint(bus)]
    async with running(FastAPI(lifespan=bus)):
        assert endpoints[0]._service.broker is endpoints[1]._service.broker


async def test_a_receive_that_waits_ends_when_the_application_stops() -> None:
    app = RunningApp(made(mounted, authorization_rules=[RULE]))
    await app.start()
    await bus_of(app.app).create_queue("q")
    connection = app.client.connect()
    waiting = asyncio.ensure_future(
        app.client.run(connection, "POST", f"{PREFIX}/q/messages/head?timeout=60", headers())
    )
    async with asyncio.timeout(GUARD_S):
        await connection.waits.wait()
    await app.stop()
    await waiting
    assert connection.answer().status == 503


@pytest.mark.parametrize("prefix", ["", "bus", "/bus/", "/", "/a b", "/{x}", None])
def test_a_prefix_has_to_be_a_path(prefix: Any) -> None:
    with pytest.raises(ConfigInvalid, match="is not a path"):
        http_router(lifespan(), prefix)


def test_settings_are_checked() -> None:
    unknown: Any = {"port": 5300}
    with pytest.raises(ConfigInvalid, match="no setting 'port'"):
        http_endpoint(lifespan(), **unknown)
    with pytest.raises(ConfigInvalid, match="is no network"):
        http_endpoint(lifespan(), allow_networks=["everywhere"])
    url: Any = "sqlite:///bus.db"
    with pytest.raises(ConfigInvalid, match="not a str"):
        http_endpoint(url)


def test_a_router_is_one_of_fastapi() -> None:
    assert isinstance(http_router(lifespan(), "/bus"), APIRouter)
