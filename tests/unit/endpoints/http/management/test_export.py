"""An export over the API has the lines of an export in process, of one moment, and ends with its client."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, MutableMapping
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.unit.endpoints.asgi_client import Connection
from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.history import export as exporting
from unibus.bus.history.export import Exporting, source_of
from unibus.bus.history.export_lines import checked_contents
from unibus.bus.management import pipes
from unibus.bus.management.messages import exports
from unibus.errors import DecodeError, EntityNotFound, RateLimited, RequestTimeout, StoreFailed, UsageError
from unibus.stores.seam.store_view import OpenStoreView


class Fixed(datetime):
    @classmethod
    def now(cls, tz: object = None) -> "Fixed":
        return cls(2026, 1, 1)


async def filled(api: Api, count: int = 5) -> None:
    await api.broker.create("topic", "t", {})
    await api.broker.create("subscription", "t/Subscriptions/s", {})
    await api.broker.create("queue", "sessions", {"requires_session": True})
    for at in range(count):
        await api.bus.send("q", {"n": at}, headers={"h": at})
        await api.bus.send("t", b"\xff" * at)
    await api.bus.send("q", "later", delay=60)
    await api.bus.send("sessions", 1, session_id="s1")
    for name, state in (("s1", b"one"), ("without messages", b"two")):
        lock = await api.broker.accept_session("sessions", name)
        await api.broker.set_session_state(lock, state)
    (claimed,) = await api.broker.receive("q")
    await api.broker.settle("dead_letter", claimed.token, reason="why")
    await api.broker.receive("q")


def local(api: Api, names: tuple[str, ...] = ()) -> bytes:
    lines: list[bytes] = []
    Exporting(OpenStoreView(api.broker.store), lines.append, lambda done, total: None).run(names)
    return b"".join(lines)


async def export(api: Api, query: str = "") -> bytes:
    answer = await api.client("GET", f"/unibus/v1/export{query}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return answer.body


async def test_the_lines_are_those_of_an_export_in_process(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "datetime", Fixed)
    await filled(api)
    assert await export(api) == local(api)
    assert await export(api, "?queue=q&queue=t") == local(api, ("q", "t"))
    contents = checked_contents(io.BytesIO(await export(api)))
    assert (contents.messages, contents.sessions) == (12, 2)


async def test_receivers_and_sessions_are_not_disturbed(api: Api) -> None:
    await filled(api)
    lock = await api.broker.accept_session("sessions", "another")
    before = api.broker.store.health().last_seq
    await export(api)
    assert api.broker.store.health().last_seq == before
    await api.broker.renew_session(lock)


async def test_all_of_it_is_of_one_moment(api: Api) -> None:
    """What is moved, completed or sent after the first line changes nothing."""
    await filled(api, 50)
    reader = await asyncio.to_thread(source_of, api.broker.store)
    if api.url.startswith("sqlite"):
        reader.close()
        return  # One read transaction of SQLite: test_reading.
    with closing(reader):
        for claimed in await api.broker.receive("q", 100):
            await api.broker.settle("complete", claimed.token)
        await api.bus.send("q", "new")
        lines: list[bytes] = []
        Exporting(reader, lines.append, lambda done, total: None).run(["q"])
    contents = checked_contents(io.BytesIO(b"".join(lines)))
    assert contents.messages == 51
    assert b'"new"' not in b"".join(lines)


async def test_an_unknown_name_is_refused_before_the_first_line(api: Api) -> None:
    assert same_error(await api.error("GET", "export?queue=q&queue=none"), EntityNotFound, 404)
    assert same_error(await api.error("GET", "export?queue="), UsageError, 400)


class Slow(Connection):
    """A client that takes one piece, and no more until it leaves."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.took = asyncio.Event()

    async def send(self, message: object) -> None:
        await super().send(message)  # type: ignore[arg-type]
        if self.pieces:
            self.took.set()
            await self._left.wait()


def export_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "unibus-export"]


async def test_a_client_that_leaves_ends_the_export(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PIECE_BYTES", 1)
    await filled(api, 50)
    connection = Slow()
    running = asyncio.ensure_future(api.client.run(connection, "GET", "/unibus/v1/export"))
    await connection.took.wait()
    (thread,) = export_threads()
    # It is full: 16 pieces on their way, while the client does not read.
    assert len(connection.pieces) == 1
    connection.leave()
    await running
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()
    with pytest.raises(DecodeError):
        checked_contents(io.BytesIO(b"".join(connection.pieces)))
    assert (await api.client("GET", "/unibus/v1/export")).status == 200


async def test_a_client_that_does_not_read_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PIECE_BYTES", 1)
    monkeypatch.setattr(pipes, "STALL_S", 0.01)
    await filled(api, 50)
    connection = Slow()
    running = asyncio.ensure_future(api.client.run(connection, "GET", "/unibus/v1/export"))
    await connection.took.wait()
    for thread in export_threads():
        await asyncio.to_thread(thread.join, 30)
    assert export_threads() == []
    connection.leave()
    await running


async def test_a_client_that_reads_again_too_late_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean end would mean that the export is complete."""
    monkeypatch.setattr(pipes, "PIECE_BYTES", 1)
    monkeypatch.setattr(pipes, "STALL_S", 0.01)
    pipe = pipes.Pipe()
    running = pipe.begin("unibus-export", lambda put: put(b"x" * 50))
    stream = await pipe.stream()
    await running
    with pytest.raises(RequestTimeout, match="read nothing"):
        [piece async for piece in stream]


async def test_few_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PIECE_BYTES", 1)
    await filled(api, 50)
    clients = [Slow() for _ in range(exports.AT_ONCE_MAX)]
    running = [asyncio.ensure_future(api.client.run(each, "GET", "/unibus/v1/export")) for each in clients]
    for client in clients:
        await client.took.wait()
    assert same_error(await api.error("GET", "export"), RateLimited, 429)
    for client in clients:
        client.leave()
    await asyncio.gather(*running)


async def test_a_store_that_fails_on_the_way_cuts_the_stream(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: object, names: object, put: Callable[[bytes], None]) -> None:
        put(json.dumps({"unibus_export": 1}).encode() + b"\n" + b"x" * pipes.PIECE_BYTES)
        raise StoreFailed("the disk is gone")

    monkeypatch.setattr(exports, "_produce", fail)
    connection = Ends()
    await api.client.run(connection, "GET", "/unibus/v1/export")
    assert connection.pieces[0].startswith(b'{"unibus_export"')
    assert not connection.has_ended  # Its client must not take a part for the whole.


class Ends(Connection):
    """`has_ended`: the answer came to its end, and was not cut."""

    has_ended = False

    def __init__(self) -> None:
        super().__init__(b"")

    async def send(self, message: MutableMapping[str, object]) -> None:
        await super().send(message)
        self.has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)


async def test_an_export_to_its_end(api: Api) -> None:
    await filled(api)
    connection = Ends()
    await api.client.run(connection, "GET", "/unibus/v1/export")
    assert connection.has_ended
    assert checked_contents(io.BytesIO(b"".join(connection.pieces))).messages == 12


async def test_a_client_that_leaves_before_the_first_piece_ends_the_export(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is there then, and was never asked for a piece."""
    monkeypatch.setattr(pipes, "PIECE_BYTES", 1)
    await filled(api, 50)
    stream = await exports.Exports(api.broker).stream([])
    (thread,) = export_threads()
    await stream.aclose()
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()


async def test_a_large_message_is_on_its_way_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PIECE_BYTES", 1_000)
    pipe = pipes.Pipe()
    running = pipe.begin("unibus-export", lambda put: [put(b"x" * 10_500) for _ in range(3)] and None)
    pieces = [piece async for piece in await pipe.stream()]
    await running
    assert max([len(piece) for piece in pieces]) == 1_000
    assert sum([len(piece) for piece in pieces]) == 31_500


async def test_the_file_is_closed_and_may_be_replaced(api: Api, folder: Path) -> None:
    await filled(api)
    await export(api)
    for thread in export_threads():
        await asyncio.to_thread(thread.join, 30)
    assert export_threads() == []


async def test_an_export_whose_thread_cannot_be_started_leaves_its_place_free(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, call: Callable[[], object]) -> object:
        raise RuntimeError("can't start new thread")

    running = exports.Exports(api.broker)
    monkeypatch.setattr(pipes, "begin_in_thread", refuse)
    for _ in range(exports.AT_ONCE_MAX + 1):
        with pytest.raises(RuntimeError, match="new thread"):
            await running.stream([])
