"""Server-sent events: however the bytes are cut, and however often the connection is."""

import socket
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.unit.client.fake_server import refused, talking
from unibus.client import events
from unibus.client.events import EventStream, ServerEvent, parsed
from unibus.errors import Forbidden, ServerUnavailable

TEXT = (
    b"retry: 1000\n\n: alive\n\n: \nid: 6\n\n"
    b'id: 7\nevent: page\ndata: {"a":\ndata: 1}\n\nid: 8\r\ndata: x\r\n\r\ndata:lost\n'
)
WANTED = [ServerEvent("6", "", b""), ServerEvent("7", "page", b'{"a":\n1}'), ServerEvent("8", "", b"x")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_read_however_they_are_cut(size: int) -> None:
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    assert list(parsed(iter(pieces))) == WANTED


def stream(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + f"{len(body):x}\r\n".encode() + body + b"\r\n"


def test_a_stream_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RETRY_S", 0.0)

    def part(body: bytes) -> object:
        return lambda connection: connection.sendall(stream(body))  # And the connection ends, in the middle.

    with talking(
        part(b"id: 1\ndata: a\n\nid: 2\nda"),  # type: ignore[arg-type]
        part(b"id: 2\ndata: b\n\n"),  # type: ignore[arg-type]
        part(b"id: 3\ndata: c\n\n"),  # type: ignore[arg-type]
    ) as (client, server):
        found = islice(EventStream(client, "events/live", last_id="0"), 3)
        assert [event.data for event in found] == [b"a", b"b", b"c"]
    assert [b"Last-Event-ID: %d" % at in request for at, request in enumerate(server.requests)] == [True, True, True]


def test_a_server_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RETRY_S", 0.0)
    monkeypatch.setattr(events, "RETRIES_S", 0.01)
    with talking(lambda connection: connection.sendall(stream(b"id: 1\ndata: a\n\n"))) as (client, server):
        found = iter(EventStream(client, "events/live"))
        assert next(found).data == b"a"
        server.close()
        with pytest.raises(ServerUnavailable):
            next(found)


def test_a_refusal_is_no_reason_to_try_again() -> None:
    body = b'{"error":{"code":"forbidden","message":"no","details":""}}'
    with talking(refused(403, body)) as (client, server), pytest.raises(Forbidden):
        next(iter(EventStream(client, "events/live")))
    assert len(server.requests) == 1


def test_an_event_without_an_end_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 1_000)

    def endless(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.sendall(b"100\r\n" + b"x" * 256 + b"\r\n")
        except OSError:
            return

    with talking(endless) as (client, _), pytest.raises(events.StreamTooLarge):
        next(iter(EventStream(client, "events/live")))


def endless_lines() -> Iterator[bytes]:
    while True:
        yield b"data: xxxxxxxxxx\n"


def test_many_lines_of_one_event_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 1_000)
    with pytest.raises(events.StreamTooLarge):
        list(parsed(endless_lines()))
