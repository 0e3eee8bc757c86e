"""Work that may wait for long ends with its client."""

import asyncio

import pytest

from unibus.endpoints.http.request import Disconnected, Request
from unibus.endpoints.http.routing import Place
from unibus.endpoints.http.runner import while_connected


class Client:
    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, object]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    def request(self) -> Request:
        return Request({"type": "http", "method": "POST", "headers": []}, self.receive, Place("/"))


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
