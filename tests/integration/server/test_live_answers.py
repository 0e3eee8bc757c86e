"""Live answers over real sockets: no deadline cuts one, a client that does not read is bounded, and a stop ends all."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.server.running import PATIENCE_S, Running, fail, read_all, status_of
from unibus.core.access.rules import well_known_rule
from unibus.core.access.token import make_token

Serve = Callable[..., Running]
REAL: dict[str, Any] = {"build_app": None, "make_broker": None}


@pytest.fixture
def loop_name() -> str:
    """One loop is enough: what differs between them is tested with the deadlines."""
    return "uvloop"


def live(server: Running, path: str, receive_bytes: int = 0) -> socket.socket:
    """A client of a live answer that has its head. `receive_bytes` bounds the receive buffer of its socket."""
    rule = well_known_rule()
    token = make_token(f"sb://localhost:{server.server.port}", rule.name, rule.primary_key, 2**32)
    client = socket.socket()
    client.settimeout(PATIENCE_S)
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect(("127.0.0.1", server.server.port))
    client.sendall(f"GET /unibus/v1/{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n\r\n".encode())
    assert status_of(until(client, b"\r\n\r\n")) == 200
    return client


def until(client: socket.socket, text: bytes) -> bytes:
    found = b""
    while text not in found:
        chunk = client.recv(65_536)
        assert chunk, f"closed before {text!r}: {found[-300:]!r}"
        found += chunk
    return found


def fill(server: Running, count: int) -> None:
    async def send() -> None:
        broker: Any = server.server.serving.broker
        for _ in range(count // 1_000):
            await broker.send_many("orders", [broker.message("orders", "x", {}) for _ in range(1_000)])

    server.call(send())


def create(server: Running) -> None:
    async def declare() -> None:
        broker: Any = server.server.serving.broker
        await broker.create("queue", "orders")

    server.call(declare())


def test_no_deadline_cuts_a_live_answer(serve: Serve) -> None:
    server = serve(REAL, idle_deadline_s=1, body_deadline_s=1, head_deadline_s=1)
    create(server)
    with live(server, "events/live?after=0") as client:
        until(client, b'"kind":"declared"')
        server.pass_seconds(100)
        fill(server, 1_000)
        until(client, b'"kind":"sent"')


def test_a_stop_ends_live_answers_at_once_and_cleanly(serve: Serve) -> None:
    server = serve(REAL, drain_deadline_s=1_000)
    create(server)
    clients = [live(server, path) for path in ("events/live", "entities/live", "server/live", "server/logs?follow=1")]
    server.stop()  # Would wait for a thousand seconds otherwise.
    for client in clients:
        with client:
            assert read_all(client).endswith(b"0\r\n\r\n")


def stalled(server: Running) -> socket.socket:
    """A client that has asked for everything, and reads nothing of it."""
    create(server)
    fill(server, 20_000)
    client = live(server, "events/live?after=0", 4_096)
    try:
        connection: Any = next(each for each in server.server.connections._open if hasattr(each, "flow"))
        server.until(lambda: connection._stalled >= 0)
        assert server.do(connection.transport.get_write_buffer_size) < 400_000
    except BaseException:
        client.close()
        raise
    return client


def test_a_client_that_does_not_read_is_bounded_and_cut(serve: Serve) -> None:
    server = serve(REAL, body_deadline_s=5)
    with stalled(server) as client:
        server.pass_seconds(5)
        assert len(server.server.connections) == 1
        server.pass_seconds(2)
        server.until(lambda: len(server.server.connections) == 0)
        assert not read_all(client).endswith(b"0\r\n\r\n")


def test_a_stop_does_not_wait_for_a_client_that_does_not_read(serve: Serve) -> None:
    server = serve(REAL, drain_deadline_s=1_000)
    with stalled(server):
        server.stop()


def test_a_client_connects_again_after_the_store_has_failed(serve: Serve, tmp_path: Any) -> None:
    server = serve(REAL, store=str(tmp_path / "a.db"))
    create(server)
    with live(server, "events/live?after=0") as client:
        until(client, b"id: 1\n")
        server.do(lambda: fail(server))
        server.do(server.server.serving.check)
        assert read_all_until_end(client)
    server.until(lambda: not server.server.serving.problem)
    with live(server, "events/live?after=0") as client:
        until(client, b"id: 1\n")


def read_all_until_end(client: socket.socket) -> bool:
    client.settimeout(PATIENCE_S)
    found = b""
    while not found.endswith(b"0\r\n\r\n"):
        chunk = client.recv(65_536)
        if not chunk:
            return False
        found += chunk
    return True


@pytest.mark.parametrize("target", ["server/stop", "entities/live"])
def test_only_reading_is_open_to_a_browser(serve: Serve, target: str) -> None:
    """Basic and no key at all are for what a page reads; a browser sends both by itself."""
    server = serve(REAL)
    for authorization in ("", "authorization: Basic Um9vdE1hbmFnZVNoYXJlZEFjY2Vzc0tleTpTQVNfS0VZX1ZBTFVF\r\n"):
        head = f"POST /unibus/v1/{target} HTTP/1.1\r\nhost: localhost\r\n{authorization}"
        answer = server.ask(f"{head}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        assert status_of(answer) == (401 if target == "server/stop" else 405)
