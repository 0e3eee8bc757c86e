"""SIGTERM and SIGINT of `unibus serve` under load: what is in flight is answered, and what was answered is kept.

The clients and the ledger are those of the kills, with one more rule: no request that reached the server stays without
an answer.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.http_clients import ENTITIES, PATIENCE_S, Client
from tests.crash.http_ledger import OPEN, HttpLedger
from tests.crash.server_kills import judge
from tests.crash.server_process import TOKEN, Forked, arguments_of, kill


@pytest.fixture(scope="module")
def server() -> Iterator[Forked]:
    started = Forked()
    yield started
    started.close()


def start(server: Forked, path: Path, *more: str) -> int:
    entities = path.with_suffix(".json")
    entities.write_text(json.dumps(ENTITIES))
    server.start(arguments_of(path, "--entities", str(entities), *more), path.with_suffix(".log"))
    port = server.port(time.monotonic() + PATIENCE_S)
    assert port, path.with_suffix(".log").read_text()
    return port


def events(path: Path) -> list[str]:
    return [json.loads(line).get("event", "") for line in path.with_suffix(".log").read_text().splitlines()]


def until_logged(path: Path, text: str, times: int = 1) -> None:
    """Until the log has this. It is the only thing that a server says about a request that it has begun."""
    deadline = time.monotonic() + PATIENCE_S
    while path.with_suffix(".log").read_text().count(text) < times:
        assert time.monotonic() < deadline, path.with_suffix(".log").read_text()
        time.sleep(0.01)


def ask(port: int, method: str, target: str, body: bytes = b"") -> socket.socket:
    """A request that was sent, on a connection of its own."""
    opened = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    head = f"{method} {target} HTTP/1.1\r\nhost: a\r\nauthorization: {TOKEN}\r\ncontent-length: {len(body)}\r\n\r\n"
    opened.sendall(head.encode() + body)
    return opened


def answer(opened: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while read := opened.recv(65_536):
            found += read
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_stops_under_load_answers_and_loses_nothing(
    server: Forked, tmp_path: Path, number: signal.Signals
) -> None:
    path, ledger = tmp_path / "bus.db", HttpLedger()
    clients = [Client(ledger, f"m{number.name}.{each}") for each in range(6)]
    for _ in range(3):
        port = start(server, path)
        stop = threading.Event()
        threads = [threading.Thread(target=each.live, args=(port, stop)) for each in clients]
        for each in threads:
            each.start()
        wanted = ledger.counts["acknowledged sends"] + 50
        while ledger.counts["acknowledged sends"] < wanted and not ledger.findings.all():
            time.sleep(0.005)
        assert kill(server, number) == 0
        for each in threads:
            each.join(PATIENCE_S)
    stored = {each for messages in judge(path, ledger).values() for each, _ in messages}
    assert ledger.findings.all() == []
    assert events(path).count("stopped") == 3
    # A request may meet a connection that is just being closed, and has no answer then. It has no effect either.
    assert [each.id for each in ledger.sent.values() if each.status == OPEN and each.id in stored] == []


@pytest.mark.parametrize(
    "target", ["/a/messages/head", "/topic/subscriptions/one/messages/head", "/sessions/$sessions"]
)
def test_a_long_poll_is_answered_when_the_server_stops(server: Forked, tmp_path: Path, target: str) -> None:
    """With a drain deadline of minutes: it is not the deadline that ends it."""
    path = tmp_path / "bus.db"
    port = start(server, path, "--drain-deadline-s", "300")
    with ask(port, "POST", f"{target}?timeout=300") as waiting, ask(port, "GET", "/health") as other:
        assert other.recv(65_536).startswith(b"HTTP/1.1 200")
        assert kill(server, signal.SIGTERM) == 0
        assert answer(waiting).startswith(b"HTTP/1.1 204")
    assert "Traceback" not in path.with_suffix(".log").read_text()


def test_a_second_signal_does_not_wait_for_a_body_that_does_not_come(server: Forked, tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    port = start(server, path, "--drain-deadline-s", "300", "--body-deadline-s", "300")
    with ask(port, "POST", "/a/messages", b"x") as whole, ask(port, "POST", "/a/messages", b"") as half:
        assert whole.recv(65_536).startswith(b"HTTP/1.1 201")
        half.recv(65_536)
        head = f"POST /a/messages HTTP/1.1\r\nhost: a\r\nauthorization: {TOKEN}\r\ncontent-length: 9\r\n\r\nhalf"
        half.sendall(head.encode())
        with ask(port, "GET", "/health") as other:
            assert other.recv(65_536).startswith(b"HTTP/1.1 200")
        os.kill(server.pid, signal.SIGTERM)
        until_logged(path, '"stopping"')
        assert kill(server, signal.SIGINT) == 0
        answer(half)
    assert events(path)[-1] == "stopped"


def test_a_body_that_comes_while_the_server_stops_is_stored(server: Forked, tmp_path: Path) -> None:
    path, ledger = tmp_path / "bus.db", HttpLedger()
    port = start(server, path, "--drain-deadline-s", "300")
    (sent,) = ledger.asks_send("a", ["tinyonly"])
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        properties = json.dumps({"MessageId": sent.id})
        head = f"POST /a/messages HTTP/1.1\r\nhost: a\r\nauthorization: {TOKEN}\r\nBrokerProperties: {properties}\r\n"
        client.sendall(f"{head}content-length: {len(sent.id)}\r\n\r\n{sent.id[:4]}".encode())
        with ask(port, "GET", "/health") as other:
            assert other.recv(65_536).startswith(b"HTTP/1.1 200")
        os.kill(server.pid, signal.SIGTERM)
        until_logged(path, '"stopping"')
        client.sendall(sent.id[4:].encode())
        assert answer(client).startswith(b"HTTP/1.1 201")
        ledger.acked_send([sent], [1])
    assert server.wait() == 0
    judge(path, ledger)
    assert ledger.findings.all() == []
