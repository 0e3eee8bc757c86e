"""Clients that leave, do not read, send without end or never finish, against the real application.

A message may be locked by a client that is gone for as long as its lock lasts, and never longer; none is lost.
"""

import contextlib
import http.client
import json
import os
import random
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.server_process import PATIENCE_S, TOKEN, Forked, arguments_of, kill
from tests.integration.server.running import Running, read_all, read_answer, request, status_of
from tests.integration.server.test_store_failures import REAL

Serve = Callable[..., Running]
ENTITIES = '{"queues": {"q": {"lock_duration": 300}, "short": {"lock_duration": 1, "max_delivery_count": 1000}}}'
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Callable[..., Running]:
    def started(**settings: Any) -> Running:
        (tmp_path / "entities.json").write_text(ENTITIES)
        return serve(REAL, entities=str(tmp_path / "entities.json"), **settings)

    return started


def asked(method: str, target: str, body: bytes = b"", properties: str = "") -> bytes:
    """A request on a connection that stays."""
    more = f"BrokerProperties: {properties}\r\n" if properties else ""
    head = (
        f"{method} {target} HTTP/1.1\r\nhost: a\r\nauthorization: {TOKEN}\r\n{more}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def reset(client: socket.socket) -> None:
    """Close with RST in place of FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def waiting_receives(server: Running) -> int:
    state = server.server.serving.bus._runtime.queues().store._state  # type: ignore[attr-defined]
    return sum(len(entity.wakers) for entity in state.entities.values())


def received(client: socket.socket, target: str) -> dict[str, Any]:
    """BrokerProperties of what was received; empty for nothing."""
    client.sendall(asked("POST", target))
    found = b""
    while b"\r\n\r\n" not in found:
        found += client.recv(65_536)
    head, _, body = found.partition(b"\r\n\r\n")
    if status_of(head) == 204:
        return {}
    assert status_of(head) == 201, found
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    while len(body) < int(headers["content-length"]):
        body += client.recv(65_536)
    properties: dict[str, Any] = json.loads(headers["brokerproperties"])
    return {**properties, "Path": "/" + headers["location"].split("/", 3)[3]}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_clients_that_leave_while_they_wait_take_no_message(start: Any, tls: bool, method: str) -> None:
    server = start()
    clients = [server.connect(tls=tls) for _ in range(20)]
    for each in clients:
        each.sendall(asked(method, "/q/messages/head?timeout=300"))
    server.until(lambda: waiting_receives(server) == 20)
    for number, each in enumerate(clients):
        each.close() if number % 2 else reset(each)
    server.until(lambda: waiting_receives(server) == 0)
    with server.connect() as client:
        for number in range(20):
            client.sendall(asked("POST", "/q/messages", b"x", json.dumps({"MessageId": str(number)})))
            assert status_of(read_answer(client)) == 201
        found = [received(client, "/q/messages/head") for _ in range(20)]
    assert [each["MessageId"] for each in found] == [str(number) for number in range(20)]
    assert {each["DeliveryCount"] for each in found} == {1}


def test_clients_that_leave_in_the_moment_of_a_message_lose_none(start: Any) -> None:
    """A deliberate race: clients disconnect during delivery. Their messages are redelivered when the locks expire."""
    server, count = start(), 60
    stop, chance = threading.Event(), random.Random("leave")

    def wait_and_leave(seed: float) -> None:
        mine = random.Random(seed)
        while not stop.is_set():
            with server.connect() as client:
                client.sendall(asked("POST", "/short/messages/head?timeout=300"))
                stop.wait(mine.uniform(0, 0.005))  # Nothing sets it before the end: they leave at a random moment.
                if mine.random() < 0.5:
                    reset(client)

    threads = [threading.Thread(target=wait_and_leave, args=(chance.random(),)) for _ in range(8)]
    for each in threads:
        each.start()
    try:
        with server.connect() as client:
            for number in range(count):
                client.sendall(asked("POST", "/short/messages", b"x", json.dumps({"MessageId": str(number)})))
                assert status_of(read_answer(client)) == 201
    finally:
        stop.set()
        for each in threads:
            each.join(PATIENCE_S)
    found: dict[str, int] = {}
    with server.connect() as client:
        while len(found) < count:
            message = received(client, f"/short/messages/head?timeout={PATIENCE_S:g}")
            assert message, f"only {len(found)} of {count} came back"
            found[message["MessageId"]] = found.get(message["MessageId"], 0) + 1
            client.sendall(asked("DELETE", message["Path"]))
            assert status_of(read_answer(client)) == 200
    assert set(found.values()) == {1}


def test_clients_that_never_read_their_answers_are_cut_and_lose_no_message(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = start(body_deadline_s=2)
    with server.connect() as healthy:
        for number in range(10):
            healthy.sendall(asked("POST", "/short/messages", b"x" * 4_000_000, json.dumps({"MessageId": str(number)})))
            assert status_of(read_answer(healthy)) == 201
        deaf = [server.connect() for _ in range(5)]
        for each in deaf:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            each.sendall(asked("POST", "/short/messages/head"))
        server.until(lambda: sum(getattr(each, "_stalled", -1) >= 0 for each in server.server.connections._open) == 5)
        healthy.sendall(asked("GET", "/health"))
        assert status_of(read_answer(healthy)) == 200
        server.pass_seconds(3)
        server.until(lambda: len(server.server.connections) == 1)
        assert server.server.connections.cut == 5
        names = {received(healthy, f"/short/messages/head?timeout={PATIENCE_S:g}")["MessageId"] for _ in range(10)}
        assert names == {str(number) for number in range(10)}
        for each in deaf:
            each.close()


def test_a_client_that_leaves_is_noticed_with_requests_behind_the_one_that_waits(start: Any) -> None:
    server = start()
    with server.connect() as client:
        client.sendall(asked("POST", "/q/messages/head?timeout=300") + asked("GET", "/health") * 3)
        server.until(lambda: waiting_receives(server) == 1)
    server.until(lambda: waiting_receives(server) == 0)
    server.until(lambda: len(server.server.connections) == 0)


def test_a_client_that_sends_requests_without_reading_answers_is_not_read_from(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Pipelining without end: what the server holds for it is bounded, and others are served."""
    server, sent = start(), 0
    with server.connect() as flood, server.connect() as healthy:
        flood.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        flood.setblocking(False)
        chunk = asked("GET", "/health") * 100
        rest, full = chunk, 0
        while full < 50:
            try:
                taken = flood.send(rest)
                sent, full, rest = sent + taken, 0, rest[taken:] or chunk
            except BlockingIOError:
                full += 1
                healthy.sendall(asked("GET", "/health"))
                assert status_of(read_answer(healthy)) == 200
            assert sent < 50_000_000
        # What one read of the transport can have in it, and what may wait before it reads. None waits where the server
        # has stopped reading because its answers are not taken.
        waiting = [len(getattr(each, "pipeline", ())) for each in list(server.server.connections._open)]
        assert len(waiting) == 2
        assert max(waiting) < 300_000 / len(asked("GET", "/health"))
    server.until(lambda: len(server.server.connections) == 0)
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("tls", [False, True])
def test_thousands_of_requests_on_one_connection(start: Any, tls: bool) -> None:
    server = start()
    with server.connect(tls=tls) as client:
        for _ in range(20):
            client.sendall(asked("POST", "/q/messages", b"x") * 100)
            answers = b""
            while answers.count(b"HTTP/1.1 201") < 100:
                read = client.recv(65_536)
                assert read
                answers += read
    server.until(lambda: len(server.server.connections) == 0)
    assert server.server.connections.accepted == 1
    assert server.server.connections.bodies_bytes == 0


def test_empty_lines_buy_no_time(start: Any) -> None:
    server = start(head_deadline_s=3)
    with server.connect() as client:
        for _ in range(3):
            client.sendall(b"\r\n")
            server.until(lambda: len(server.server.connections) == 1)
            server.pass_seconds(1)
        server.until(lambda: any(hasattr(each, "phase") for each in server.server.connections._open))
        server.pass_seconds(4)
        assert read_all(client) == b""
    assert server.server.connections.cut == 1


# TLS


def test_handshakes_that_never_end_are_cut_and_count_as_connections(start: Any) -> None:
    server = start(head_deadline_s=1, connections_max=20)
    half = [server.connect() for _ in range(20)]
    for number, each in enumerate(half):
        each.sendall(CLIENT_HELLO[: 1 + number % len(CLIENT_HELLO)])
    server.until(lambda: len(server.server.connections.handshakes) == 20)
    assert server.ask(b"") == b""  # One more is refused.
    assert server.server.connections.refused == 1
    for each in half:
        assert read_all(each) == b""  # Cut by the deadline, in real time: TLS has its own timer.
        each.close()
    server.until(lambda: len(server.server.connections.handshakes) == 0 and len(server.server.connections) == 0)
    assert status_of(server.ask(request("/health"), tls=True)) == 200


def test_garbage_after_the_handshake_and_inside_of_it(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = start()
    chance = random.Random("tls")
    for _ in range(30):
        with server.connect() as client, contextlib.suppress(ConnectionError):
            client.sendall(b"\x16\x03\x01" + chance.randbytes(chance.randrange(1, 2_000)))
            client.shutdown(socket.SHUT_WR)
            read_all(client)
        context = ssl.create_default_context(cafile=str(server.server.ca_file))
        opened = server.connect()
        wrapped = context.wrap_socket(opened, server_hostname="localhost")
        raw = socket.socket(fileno=os.dup(wrapped.fileno()))
        raw.sendall(chance.randbytes(200))  # Behind the back of TLS: a record that cannot be decrypted.
        with contextlib.suppress(OSError):
            read_all(wrapped)
        for each in (raw, wrapped):
            each.close()
    server.until(lambda: len(server.server.connections) == 0 and len(server.server.connections.handshakes) == 0)
    assert status_of(server.ask(request("/health"), tls=True)) == 200
    assert "Traceback" not in caplog.text
    assert [each for each in caplog.records if each.exc_info] == []


def test_many_half_open_tls_connections_do_not_keep_others_waiting(start: Any) -> None:
    server = start(head_deadline_s=5)
    with ThousandConnections(server, 300) as silent:
        for each in silent:
            each.sendall(CLIENT_HELLO)
        server.until(lambda: len(server.server.connections.handshakes) == 300)
        for tls in (False, True):
            assert status_of(server.ask(request("/health"), tls=tls)) == 200
    server.until(lambda: len(server.server.connections.handshakes) == 0 and len(server.server.connections) == 0)


class ThousandConnections:
    def __init__(self, server: Running, count: int) -> None:
        self._server, self._count = server, count
        self._opened: list[socket.socket] = []

    def __enter__(self) -> list[socket.socket]:
        self._opened = [self._server.connect() for _ in range(self._count)]
        return self._opened

    def __exit__(self, *exc: object) -> None:
        for each in self._opened:
            each.close()


# Files


@pytest.fixture(scope="module")
def forked() -> Iterator[Forked]:
    server = Forked()
    yield server
    server.close()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process can be set on Linux only")
def test_a_server_without_file_descriptors_serves_those_it_has(forked: Forked, tmp_path: Path) -> None:
    (tmp_path / "entities.json").write_text(ENTITIES)
    log = tmp_path / "log"
    forked.start(arguments_of(tmp_path / "bus.db", "--entities", str(tmp_path / "entities.json")), log)
    port = forked.port(time.monotonic() + PATIENCE_S)
    used = len(os.listdir(f"/proc/{forked.pid}/fd"))
    resource.prlimit(forked.pid, resource.RLIMIT_NOFILE, (used + 8, used + 8))
    client = http.client.HTTPConnection("127.0.0.1", port, PATIENCE_S)

    def ask(method: str, path: str, body: bytes = b"") -> int:
        client.request(method, path, body, {"authorization": TOKEN})
        answer = client.getresponse()
        answer.read()
        return answer.status

    assert ask("POST", "/q/messages", b"1") == 201
    others = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(30)]
    while "cannot accept connections" not in log.read_text():
        assert ask("POST", "/q/messages", b"2") == 201
    for _ in range(20):
        assert ask("POST", "/q/messages", b"x" * 10_000) == 201
        assert ask("POST", "/q/messages/head") == 201
    for each in others:
        each.close()
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as late:
        late.sendall(request("/health"))
        assert status_of(read_all(late)) == 200
    client.close()
    assert kill(forked, 15) == 0
    assert "Traceback" not in log.read_text()
    assert "the store has failed" not in log.read_text()
