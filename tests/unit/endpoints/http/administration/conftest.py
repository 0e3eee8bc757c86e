"""A namespace in memory behind the table of the administration, asked through each of the two dispatchers."""

from collections.abc import AsyncIterator, Mapping
from xml.etree import ElementTree

import pytest

from tests.unit.endpoints.asgi_client import HOST, Answer, AsgiClient
from tests.unit.endpoints.http.applications import dispatchers
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.endpoints.http.administration.table import ADMINISTRATION
from unibus.endpoints.http.application.app import Asgi
from unibus.endpoints.http.operation import OperationTable
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.statistics import Statistics
from unibus.errors import Forbidden

TABLE = OperationTable(ADMINISTRATION)
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


class AtomAnswer(Answer):
    """An answer of the administration: a document in Atom, or one object in JSON."""

    def document(self) -> dict[str, object]:
        found = self.json()
        assert isinstance(found, dict)
        return found

    def xml(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)

    def detail(self) -> str:
        """What an error says."""
        assert self.status >= 400, self.body
        return self.xml().findtext("Detail") or ""

    def elements(self) -> dict[str, str]:
        """The plain elements of the description in an entry."""
        content = self.xml().find(f"{ATOM}content")
        assert content is not None
        return {child.tag.partition("}")[2]: child.text or "" for child in content[0] if len(child) == 0}


class Client(AsgiClient):
    def __init__(self, app: Asgi) -> None:
        super().__init__(app, HOST)

    async def __call__(
        self, method: str, target: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None
    ) -> AtomAnswer:
        found = await super().__call__(method, target, body, headers)
        return AtomAnswer(found.status, found.headers, found.body, found.names)


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
