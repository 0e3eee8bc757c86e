"""One request from its operation to its bytes; and work that may wait for long ends with its client."""

import asyncio
from collections.abc import MutableMapping

import pytest

from unibus.core.access.rights import Right
from unibus.endpoints.http.operation import Handler, Operation
from unibus.endpoints.http.request import Disconnected, Request, Response
from unibus.endpoints.http.routing import RoutedPath
from unibus.endpoints.http.runner import correlation_id, run, while_connected
from unibus.endpoints.http.service import Authorization, Service
from unibus.errors import Forbidden


class Client:
    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, object]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    def request(self) -> Request:
        return Request({"type": "http", "method": "POST", "headers": []}, self.receive, RoutedPath("/"))


async def test_the_result_of_a_client_that_stays() -> None:
    async def work() -> int:
        return 5

    assert await while_connected(Client().request(), work()) == 5


async def test_an_error_comes_through() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await while_connected(Client().request(), work())


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    client, cancelled, begun = Client(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    running = asyncio.ensure_future(while_connected(client.request(), work()))
    await begun.wait()
    client.left.set()
    with pytest.raises(Disconnected):
        await running
    assert cancelled.is_set()


async def test_what_was_done_in_the_same_moment_is_undone() -> None:
    client, undone = Client(), []

    async def work() -> int:
        client.left.set()
        return 5

    async def undo(result: int) -> None:
        undone.append(result)

    client.left.set()
    with pytest.raises(Disconnected):
        await while_connected(client.request(), work(), undo)
    assert undone == [5]


async def test_the_caller_itself_is_cancelled() -> None:
    client, cancelled, begun = Client(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    running = asyncio.ensure_future(while_connected(client.request(), work()))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancelled.is_set()


# One request from its operation to its bytes


class Observed:
    def __init__(self) -> None:
        self.answers: list[tuple[str, int, str, str]] = []

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        self.answers.append((operation, status, error, rule))


class Refusing:
    def check(self, request: Request, right: Right, target: str) -> str:
        raise Forbidden("not you", "ask for the right")


class Allowing:
    def check(self, request: Request, right: Right, target: str) -> str:
        return "rule"


class Asked:
    """A request whose body is counted when it is read."""

    def __init__(self, body: bytes = b"x") -> None:
        self.reads = 0
        self.body = body
        self.sent: list[dict[str, object]] = []

    async def receive(self) -> dict[str, object]:
        self.reads += 1
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: MutableMapping[str, object]) -> None:
        self.sent.append(dict(message))

    def request(self) -> Request:
        scope = {"type": "http", "method": "POST", "headers": [(b"accept", b"application/json")]}
        return Request(scope, self.receive, RoutedPath("entity/messages", "q"))


def operation(handler: Handler) -> Operation:
    return Operation("send", "POST", "entity/messages", Right.SEND, handler, "", (), has_body=True)


def service(authorization: Authorization, observer: Observed) -> Service:
    return Service(None, authorization, observer, 10)  # type: ignore[arg-type]


async def test_a_caller_without_rights_makes_the_server_read_nothing() -> None:
    called = False

    async def handler(service: Service, request: Request) -> Response:
        nonlocal called
        called = True
        return Response()

    asked, observer = Asked(), Observed()
    await run(service(Refusing(), observer), operation(handler), asked.request(), asked.send)
    assert (asked.reads, called) == (0, False)
    assert asked.sent[0]["status"] == 403
    assert observer.answers == [("send", 403, "forbidden", "")]


async def test_an_unexpected_error_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(service: Service, request: Request) -> Response:
        raise ZeroDivisionError("secret")

    asked, observer = Asked(), Observed()
    await run(service(Allowing(), observer), operation(handler), asked.request(), asked.send)
    assert asked.sent[0]["status"] == 500
    assert b"secret" not in asked.sent[1]["body"]  # type: ignore[operator]
    assert "secret" in caplog.text
    assert observer.answers == [("send", 500, "internal_error", "rule")]


async def test_a_body_beyond_the_limit() -> None:
    async def handler(service: Service, request: Request) -> Response:
        return Response()

    asked, observer = Asked(b"x" * 11), Observed()
    await run(service(Allowing(), observer), operation(handler), asked.request(), asked.send)
    assert asked.sent[0]["status"] == 413


@pytest.mark.parametrize(
    ("header", "value", "echoed"),
    [
        ("x-correlation-id", "abc", True),
        ("correlation-id", "abc", True),
        ("x-correlation-id", "a b", False),
        ("x-correlation-id", "x" * 129, False),
        ("x-correlation-id", "\xff", False),
    ],
)
async def test_correlation_ids(header: str, value: str, echoed: bool) -> None:
    request = Asked().request()
    request.headers[header] = value
    found = correlation_id(request)
    assert (found == value) is echoed
    assert correlation_id(request) == found
    assert correlation_id(Asked().request()) != found
