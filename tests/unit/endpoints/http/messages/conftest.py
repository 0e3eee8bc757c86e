"""A namespace over HTTP: every test runs over both dispatchers, on memory and on SQLite."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.endpoints.asgi_client import Answer, AsgiClient
from tests.unit.endpoints.http.applications import dispatchers
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.endpoints.http.messages.table import MESSAGES
from unibus.endpoints.http.operation import OperationTable
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.statistics import Statistics
from unibus.testing import VirtualClock

TABLE = OperationTable(MESSAGES)
BODY_BYTES_MAX = 1_000_000


@dataclass
class Held:
    """A server's hold on its bus, which a test ends by `interrupted`."""

    broker: Broker
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Allowing:
    """An authorization that allows everything, and remembers what it was asked."""

    asked: list[tuple[Right, str]] = field(default_factory=list)

    def check(self, request: Request, right: Right, target: str) -> str:
        self.asked.append((right, target))
        return "test"


@dataclass
class Noted:
    """An observer that remembers."""

    answers: list[tuple[str, int, str]] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        self.answers.append((operation, status, error))


@dataclass
class Namespace:
    bus: MessageBus
    broker: Broker
    client: AsgiClient
    other: AsgiClient
    """The other dispatcher over the same bus."""
    authorization: Allowing
    observer: Noted
    clock: VirtualClock
    interrupted: asyncio.Event

    async def __call__(
        self, method: str, target: str, body: bytes | str = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        return await self.client(method, target, body, headers)

    async def settled_counts(self, entity: str) -> tuple[int, int, int, int, int]:
        """Messages that are active, locked, scheduled, deferred, dead-lettered."""
        info = await self.broker.entity(entity)
        return info.active, info.locked, info.scheduled, info.deferred, info.dead


class Strict(Namespace):
    """Every request goes through both dispatchers, and both give the same status. For requests that change nothing."""

    async def __call__(
        self, method: str, target: str, body: bytes | str = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        mine = await self.client(method, target, body, headers)
        if mine.status < 300:
            return mine
        other = await self.other(method, target, body, headers)
        assert (mine.status, mine.body) == (other.status, other.body)
        return mine


@pytest.fixture(params=["front-memory", "front-sqlite", "fastapi-memory"])
async def http(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Namespace]:
    mine, store = request.param.split("-")
    url = "memory://" if store == "memory" else f"sqlite:///{folder}/bus.db"
    clock = VirtualClock()
    async with MessageBus(url, clock=clock) as bus:
        broker = Broker(bus)
        authorization, observer = Allowing(), Noted()
        held = Held(broker)
        apps = dispatchers(Service(held, authorization, observer, BODY_BYTES_MAX), TABLE)
        other = "fastapi" if mine == "front" else "front"
        client = AsgiClient(apps[mine])
        await broker.create("queue", "q", {})
        yield Namespace(bus, broker, client, AsgiClient(apps[other]), authorization, observer, clock, held.interrupted)


@pytest.fixture
async def strict() -> AsyncIterator[Namespace]:
    clock = VirtualClock()
    async with MessageBus("memory://", clock=clock) as bus:
        broker = Broker(bus)
        authorization, observer = Allowing(), Noted()
        held = Held(broker)
        apps = dispatchers(Service(held, authorization, observer, BODY_BYTES_MAX), TABLE)
        await broker.create("queue", "q", {})
        clients = AsgiClient(apps["front"]), AsgiClient(apps["fastapi"])
        yield Strict(bus, broker, *clients, authorization, observer, clock, held.interrupted)
