"""The API inside of another program: mounted, and as a router with or without a prefix."""

from collections.abc import Callable

import pytest
from fastapi import FastAPI

from tests.unit.endpoints.asgi_client import AsgiClient
from tests.unit.endpoints.http.messages.conftest import BODY_BYTES_MAX, TABLE, Allowing, Held, Namespace, Noted
from unibus.endpoints.http.application.app import application, documented_router
from unibus.endpoints.http.service import Service


def mounted(service: Service) -> FastAPI:
    parent = FastAPI()
    parent.mount("/in/side", application(service, TABLE))
    return parent


def included(service: Service) -> FastAPI:
    parent = FastAPI()

    @parent.get("/own")
    async def own() -> str:
        return "mine"

    parent.include_router(documented_router(service, TABLE, "/in/side"))
    return parent


def plain(service: Service) -> FastAPI:
    parent = FastAPI()
    parent.include_router(documented_router(service, TABLE))
    return parent


@pytest.mark.parametrize(("make", "prefix"), [(mounted, "/in/side"), (included, "/in/side"), (plain, "")])
async def test_inside_of_another_program(strict: Namespace, make: Callable[[Service], FastAPI], prefix: str) -> None:
    client = AsgiClient(make(Service(Held(strict.broker), Allowing(), Noted(), BODY_BYTES_MAX)))
    assert (await client("POST", f"{prefix}/q/messages", "x")).status == 201
    answer = await client("POST", f"{prefix}/servicebus/queues/q/messages/head")
    location = answer.headers["location"].removeprefix("http://bus.test:5300")
    assert location.startswith(f"{prefix}/servicebus/queues/q/messages/1/")
    assert (await client("DELETE", location)).status == 200
    if prefix:
        assert (await client("POST", "/q/messages", "x")).status == 404
    assert await strict.settled_counts("q") == (0, 0, 0, 0, 0)


async def test_a_router_with_a_prefix_is_documented_beside_the_routes_of_the_program(strict: Namespace) -> None:
    client = AsgiClient(included(Service(Held(strict.broker), Allowing(), Noted(), BODY_BYTES_MAX)))
    document = (await client("GET", "/openapi.json")).json()
    assert isinstance(document, dict)
    assert {"/own", "/in/side/{entity}/messages"} <= set(document["paths"])
    assert (await client("GET", "/own")).body == b'"mine"'
