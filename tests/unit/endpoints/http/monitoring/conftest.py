"""A server's application over a real bus in memory, by both dispatchers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.unit.endpoints.asgi_client import Answer
from tests.unit.endpoints.http.applications import dispatchers
from tests.unit.endpoints.http.namespace import LOOPBACK, Holding, ask
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.endpoints.http.application.app import Asgi
from unibus.endpoints.http.application.observation import Observation, administrative
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.settings import HttpSettings
from unibus.testing import VirtualClock


@dataclass
class Rig:
    """`use` makes the application again with other settings, over the same bus."""

    bus: MessageBus
    broker: Broker
    clock: VirtualClock
    dispatcher: str
    holding: Holding = field(init=False)
    service: Service = field(init=False)
    app: Asgi = field(init=False)

    def __post_init__(self) -> None:
        self.holding = Holding(self.broker)
        self.use()

    def use(self, **settings: Any) -> None:
        given = HttpSettings(**settings)
        serving = cast(Any, self.holding)
        observation = Observation(administrative(TABLE.operations), given.metrics_histograms_max)
        authorization = SasAuthorization(serving, given)
        self.service = Service(serving, authorization, observation, given.body_bytes_max, given)
        self.app = cast(Any, dispatchers(self.service, TABLE)[self.dispatcher])

    async def get(self, path: str, headers: dict[str, str] | None = None, peer: str = LOOPBACK) -> Answer:
        return await ask(self.app, "GET", path, headers, peer=peer)

    async def send(self, entity: str, body: object = "x") -> None:
        await self.broker.send(entity, self.broker.message(entity, body, {}))


@pytest.fixture(params=["front", "fastapi"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    clock = VirtualClock()
    async with MessageBus("memory://", clock=clock) as bus:
        yield Rig(bus, Broker(bus), clock, request.param)
