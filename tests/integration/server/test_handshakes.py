"""More TLS handshakes than there may be at the same time: those that are held open keep no healthy client out."""

import logging
import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from tests.integration.server.running import Running, read_all, request, status_of
from unibus.config.settings import ServerSettings
from unibus.endpoints.log_lines import fields_of
from unibus.endpoints.transport import open_files
from unibus.endpoints.transport.handshakes import OLD_TICKS

Serve = Callable[..., Running]
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
FAR_S = 600
"""A deadline that no test reaches: what ends a handshake here is its place, not its time."""


@contextmanager
def half_open(server: Running, count: int) -> Iterator[list[socket.socket]]:
    """Peers that begin a handshake and send no more. As many as may be are under way, the others wait."""
    handshakes = server.server.connections.handshakes
    running = min(count, server.server.settings.handshakes_max)
    with ExitStack() as stack:
        peers = [stack.enter_context(server.connect()) for _ in range(count)]
        for each in peers:
            each.sendall(CLIENT_HELLO)
        server.until(lambda: len(handshakes) == running and len(handshakes._waiting) == count - running)
        yield peers


def closed(peers: list[socket.socket]) -> int:
    """How many of them the server has closed. What is closed can be read at once."""
    found = [each for each in peers if each in select.select(peers, [], [], 0)[0]]
    assert [read_all(each) for each in found] == [b""] * len(found)
    return len(found)


def ask(server: Running) -> int:
    return status_of(server.ask(request(), tls=True))


def test_a_client_takes_the_place_of_a_handshake_that_is_held_open(serve: Serve) -> None:
    server = serve(handshakes_max=4, head_deadline_s=FAR_S)
    with half_open(server, 4) as held:
        server.pass_seconds(OLD_TICKS)
        assert ask(server) == 200
        assert server.server.connections.cut == 1
        server.until(lambda: len(server.server.connections.handshakes) == 3)
        server.until(lambda: closed(held) == 1)


def test_a_client_is_next_behind_a_crowd_that_waits(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = serve(handshakes_max=4, head_deadline_s=FAR_S)
    connections = server.server.connections
    with half_open(server, 40), ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, server)
        server.until(lambda: len(connections.handshakes._waiting) == 37)  # It waits, too.
        server.pass_seconds(OLD_TICKS)
        assert answer.result(60) == 200
        assert connections.cut == 4
        server.pass_seconds(1)
    lines = [each.getMessage() for each in caplog.records if each.name == "unibus.server"]
    assert lines.count("idle connections closed for new ones: connections_max is reached") == 1
    assert "connection cut" not in lines
    server.until(lambda: len(connections.handshakes) == 0 and len(connections) == 0)


def test_a_burst_of_clients_is_served_and_none_is_cut(serve: Serve) -> None:
    server = serve(handshakes_max=2, head_deadline_s=FAR_S)
    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(ask, [server] * 60)) == [200] * 60
    assert (server.server.connections.cut, server.server.connections.refused) == (0, 0)


def test_plain_text_waits_for_no_handshake(serve: Serve) -> None:
    server = serve(handshakes_max=1, head_deadline_s=FAR_S)
    with half_open(server, 5):
        assert status_of(server.ask(request())) == 200


def test_a_handshake_that_waits_has_the_deadline_of_others(serve: Serve) -> None:
    server = serve(handshakes_max=1, head_deadline_s=1)
    connections = server.server.connections
    with half_open(server, 2) as peers:
        assert read_all(peers[0]) == b""  # By the loop's own timer; then it is the turn of the other.
        assert read_all(peers[1]) == b""
    server.until(lambda: len(connections.handshakes) == 0 and len(connections) == 0)


def test_a_server_stops_while_handshakes_wait(serve: Serve) -> None:
    server = serve(handshakes_max=2, head_deadline_s=FAR_S)
    with half_open(server, 30) as peers:
        server.stop()
        assert [read_all(each) for each in peers] == [b""] * 30


def test_silent_connections_make_room_for_a_client(serve: Serve) -> None:
    server = serve(connections_max=3, head_deadline_s=FAR_S)
    with ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(3)]
        server.until(lambda: len(server.server.connections) == 3)
        assert server.ask(b"") == b""  # They have just come.
        server.pass_seconds(OLD_TICKS)
        assert status_of(server.ask(request())) == 200
        server.until(lambda: closed(silent) == 1)
        assert (server.server.connections.cut, server.server.connections.refused) == (1, 1)


def test_the_limit_of_files_is_reported(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    limits = SimpleNamespace(RLIMIT_NOFILE=7, RLIM_INFINITY=-1, getrlimit=lambda kind: (1_024, 1_024))
    monkeypatch.setattr(open_files, "resource", limits)
    server = serve()
    assert server.server.connections.most == 896
    [line] = [each for each in caplog.records if "fewer connections" in each.getMessage()]
    assert "ulimit -n" in str(fields_of(line)["hint"])


def test_by_default_a_thousand_handshakes_run_beside_those_of_clients() -> None:
    settings = ServerSettings()
    assert settings.handshakes_max > 1_000
    assert settings.connections_max >= 4 * 1_000
