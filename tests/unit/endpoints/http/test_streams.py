"""Answers without a length: they end with their client, with their right and with the server, and are counted once."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from tests.unit.endpoints.asgi_client import AsgiClient, Connection
from tests.unit.endpoints.http.applications import dispatchers
from unibus.bus.management.history.event_feed import joined
from unibus.bus.management.wake import Wake
from unibus.core.access.rights import Right
from unibus.endpoints.http import runner
from unibus.endpoints.http.application.app import Asgi
from unibus.endpoints.http.live import KEEP_ALIVE, event, live_response
from unibus.endpoints.http.operation import Operation, OperationTable
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service
from unibus.errors import BusError, StoreFailed, Unauthorised


class Stage:
    """One operation that streams what is put into `queue`; an exception there is raised in the middle of the answer."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.interrupted = asyncio.Event()
        self.closed = asyncio.Event()
        self.is_allowed = True
        self.is_live = True
        self.answers: list[tuple[str, int, str, str]] = []
        self.reported: list[BaseException] = []
        self.service = Service(cast(Any, self), cast(Any, self), cast(Any, self), 10)

    # As the server, its authorization and its observer

    def report(self, error: BaseException) -> None:
        self.reported.append(error)

    def check(self, request: Request, right: Right, target: str) -> str:
        if not self.is_allowed:
            raise Unauthorised("the token has expired")
        return "rule"

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        self.answers.append((operation, status, error, rule))

    async def handler(self, service: Service, request: Request) -> Response:
        pieces = self.pieces()
        return live_response(pieces) if self.is_live else Response(200, b"", "text/plain", [], pieces)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            while (piece := await self.queue.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed.set()


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture(params=["front", "fastapi"])
def app(request: pytest.FixtureRequest, stage: Stage) -> Asgi:
    row = Operation("flow", "GET", "/unibus/v1/flow", Right.LISTEN, stage.handler, "", ("/unibus/v1/flow",))
    return dispatchers(stage.service, OperationTable((row,)))[request.param]


class Reader(Connection):
    """A client that takes each piece by `piece`; `ended` is true when the answer is complete."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.taken: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = False

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "http.response.body":
            self.taken.put_nowait(message["body"])
            self.ended = not message.get("more_body", False)


def start(app: Asgi) -> "tuple[Reader, asyncio.Task[None]]":
    reader = Reader()
    return reader, asyncio.ensure_future(AsgiClient(app).run(reader, "GET", "/unibus/v1/flow"))


async def test_pieces_come_one_by_one_and_the_answer_has_no_length(app: Asgi, stage: Stage) -> None:
    reader, running = start(app)
    stage.queue.put_nowait(b"one")
    assert await reader.taken.get() == b"one"
    stage.queue.put_nowait(b"two")
    assert await reader.taken.get() == b"two"
    assert stage.answers == []
    stage.queue.put_nowait(None)
    await running
    answer = reader.answer()
    assert (answer.status, answer.body, reader.ended) == (200, b"onetwo", True)
    assert "content-length" not in answer.headers
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert stage.answers == [("flow", 200, "", "rule")]
    assert stage.closed.is_set()


async def test_a_client_that_leaves_closes_the_generator(app: Asgi, stage: Stage) -> None:
    reader, running = start(app)
    stage.queue.put_nowait(b"one")
    await reader.taken.get()
    reader.leave()
    await running
    assert stage.closed.is_set()
    assert stage.answers == [("flow", 200, "", "rule")]
    assert not reader.ended


@pytest.mark.parametrize("is_live", [True, False])
async def test_an_error_in_the_middle(app: Asgi, stage: Stage, is_live: bool, caplog: pytest.LogCaptureFixture) -> None:
    stage.is_live = is_live
    reader, running = start(app)
    stage.queue.put_nowait(b"one")
    stage.queue.put_nowait(ZeroDivisionError("secret"))
    await running
    assert reader.answer().body == b"one"
    assert reader.ended is is_live  # A client must not take a part for the whole; a live answer is endless.
    assert stage.closed.is_set()
    assert stage.answers == [("flow", 200, "internal_error", "rule")]
    assert "unexpected error while it was answering" in caplog.text


@pytest.mark.parametrize("error", [StoreFailed("the disk is gone"), Unauthorised("no")])
async def test_an_error_of_the_bus_is_counted_by_its_code(app: Asgi, stage: Stage, error: BusError) -> None:
    _, running = start(app)
    stage.queue.put_nowait(error)
    await running
    assert stage.answers == [("flow", 200, error.code, "rule")]
    assert stage.reported == ([error] if isinstance(error, StoreFailed) else [])


async def test_a_server_that_stops_ends_a_live_answer_cleanly(app: Asgi, stage: Stage) -> None:
    reader, running = start(app)
    stage.queue.put_nowait(b"one")
    await reader.taken.get()
    stage.interrupted.set()
    await running
    assert reader.ended
    assert stage.closed.is_set()
    assert stage.answers == [("flow", 200, "", "rule")]


async def test_another_answer_is_completed_while_the_server_stops(app: Asgi, stage: Stage) -> None:
    stage.is_live = False
    reader, running = start(app)
    stage.interrupted.set()
    stage.queue.put_nowait(b"one")
    assert await reader.taken.get() == b"one"
    stage.queue.put_nowait(None)
    await running
    assert (reader.answer().body, reader.ended) == (b"one", True)


async def test_a_stream_does_not_outlive_its_right(app: Asgi, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RECHECK_NS", 0)
    reader, running = start(app)
    stage.queue.put_nowait(b"one")
    assert await reader.taken.get() == b"one"
    stage.is_allowed = False
    stage.queue.put_nowait(b"secret")
    await running
    assert reader.answer().body == b"one"
    assert stage.answers == [("flow", 200, "unauthorised", "rule")]


async def test_the_next_piece_is_made_when_the_client_has_taken_the_one_before(app: Asgi, stage: Stage) -> None:
    """A client that does not read costs one piece."""
    reader, may_go_on = Reader(), asyncio.Event()
    taking = reader.send

    async def slow(message: Any) -> None:
        await taking(message)
        if message["type"] == "http.response.body":
            await may_go_on.wait()

    reader.send = slow  # type: ignore[method-assign]
    running = asyncio.ensure_future(AsgiClient(app).run(reader, "GET", "/unibus/v1/flow"))
    for _ in range(100):
        stage.queue.put_nowait(b"x")
    await reader.taken.get()
    for _ in range(10):
        await asyncio.sleep(0)
    assert stage.queue.qsize() == 99
    stage.interrupted.set()
    may_go_on.set()
    await running


# The form


def test_the_form_of_an_event() -> None:
    assert event(b'{"a":1}', "changes", 7) == b'id: 7\nevent: changes\ndata: {"a":1}\n\n'
    assert event(b"[]") == b"data: []\n\n"
    assert KEEP_ALIVE.startswith(b":")


def test_small_parts_are_written_together_and_large_ones_are_not_held_back() -> None:
    assert list(joined([])) == []
    assert list(joined([b"a", b"b"])) == [b"ab"]
    large = b"x" * 70_000
    assert list(joined([large, b"a", large, b"b"])) == [large, b"a" + large, b"b"]


async def test_a_wake_up_reaches_all_who_wait_and_none_who_waits_later() -> None:
    wake = Wake()
    waiting = [asyncio.ensure_future(wake.wait(60)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(wake.wake_soon)
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert not await wake.wait(0)
