"""Silent and slow peers are cut at their deadline, and do not delay others. Sweeps advance the time."""

import contextlib
import logging
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.integration.server.running import PATIENCE_S, Running, read_all, read_answer, request, status_of
from unibus.endpoints.log_lines import fields_of

Serve = Callable[..., Running]
SECONDS = {"head_deadline_s": 3, "body_deadline_s": 5, "idle_deadline_s": 7}
HEAD = b"POST /x HTTP/1.1\r\nhost: a\r\n"
SLOW: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 3, "nothing was sent"),
    "half a line": (b"POS", 3, "the headers are not complete"),
    "half a head": (HEAD, 3, "the headers are not complete"),
    "no body": (HEAD + b"content-length: 9\r\n\r\n", 5, "the body is not complete"),
    "half a body": (HEAD + b"content-length: 9\r\n\r\n1234", 5, "the body is not complete"),
    "half a chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\n1", 5, "the body is not complete"),
    "no last chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n1\r\n", 5, "the body is not complete"),
}


def received_all(server: Running, sent: bytes, tls: bool) -> Callable[[], bool]:
    """Whether the server has seen what was sent."""

    def look() -> bool:
        found = list(server.server.connections._open)
        if len(found) != 1:
            return False
        if not sent:
            return type(found[0]).__name__ == ("InsideTls" if tls else "FirstByteWait")
        phase = getattr(found[0], "phase", 0)
        return phase == (2 if b"\r\n\r\n" in sent else 1)

    return look


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("name", SLOW)
def test_a_silent_peer_is_cut_at_its_deadline(
    serve: Serve, name: str, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(**SECONDS)
    sent, seconds, reason = SLOW[name]
    with caplog.at_level(logging.INFO, "unibus.server"), server.connect(tls=tls) as client:
        client.sendall(sent)
        server.until(received_all(server, sent, tls))
        server.pass_seconds(seconds)
        assert len(server.server.connections) == 1
        server.pass_seconds(1)
        assert read_all(client) == b""
        server.until(lambda: len(server.server.connections) == 0)
    (cut,) = [fields_of(each) for each in caplog.records if each.getMessage() == "connection cut"]
    assert cut["reason"] == ("nothing was sent after the TLS handshake" if tls and not sent else reason)
    assert server.server.connections.bodies_bytes == 0


def test_a_deadline_is_absolute(serve: Serve) -> None:
    """A byte a second does not buy time."""
    server = serve(**SECONDS)
    with server.connect() as client:
        for second, byte in enumerate(b"GET"):
            client.sendall(bytes([byte]))
            if second == 0:
                server.until(received_all(server, b"G", False))
            server.pass_seconds(1)
        assert len(server.server.connections) == 1
        server.pass_seconds(1)
        assert read_all(client) == b""


def test_an_idle_connection_is_closed_without_a_line(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(**SECONDS)
    with caplog.at_level(logging.INFO, "unibus.server"), server.connect() as client:
        for _ in range(3):
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert status_of(read_answer(client)) == 200
            server.until(lambda: all(each.phase == 0 for each in server.server.connections._open))  # type: ignore[attr-defined]
            server.pass_seconds(7)
        assert len(server.server.connections) == 1
        server.pass_seconds(1)
        assert read_all(client) == b""
    assert "connection cut" not in caplog.messages


def test_a_request_that_is_worked_on_has_no_deadline(serve: Serve) -> None:
    server = serve(**SECONDS)
    with server.connect() as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert server.app.entered.wait(PATIENCE_S)
        server.pass_seconds(1_000)
        server.do(lambda: server.app.answer.set())  # type: ignore[union-attr]
        assert status_of(read_all(client)) == 200


def test_a_peer_whose_operation_does_not_read_is_not_late(serve: Serve) -> None:
    server = serve(**SECONDS)
    with server.connect() as client:
        client.sendall(b"POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\nconnection: close\r\n\r\n")
        assert server.app.entered.wait(PATIENCE_S)
        client.sendall(b"x" * 200_000)
        server.until(lambda: any(each.flow.read_paused for each in server.server.connections._open))  # type: ignore[attr-defined]
        server.pass_seconds(100)
        client.sendall(b"x" * 100_000)
        server.do(lambda: server.app.answer.set())  # type: ignore[union-attr]
        assert b'"bytes": 300000' in read_all(client)


def test_a_peer_that_does_not_read_its_answer_is_cut(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(**SECONDS)
    with caplog.at_level(logging.INFO, "unibus.server"), server.connect() as client:
        client.sendall(request("/large"))
        server.until(lambda: any(getattr(each, "_stalled", -1) >= 0 for each in server.server.connections._open))
        server.pass_seconds(5)
        assert len(server.server.connections) == 1
        server.pass_seconds(1)
        server.until(lambda: len(server.server.connections) == 0)
    assert [fields_of(each)["reason"] for each in caplog.records if each.getMessage() == "connection cut"] == [
        "the peer does not read its answer"
    ]


def test_an_operation_learns_that_its_peer_was_cut(serve: Serve) -> None:
    server = serve(**SECONDS)
    with server.connect() as client:
        client.sendall(HEAD + b"content-length: 9\r\n\r\n1234")
        server.until(lambda: bool(server.app.requests))
        server.pass_seconds(6)
        assert server.app.disconnected.wait(PATIENCE_S)


def test_a_refused_peer_that_goes_on_sending_is_cut_soon(serve: Serve) -> None:
    server = serve(**SECONDS)
    with server.connect() as client:
        client.sendall(b"nonsense\r\n\r\n")
        assert status_of(client.recv(65_536)) == 400
        client.sendall(b"x" * 100_000)
        server.pass_seconds(2)
        assert len(server.server.connections) == 1
        server.pass_seconds(1)
        server.until(lambda: len(server.server.connections) == 0)


# Many of them


@contextlib.contextmanager
def many(server: Running, count: int) -> Iterator[list[socket.socket]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * count + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this machine allows too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(server.connect())
        yield opened
    finally:
        for each in opened:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def times_of(server: Running, count: int, beside: Callable[[int], None] | None = None) -> list[float]:
    """What a healthy client's requests take, in seconds and in order. `beside` is done before each of them."""
    times = []
    with server.connect() as client:
        for number in range(count):
            if beside is not None:
                beside(number)
            started = time.perf_counter()
            client.sendall(b"GET /healthy HTTP/1.1\r\nhost: a\r\n\r\n")
            assert status_of(read_answer(client)) == 200
            times.append(time.perf_counter() - started)
    return sorted(times)


def test_a_thousand_slow_peers_do_not_hurt_a_healthy_one(serve: Serve) -> None:
    """They send a byte in each second, or nothing; each is cut at the deadline, and leaves nothing behind."""
    server = serve(head_deadline_s=3)
    times_of(server, 200)
    alone = min(times_of(server, 500)[250] for _ in range(3))
    with many(server, 1_000) as slow:
        trickle = b"GET /slow HTTP/1.1\r\n"
        beside = []
        for second in range(3):
            byte = trickle[second : second + 1]
            beside.append(times_of(server, 500, lambda number, byte=byte: slow[number].sendall(byte)))
            server.pass_seconds(1)
        assert len(server.server.connections) >= 1_000
        server.pass_seconds(2)
        server.until(lambda: len(server.server.connections) == 0)
        assert server.server.connections.cut == 1_000
        assert all(read_all(each) == b"" for each in slow)
    # Client and server share an interpreter here, so its switches are in each single time: the median is compared, and
    # the slowest shows that nothing made the loop wait. tests/soak measures percentiles, with a process for each.
    assert min(times[250] for times in beside) <= 2 * alone + 0.0005
    assert min(times[-1] for times in beside) < 0.5
    assert threading.active_count() < 20
