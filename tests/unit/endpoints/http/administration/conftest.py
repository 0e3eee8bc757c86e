"""A namespace in memory behind the table of the administration, asked through each of the two dispatchers."""

from collections.abc import AsyncIterator, Mapping, MutableMapping
from dataclasses import dataclass
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import pytest

from tests.unit.endpoints.http.applications import dispatchers
from unibus import MessageBus
from unibus.bus.broker import Broker
from unibus.core.access.rights import Right
from unibus.endpoints.http.administration.table import ADMINISTRATION
from unibus.endpoints.http.app import Asgi
from unibus.endpoints.http.operation import Table
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.statistics import Statistics
from unibus.errors import Forbidden

TABLE = Table(ADMINISTRATION)
SERVICE_BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
ATOM = "{http://www.w3.org/2005/Atom}"


class Serving:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker


class Gate:
    """Allows everything but what a test forbids, by the token that was presented."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Right, str]] = []
        self.forbidden: set[tuple[str, str]] = set()

    def check(self, request: Request, right: Right, target: str) -> str:
        token = request.headers.get("authorization", "")
        self.asked.append((token, right, target))
        if (token, target) in self.forbidden:
            raise Forbidden("no", "ask for it")
        return "rule"

    def check_forwarding(self, request: Request, forward_to: str, forward_dead_letters_to: str) -> None:
        for target in (forward_to, forward_dead_letters_to):
            if target:
                self.check(request, Right.MANAGE, target)


class Quiet:
    """An observer that counts nothing."""

    def __init__(self) -> None:
        self.statistics = Statistics()

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        return None


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        found = msgspec.json.decode(self.body)
        assert isinstance(found, dict)
        return found

    def xml(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)

    def detail(self) -> str:
        """What an error says."""
        assert self.status >= 400, self.body
        return self.xml().findtext("Detail") or ""

    def properties(self) -> dict[str, str]:
        """The plain elements of the description in an entry."""
        content = self.xml().find(f"{ATOM}content")
        assert content is not None
        return {child.tag.partition("}")[2]: child.text or "" for child in content[0] if len(child) == 0}


class Client:
    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(
        self, method: str, target: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        path, _, query = target.partition("?")
        given = {"host": "bus.example:5300", **(headers or {})}
        scope: MutableMapping[str, object] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 5300),
        }
        data = body.encode() if isinstance(body, str) else body
        sent: list[MutableMapping[str, object]] = []

        async def receive() -> MutableMapping[str, object]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: MutableMapping[str, object]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start, *rest = sent
        raw = start["headers"]
        assert isinstance(raw, list)
        names = {name.decode(): value.decode("latin-1") for name, value in raw}
        status = start["status"]
        assert isinstance(status, int)
        return Answer(status, names, b"".join([bytes(each.get("body", b"")) for each in rest]))  # type: ignore[call-overload]


@pytest.fixture
async def bus() -> AsyncIterator[MessageBus]:
    async with MessageBus("memory://") as opened:
        yield opened


@pytest.fixture
async def broker(bus: MessageBus) -> Broker:
    return Broker(bus)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture(params=["front", "fastapi"])
def http(request: pytest.FixtureRequest, broker: Broker, gate: Gate) -> Client:
    service = Service(Serving(broker), gate, Quiet(), 1024 * 1024)
    return Client(dispatchers(service, TABLE)[request.param])


def described(kind: str, inner: str = "") -> str:
    """An Atom entry as clients send it."""
    head = '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    names = f'xmlns="{SERVICE_BUS[1:-1]}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    return f"{head}<{kind} {names}>{inner}</{kind}></content></entry>"
