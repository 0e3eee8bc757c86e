"""A server's application over a real store, and a client that reads live answers event by event."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from tests.unit.endpoints.asgi_client import Answer, AsgiClient, Connection
from tests.unit.endpoints.http.applications import dispatchers
from tests.unit.endpoints.http.namespace import ALL, HOST, rule
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rules import AuthorizationRule
from unibus.core.access.token import make_token
from unibus.endpoints.http.application.app import Asgi
from unibus.endpoints.http.application.observation import Observation
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.settings import HttpSettings
from unibus.endpoints.server_control import ServerControl
from unibus.testing import VirtualClock

ROOT = rule("root", ALL, 1)
PATIENCE_S = 30.0


@dataclass
class Server:
    """As much of a server as its application sees."""

    broker: Broker
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    control: ServerControl = field(default_factory=ServerControl)
    reported: list[BaseException] = field(default_factory=list)

    def report(self, error: BaseException) -> None:
        self.reported.append(error)


@dataclass(frozen=True)
class LiveEvent:
    name: str
    id: str
    data: Any


class Stream(Connection):
    """A live answer. `next` gives the next event; comments are counted."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.comments = 0
        self.is_ended = False
        self._text = b""
        self._events: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
        self.head = asyncio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            await super().send(message)
            self.head.set()
            return
        self._text += message["body"]
        *blocks, self._text = self._text.split(b"\n\n")
        for block in blocks:
            self._take(block.decode())
        if not message.get("more_body", False):
            self.is_ended = True
            self._events.put_nowait(None)

    def _take(self, block: str) -> None:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        self.comments += "" in fields or ":" in fields
        if "data" in fields:
            data = msgspec.json.decode(fields["data"])
            self._events.put_nowait(LiveEvent(fields.get("event", ""), fields.get("id", ""), data))

    async def next(self) -> LiveEvent:
        found = await asyncio.wait_for(self._events.get(), PATIENCE_S)
        assert found is not None, "the answer has ended"
        return found

    async def take(self, count: int) -> list[LiveEvent]:
        return [await self.next() for _ in range(count)]

    async def ended(self) -> None:
        assert await asyncio.wait_for(self._events.get(), PATIENCE_S) is None


@dataclass
class Live:
    """`root` is the rule of the client, whose namespace has it unless `is_open`."""

    bus: MessageBus
    broker: Broker
    clock: VirtualClock
    dispatcher: str
    server: Server = field(init=False)
    service: Service = field(init=False)
    app: Asgi = field(init=False)

    def __post_init__(self) -> None:
        self.server = Server(self.broker)
        self.use(authorization_rules=(ROOT,))

    def use(self, **settings: Any) -> None:
        given = HttpSettings(**settings)
        serving = cast(Any, self.server)
        observation = Observation(())
        authorization = SasAuthorization(serving, given)
        self.service = Service(serving, authorization, observation, given.body_bytes_max, given)
        self.app = dispatchers(self.service, TABLE)[self.dispatcher]

    def token(self, by: AuthorizationRule = ROOT, path: str = "") -> str:
        return make_token(f"sb://{HOST}/{path}", by.name, by.primary_key, self.broker.now_ns() // 10**9 + 3600)

    async def ask(
        self,
        target: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        peer: str = "203.0.113.9",
        authorization: str | None = None,
        body: bytes = b"",
    ) -> Answer:
        """As root, unless another authorization is given; an empty one is none."""
        text = self.token() if authorization is None else authorization
        given = {"host": "bus.test:5300", **({"authorization": text} if text else {}), **(headers or {})}
        return await AsgiClient(self.app, given, peer)(method, target, body)

    @asynccontextmanager
    async def stream(
        self, target: str, headers: Mapping[str, str] | None = None, authorization: str = ""
    ) -> AsyncIterator[Stream]:
        stream = Stream()
        given = {"host": "bus.test:5300", "authorization": authorization or self.token(), **(headers or {})}
        running = asyncio.ensure_future(AsgiClient(self.app, given).run(stream, "GET", target))
        try:
            await asyncio.wait_for(stream.head.wait(), PATIENCE_S)
            yield stream
        finally:
            stream.leave()
            await asyncio.wait_for(running, PATIENCE_S)

    async def send(self, entity: str, *bodies: object) -> None:
        await self.broker.send_many(entity, [self.broker.message(entity, body, {}) for body in bodies])


async def until(condition: Callable[[], bool]) -> None:
    """Until it holds; looked at again and again, because what it looks at knows nothing of tests."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
