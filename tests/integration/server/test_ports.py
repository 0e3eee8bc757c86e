"""One port for every protocol: the first byte decides, in plain text and again inside TLS."""

import asyncio
import errno
import http.client
import json
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import Running, TinyBroker, read_all, read_answer, request, status_of
from unibus.bus.api.message_bus import MessageBus
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.log_lines import fields_of
from unibus.endpoints.transport.first_byte import AMQP_HEADER
from unibus.errors import PortUnavailable

Serve = Callable[..., Running]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("tls", [False, True])
def test_http_and_https_on_one_port(serve: Serve, host: str, tls: bool) -> None:
    server = serve(host=("127.0.0.1", "::1"))
    answer = server.ask(request("/a"), host=host, tls=tls)
    said = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (said["scheme"], said["client"][0]) == ("https" if tls else "http", host)


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_serves_many_requests(serve: Serve, tls: bool) -> None:
    server = serve()
    if tls:
        context = ssl.create_default_context(cafile=str(server.server.ca_file))
        client: http.client.HTTPConnection = http.client.HTTPSConnection(
            "localhost", server.server.port, context=context
        )
    else:
        client = http.client.HTTPConnection("localhost", server.server.port)
    for number in range(20):
        client.request("POST", f"/{number}", body=b"x" * number * 10_000)
        assert json.loads(client.getresponse().read())["bytes"] == number * 10_000
    assert server.server.connections.accepted == 1
    client.close()


@pytest.mark.parametrize("tls", [False, True])
def test_amqp_is_answered_and_logged(serve: Serve, tls: bool, caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    with caplog.at_level(logging.WARNING, "unibus.server"):
        assert server.ask(b"AMQP\x03\x01\x00\x00", tls=tls) == AMQP_HEADER
    (line,) = [fields_of(each) for each in caplog.records]
    assert line["reason"] == "AMQP: not yet"


def test_a_protocol_can_be_added_by_its_first_byte(serve: Serve) -> None:
    class Shout(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data.upper())
            self.transport.close()

    server = serve({"protocols": {ord("A"): lambda connections: Shout()}})
    assert server.ask(b"Abc") == b"ABC"
    assert server.ask(b"Abc", tls=True) == b"ABC"
    assert status_of(server.ask(request())) == 200


def test_tls_that_is_off_is_refused(serve: Serve) -> None:
    server = serve(tls=False)
    with pytest.raises((ssl.SSLError, ConnectionResetError)), server.connect() as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
    assert status_of(server.ask(request())) == 200
    assert server.server.ca_file is None


def test_a_handshake_that_fails_is_one_line(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    with caplog.at_level(logging.DEBUG), server.connect() as client:
        client.sendall(b"\x16\x03\x01\x00\x05hello")
        while client.recv(1_000):
            pass
        server.until(lambda: server.server.connections.refused == 1)
    lines = [each for each in caplog.records if each.name == "unibus.server"]
    assert [each.getMessage() for each in lines] == ["connection refused"]
    assert "TLS handshake" in str(fields_of(lines[0])["reason"])
    assert status_of(server.ask(request(), tls=True)) == 200


def test_a_handshake_that_never_ends_is_cut_and_counts_as_a_connection(serve: Serve) -> None:
    server = serve(head_deadline_s=1, connections_max=1)
    with server.connect() as client:
        client.sendall(b"\x16")
        server.until(lambda: len(server.server.connections.handshakes) == 1)
        assert server.ask(b"") == b""
        assert server.server.connections.refused == 1
        assert read_all(client) == b""  # After a second, by the loop's own timer.
    server.until(lambda: len(server.server.connections.handshakes) == 0)
    assert status_of(server.ask(request())) == 200


def test_a_peer_that_leaves_before_its_first_byte_is_no_matter(serve: Serve) -> None:
    server = serve()
    server.connect().close()
    server.until(lambda: server.server.connections.accepted == 1 and len(server.server.connections) == 0)
    assert server.server.connections.refused == 0


def test_the_first_byte_may_come_late_and_alone(serve: Serve) -> None:
    server = serve()
    with server.connect() as client:
        server.until(lambda: len(server.server.connections) == 1)
        for byte in request("/slowly"):
            client.sendall(bytes([byte]))
        assert b"/slowly" in read_answer(client)


# Where it listens


def test_both_ports_serve_everything(serve: Serve) -> None:
    server = serve(amqp_port=0)
    ports = {port for _, port in server.server.addresses}
    assert len(ports) == 2
    for port in ports:
        assert status_of(server.ask(request(), port=port)) == 200
        assert server.ask(b"AMQP\x00\x01\x00\x00", port=port) == AMQP_HEADER


def test_a_free_port_is_the_same_on_all_addresses(serve: Serve) -> None:
    server = serve(host=("127.0.0.1", "::1"))
    assert {host for host, _ in server.server.addresses} == {"127.0.0.1", "::1"}
    assert len({port for _, port in server.server.addresses}) == 1
    expected = f"Endpoint=sb://localhost:{server.server.port};SharedAccessKeyName=RootManageSharedAccessKey;"
    assert server.server.connection_string == f"{expected}SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"


def test_a_name_is_every_address_of_it(serve: Serve) -> None:
    server = serve(host=("localhost",))
    assert status_of(server.ask(request(), host="localhost")) == 200


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other


def test_a_taken_port_is_an_error_and_leaves_nothing_open(serve: Serve, taken: socket.socket, tmp_path: Path) -> None:
    port = taken.getsockname()[1]
    with pytest.raises(PortUnavailable, match=f"port {port} is taken on 127.0.0.1"):
        serve(port=port, store=f"{tmp_path}/a.db")
    assert list(tmp_path.iterdir()) == []
    server = serve(store=f"{tmp_path}/a.db")  # The store is not held by the server that did not start.
    assert status_of(server.ask(request())) == 200


@pytest.mark.parametrize("store", ["memory://", "a.db"])
def test_the_ports_refuse_connections_until_the_store_is_open(serve: Serve, tmp_path: Path, store: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    refused: list[bool] = []

    def make_broker(bus: MessageBus) -> TinyBroker:
        with socket.socket() as client:
            refused.append(client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED)
        return TinyBroker(bus)

    chosen = store if store == "memory://" else f"{tmp_path}/{store}"
    server = serve({"make_broker": make_broker}, port=port, store=chosen)
    assert refused == [True]
    assert status_of(server.ask(request())) == 200


def test_two_servers_that_bind_one_port_at_the_same_time(serve: Serve) -> None:
    """Both may bind, where the system allows that; only one can listen."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]

        def make_broker(bus: MessageBus) -> TinyBroker:
            other.listen()
            return TinyBroker(bus)

        with pytest.raises(PortUnavailable, match=f"port {port} is taken on 127.0.0.1"):
            serve({"make_broker": make_broker}, port=port, host=("127.0.0.1",))


def test_a_taken_second_port_is_a_warning_unless_it_was_asked_for(
    serve: Serve, taken: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    port = taken.getsockname()[1]
    server = serve(amqp_port=port)
    assert {each for _, each in server.server.addresses} == {server.server.port}
    assert "the second port is not served" in caplog.messages
    with pytest.raises(PortUnavailable):
        serve(amqp_port=port, given=frozenset({"amqp_port"}))


def test_an_address_of_another_machine(serve: Serve) -> None:
    with pytest.raises(PortUnavailable, match=r"cannot listen on 192\.0\.2\.1"):
        serve(host=("192.0.2.1",), insecure=True, given=frozenset({"host"}))
    # A default that the machine lacks is skipped.
    server = serve(host=("127.0.0.1", "192.0.2.1"), insecure=True)
    assert [host for host, _ in server.server.addresses] == ["127.0.0.1"]


def test_too_many_connections_are_refused_and_the_others_served(serve: Serve) -> None:
    server = serve(connections_max=3)
    clients = [server.connect() for _ in range(3)]
    server.until(lambda: len(server.server.connections) == 3)
    assert server.ask(b"") == b""
    assert server.server.connections.refused == 1
    clients.pop().close()
    server.until(lambda: len(server.server.connections) == 2)
    assert status_of(server.ask(request())) == 200
    for each in clients:
        each.close()


def test_the_connection_string_has_no_key_that_is_refused(serve: Serve) -> None:
    own = AuthorizationRule.generated("own", ["Send"], bytes(64))
    server = serve(authorization_rules=(own,))
    assert "SharedAccessKeyName=<rule>;SharedAccessKey=<key>;" in server.server.connection_string
