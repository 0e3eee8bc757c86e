"""A namespace over the management API, on memory and on SQLite, and the same bus in process beside it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.endpoints.asgi_client import Answer, AsgiClient, Connection
from tests.unit.endpoints.http.applications import dispatchers
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.endpoints.http.management.tables.table import MANAGEMENT
from unibus.endpoints.http.operation import OperationTable
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.statistics import Statistics
from unibus.errors import BusError, Forbidden
from unibus.testing import VirtualClock

TABLE = OperationTable(MANAGEMENT)
BODY_BYTES_MAX = 4_000_000


@dataclass
class Held:
    """A server's hold on its bus, which a test ends by `interrupted`."""

    broker: Broker
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    reported: list[BaseException] = field(default_factory=list)

    def report(self, error: BaseException) -> None:
        self.reported.append(error)


@dataclass
class Allowing:
    """Allows everything but what is in `refused`, and remembers what it was asked."""

    asked: list[tuple[Right, str]] = field(default_factory=list)
    refused: set[tuple[Right, str]] = field(default_factory=set)

    def check(self, request: Request, right: Right, target: str) -> str:
        self.asked.append((right, target))
        if (right, target) in self.refused:
            raise Forbidden(f"no right to {right.value} {target!r}")
        return "test"


@dataclass
class Noted:
    answers: list[tuple[str, int, str]] = field(default_factory=list)
    changes: list[tuple[str, str, str]] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        self.answers.append((operation, status, error))
        self.changes.append((operation, request.entity, request.detail))


@dataclass
class Api:
    """Requests below /unibus/v1; `get` and `post` give the answer's JSON, and insist on its status."""

    bus: MessageBus
    broker: Broker
    client: AsgiClient
    authorization: Allowing
    observer: Noted
    clock: VirtualClock
    held: Held
    url: str

    async def get(self, target: str, status: int = 200) -> Any:
        return self._checked(await self.client("GET", f"/unibus/v1/{target}"), status)

    async def post(self, target: str, body: object = None, status: int = 200) -> Any:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self._checked(await self.client("POST", f"/unibus/v1/{target}", raw), status)

    def _checked(self, answer: Answer, status: int) -> Any:
        assert answer.status == status, answer
        return answer.json()

    async def error(self, method: str, target: str, body: object = None) -> tuple[int, str]:
        """The status and the code of a refusal."""
        raw = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        answer = await self.client(method, f"/unibus/v1/{target}", raw)
        return answer.status, answer.code()

    def begin(self, method: str, target: str, body: object = None) -> tuple[Connection, "asyncio.Task[None]"]:
        """A request that runs beside the test, which can disconnect."""
        connection = self.client.connect(b"" if body is None else msgspec.json.encode(body))
        running = asyncio.ensure_future(self.client.run(connection, method, f"/unibus/v1/{target}"))
        return connection, running

    async def counts(self, entity: str) -> tuple[int, int, int, int, int]:
        """Messages that are active, locked, scheduled, deferred, dead-lettered."""
        info = await self.broker.entity(entity)
        return info.active, info.locked, info.scheduled, info.deferred, info.dead


def same_error(found: tuple[int, str], error: type[BusError], status: int) -> bool:
    return found == (status, error("x").code)


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Api]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{folder}/bus.db"
    clock = VirtualClock()
    async with MessageBus(url, clock=clock) as bus:
        broker = Broker(bus)
        authorization, observer, held = Allowing(), Noted(), Held(broker)
        apps = dispatchers(Service(held, authorization, observer, BODY_BYTES_MAX), TABLE)
        await broker.create("queue", "q", {})
        yield Api(bus, broker, AsgiClient(apps["front"]), authorization, observer, clock, held, url)
