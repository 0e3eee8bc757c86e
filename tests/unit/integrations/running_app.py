"""A FastAPI application between its startup and its shutdown, as a server runs it, without a server."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from tests.unit.endpoints.asgi_client import JSON_CLIENT, AsgiClient

Event = MutableMapping[str, Any]


class RunningApp:
    """`client` sends requests with the state of the lifespan in their scope, as the ASGI specification asks for."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._state: dict[str, Any] = {}
        self._to_app: asyncio.Queue[Event] = asyncio.Queue()
        self._from_app: asyncio.Queue[Event] = asyncio.Queue()
        self._living: asyncio.Task[None] | None = None
        self.client = AsgiClient(self._with_state, JSON_CLIENT)

    def elsewhere(self) -> AsgiClient:
        """A client on another machine."""
        return AsgiClient(self._with_state, JSON_CLIENT, "203.0.113.9")

    async def start(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}
        self._living = asyncio.ensure_future(self.app(scope, self._to_app.get, self._from_app.put))
        await self._answer("startup")

    async def stop(self) -> None:
        await self._answer("shutdown")
        assert self._living is not None
        await self._living

    async def _answer(self, phase: str) -> None:
        assert self._living is not None
        await self._to_app.put({"type": f"lifespan.{phase}"})
        answer = await self._from_app.get()
        if answer["type"] == f"lifespan.{phase}.failed":
            await self._living  # Raises what has failed.
        assert answer["type"] == f"lifespan.{phase}.complete"

    async def chat(self, path: str, *texts: str) -> list[Event]:
        """Everything that a WebSocket answers to these texts, until it closes."""
        events: list[Event] = [{"type": "websocket.connect"}]
        events += [{"type": "websocket.receive", "text": text} for text in texts]
        events.append({"type": "websocket.disconnect", "code": 1000})
        answers: list[Event] = []

        async def receive() -> Event:
            return events.pop(0)

        async def send(event: Event) -> None:
            answers.append(event)

        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": [], "subprotocols": []}
        await self._with_state({**scope, "asgi": {"version": "3.0"}, "scheme": "ws"}, receive, send)
        return answers

    async def _with_state(self, scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = dict(self._state)
        await self.app(scope, receive, send)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[RunningApp]:
    found = RunningApp(app)
    await found.start()
    try:
        yield found
    finally:
        await found.stop()
