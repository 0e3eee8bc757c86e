"""A namespace with dead-lettered messages behind the operations on many of them, for tests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.unit.endpoints.asgi_client import Answer, AsgiClient
from tests.unit.endpoints.http.applications import dispatchers
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.endpoints.http.management.tables.bulk import BULK
from unibus.endpoints.http.operation import OperationTable
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.statistics import Statistics
from unibus.errors import StoreUnavailable
from unibus.testing import VirtualClock

TABLE = OperationTable(BULK)
QUEUE = "orders"


@dataclass
class Held:
    """A server's hold on its bus, which a test may take away."""

    bus: MessageBus | None = None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    reported: list[BaseException] = field(default_factory=list)
    made: Broker | None = None

    @property
    def broker(self) -> Broker:
        if self.made is None:
            raise StoreUnavailable("the store is not available: it failed", "try again in a moment")
        return self.made

    def report(self, error: BaseException) -> None:
        self.reported.append(error)


class Allowing:
    def check(self, request: Request, right: Right, target: str) -> str:
        return "operators"


@dataclass
class Noted:
    statistics: Statistics = field(default_factory=Statistics)
    changes: list[tuple[str, str, str]] = field(default_factory=list)

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        self.changes.append((operation, request.entity, request.detail))


class Operators:
    """`use` serves a bus, as a server that was started on its store."""

    def __init__(self, dispatcher: str, clock: VirtualClock) -> None:
        self.clock = clock
        self._dispatcher = dispatcher

    def use(self, bus: MessageBus) -> None:
        self.bus, self.broker = bus, Broker(bus)
        self.held = Held(bus, made=self.broker)
        self.observer = Noted()
        self.service = Service(self.held, Allowing(), self.observer, 1_000_000)  # type: ignore[arg-type]
        self.client = AsgiClient(dispatchers(self.service, TABLE)[self._dispatcher])

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        return await self.client(method, f"/unibus/v1/{path}", b"" if body is None else json.dumps(body))

    async def get(self, path: str) -> Any:
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    async def post(self, path: str, body: object = None, status: int = 200) -> Any:
        answer = await self.ask("POST", path, body)
        assert answer.status == status, answer
        return answer.json()

    async def job(self, **fields: object) -> Any:
        """A job from its creation to the state in which it rests."""
        return await self.rested((await self.post("jobs", fields, 201))["id"])

    async def rested(self, number: int) -> Any:
        while True:
            changed = self.service.jobs.changed
            record = await self.get(f"job?id={number}")
            if record["state"] not in ("queued", "running"):
                return record
            await asyncio.wait_for(changed.wait(), 10)

    async def running(self, number: int, done: int = 1) -> Any:
        """The record once so many messages are done."""
        while True:
            changed = self.service.jobs.changed
            record = await self.get(f"job?id={number}")
            if record["done"] >= done:
                return record
            await asyncio.wait_for(changed.wait(), 10)

    async def finished(self, number: int) -> Any:
        """The record of a job with a rate once it is at rest; the clock advances meanwhile."""
        while True:
            changed = self.service.jobs.changed
            record = await self.get(f"job?id={number}")
            if record["state"] not in ("queued", "running"):
                return record
            await self.clock.advance_async(1.1)
            await asyncio.wait_for(changed.wait(), 10)

    async def dead_letter(self, count: int, reason: str = "Broken", queue: str = QUEUE) -> list[str]:
        """So many dead-lettered messages; their ids."""
        sent = await self.bus.send_many(queue, [{"number": at} for at in range(count)])
        for message in await self.bus.receive_batch(queue, count, timeout=0):
            await message.dead_letter(reason, "by hand")
        return [each.id for each in sent]

    async def counts(self, queue: str = QUEUE) -> tuple[int, int]:
        """Messages that are active, and that are dead-lettered."""
        info = await self.broker.entity(queue)
        return info.active, info.dead


@asynccontextmanager
async def operators(dispatcher: str, url: str) -> AsyncIterator[Operators]:
    clock = VirtualClock()
    async with MessageBus(url, clock=clock) as bus:
        await bus.create_queue(QUEUE)
        found = Operators(dispatcher, clock)
        found.use(bus)
        yield found
        await found.service.jobs.stop()
