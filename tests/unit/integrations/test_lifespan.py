"""A bus for the lifetime of a FastAPI application: opened, handed to routes, closed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket

from tests.unit.integrations.running_app import running
from unibus import MessageBus
from unibus.errors import BusClosed, ConfigInvalid, StoreUnavailable
from unibus.integrations.fastapi import Bus, bus_of, get_message_bus, lifespan


def with_routes(app: FastAPI) -> FastAPI:
    @app.post("/orders/{number}")
    async def order(number: int, bus: Bus) -> None:
        await bus.send("orders", {"number": number})

    @app.get("/waiting")
    def waiting(bus: Annotated[MessageBus, Depends(get_message_bus)]) -> int:  # In a thread of FastAPI's pool.
        return bus.queue_size("orders.created") or 0

    @app.websocket("/talk")
    async def talk(socket: WebSocket, bus: Bus) -> None:
        await socket.accept()
        text = await socket.receive_text()
        await bus.send("orders", text)
        await socket.send_text(f"sent {text}")
        await socket.close()

    return app


async def waiting_in(url: str, queue: str) -> list[object]:
    async with MessageBus(url) as bus:
        return [message.body for message in await bus.peek(queue, 10)]


async def test_routes_and_websockets_send_on_the_bus_of_their_application(folder: Path) -> None:
    url = f"sqlite:///{folder}/bus.db"
    async with running(with_routes(FastAPI(lifespan=lifespan(url)))) as app:
        assert (await app.client("POST", "/orders/7")).status == 200
        assert (await app.client("GET", "/waiting")).body == b"0"
        answers = await app.chat("/talk", "tea")
        assert [answer.get("text") for answer in answers] == [None, "sent tea", None]
    assert await waiting_in(url, "orders") == [{"number": 7}, "tea"]


@pytest.mark.parametrize("kind", ["nothing", "url", "path", "function"])
async def test_an_application_can_start_again(kind: str, folder: Path) -> None:
    path = folder / "bus.db"
    sources: dict[str, Any] = {
        "nothing": None,
        "url": f"sqlite:///{path}",
        "path": path,
        "function": lambda: MessageBus(path, strict=True),
    }
    app = FastAPI(lifespan=lifespan(sources[kind]))
    seen: list[MessageBus] = []
    for _ in range(2):
        async with running(app):
            seen.append(bus_of(app))
            await bus_of(app).create_queue("q")
    assert seen[0] is not seen[1]
    assert path.exists() == (kind != "nothing")


async def test_a_bus_that_was_given_is_started_and_closed() -> None:
    bus = MessageBus()
    handled: list[object] = []
    bus.subscribe("orders", lambda message: handled.append(message.body))
    app = FastAPI(lifespan=lifespan(bus))
    async with running(app):
        assert bus_of(app) is bus
        await bus.publish("orders", 1)
    assert handled == [1]  # Closing waited for it.
    with pytest.raises(BusClosed):
        await bus.publish("orders", 2)
    with pytest.raises(BusClosed, match="entered"):
        async with running(app):
            pass
    with pytest.raises(BusClosed, match="has no open message bus"):
        bus_of(app)


async def test_a_lifespan_of_the_users_own_runs_while_the_bus_is_open() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        await bus_of(app).create_queue("q")
        yield {"greeting": "hello"}
        await bus_of(app).send("q", "bye")
        steps.append("own lifespan ended")

    bus = MessageBus()
    app = FastAPI(lifespan=lifespan(bus, own))

    @app.get("/")
    async def greet(request: Request, bus: Bus) -> str:
        return f"{request.state.greeting} {len(await bus.entities())}"

    async with running(app) as run:
        assert (await run.client("GET", "/")).body == b'"hello 1"'
    assert steps == ["own lifespan ended"]


async def test_a_lifespan_of_the_users_own_may_also_be_around_it() -> None:
    bus_lifespan = lifespan()

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[None]:
        async with bus_lifespan(app):
            assert bus_lifespan.bus is bus_of(app)
            yield

    async with running(with_routes(FastAPI(lifespan=own))) as app:
        assert (await app.client("GET", "/waiting")).status == 200


async def test_an_application_that_is_mounted_in_another_has_its_bus() -> None:
    outer, inner = FastAPI(lifespan=lifespan()), with_routes(FastAPI())
    outer.mount("/v1", inner)
    async with running(outer) as app:
        assert (await app.client("GET", "/v1/waiting")).body == b"0"


async def test_a_handler_that_does_not_end_is_waited_for_up_to_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    began, is_cut = asyncio.Event(), asyncio.Event()

    async def slow(body: object) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cut.set()

    app = FastAPI(lifespan=lifespan(drain_timeout=0))
    async with running(app):
        bus_of(app).subscribe("work", slow)
        await bus_of(app).publish("work", 1)
        await began.wait()
    await is_cut.wait()
    with pytest.raises(BusClosed):
        bus_of(app)
    assert "work" in caplog.text


async def test_a_bus_is_not_there_before_the_start() -> None:
    bus = lifespan()
    app = with_routes(FastAPI(lifespan=bus))
    for ask in (lambda: bus.bus, lambda: bus_of(app), lambda: bus_of(object())):
        with pytest.raises(BusClosed, match=r"FastAPI\(lifespan=lifespan"):
            ask()
    with pytest.raises(StoreUnavailable):
        bus.broker.now_ns()


async def test_a_route_of_an_application_without_a_bus_raises() -> None:
    async with running(with_routes(FastAPI())) as app:
        with pytest.raises(BusClosed, match=r"with TestClient\(app\)"):
            await app.client("GET", "/waiting")


async def test_an_application_has_one_lifespan_with_a_bus() -> None:
    router = APIRouter(lifespan=lifespan())
    app = FastAPI(lifespan=lifespan())
    app.include_router(router)
    with pytest.raises(ConfigInvalid, match="already has a message bus"):
        async with running(app):
            pass
    with pytest.raises(BusClosed):
        bus_of(app)


async def test_two_applications_have_two_lifespans() -> None:
    shared = lifespan()
    first, second = FastAPI(lifespan=shared), FastAPI(lifespan=shared)
    async with running(first):
        bus = bus_of(first)
        with pytest.raises(ConfigInvalid, match="once for each application"):
            async with running(second):
                pass
        assert bus_of(first) is bus
    async with running(second):  # One after the other is no conflict.
        assert bus_of(second) is not bus


async def test_a_start_that_fails_leaves_nothing_open(folder: Path) -> None:
    url = f"sqlite:///{folder}/bus.db"

    @asynccontextmanager
    async def fails(app: FastAPI) -> AsyncIterator[None]:
        await bus_of(app).create_queue("q")
        raise RuntimeError("no database")
        yield

    app = FastAPI(lifespan=lifespan(url, fails))
    with pytest.raises(RuntimeError, match="no database"):
        async with running(app):
            pass
    assert not hasattr(app.state, "message_bus")
    assert await waiting_in(url, "q") == []  # Its file has no owner.


async def test_a_store_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    app = FastAPI(lifespan=lifespan(f"sqlite:///{tmp_path}/missing/bus.db"))
    with pytest.raises(StoreUnavailable):
        async with running(app):
            pass


@pytest.mark.processes
def test_without_fastapi_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "import unibus\n"
        "try: import unibus.integrations.fastapi\n"
        "except unibus.errors.ExtraMissing as error: print(error); assert isinstance(error, ImportError)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install '.[fastapi]'" in done.stdout
