"""Damaged requests and port scanners, on a real socket, against the real application: an error each, and no failure.

`make fuzz` runs for as long as SECONDS says; the tests take some hundred examples of the same.
"""

import contextlib
import logging
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.crash.server_process import TOKEN
from tests.integration.server.malformed import NAMES, Damage
from tests.integration.server.running import PATIENCE_S, Running, read_all, running, status_of
from unibus.config.settings import ServerSettings
from unibus.endpoints.transport.first_byte import AMQP_HEADER

EXAMPLES = 400
INCOMPLETE_S = 0.5
"""A server that has not answered by then waits for the rest; if it is only slow the sweeps do not touch it."""

SETTINGS = {"header_bytes_max": 16_384, "body_bytes_max": 1_000_000, "head_deadline_s": 1}
ENTITIES = '{"queues": {"q": {}, "s": {"requires_session": true}}, "topics": {"t": {"subscriptions": {"s": {}}}}}'
SCANNERS: dict[str, bytes] = {
    "nothing but a line": b"\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "AMQP 0-9-1": b"AMQP\x00\x00\x09\x01",
    "AMQP 1.0 with SASL": b"AMQP\x03\x01\x00\x00",
    "ZMTP 3": b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(48),
    "MQTT": b"\x10\x0c\x00\x04MQTT\x04\x02\x00<\x00\x00",
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "SMB": b"\x00\x00\x00\x85\xffSMBr\x00\x00\x00\x00\x18\x53\xc8",
    "RDP": b"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00",
    "PostgreSQL": b"\x00\x00\x00\x08\x04\xd2\x16/",
    "SOCKS": b"\x05\x01\x00",
    "SIP": b"OPTIONS sip:nm SIP/2.0\r\nVia: SIP/2.0/TCP nm\r\n\r\n",
    "RTSP": b"OPTIONS / RTSP/1.0\r\n\r\n",
    "an alert of TLS": b"\x15\x03\x01\x00\x02\x02\x28",
    "SSLv2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
    "half a ClientHello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a proxy's line": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "a header of a megabyte": b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "a huge chunk": b"POST /q/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n"
    + b"x" * 1_100_000,
    "random bytes": random.Random("scan").randbytes(3_000),
}


class Failures(logging.Handler):
    """Lines that report a failure of the server, and all lines about connections and requests."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[str] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.lines.append(text)
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(text)


@pytest.fixture(scope="module")
def failures() -> Iterator[Failures]:
    handler = Failures()
    names = ("unibus", "uvicorn.error", "asyncio")
    for name in names:
        logging.getLogger(name).addHandler(handler)
    yield handler
    for name in names:
        logging.getLogger(name).removeHandler(handler)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, failures: Failures) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("malformed")
    (folder / "entities.json").write_text(ENTITIES)
    chosen = ServerSettings(
        store="memory://",
        port=0,
        amqp_port=None,
        certificate_folder=str(folder),
        entities=str(folder / "entities.json"),
        **SETTINGS,  # type: ignore[arg-type]
    )
    with running(chosen, build_app=None, make_broker=None) as started:
        yield started


def ask(server: Running, sent: bytes) -> bytes:
    """What is answered. A request that is not complete, or that stays open, is cut at its deadline by sweeps."""
    found = b""
    with server.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(sent)
        client.settimeout(INCOMPLETE_S)
        try:
            while read := client.recv(65_536):
                found += read
        except TimeoutError:
            server.pass_seconds(int(server.server.settings.idle_deadline_s) + 2)
            client.settimeout(PATIENCE_S)
            found += read_all(client)
    return found


def check(server: Running, failures: Failures, sent: bytes) -> None:
    answer = ask(server, sent)
    if answer.startswith(AMQP_HEADER) or not answer:
        answer = b"none 0"
    assert failures.found == [], sent[:2_000]
    # 501: a method or a framing that the parser does not know. No other failure of the server is an answer to a client.
    assert status_of(answer) not in range(500, 600) or status_of(answer) == 501, (sent[:2_000], answer[:500])
    assert b"x-injected" not in answer.partition(b"\r\n\r\n")[0]
    assert status_of(ask(server, b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")) == 200


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**64))
def test_damaged_requests(server: Running, failures: Failures, seed: int) -> None:
    check(server, failures, Damage(seed).request())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.binary(min_size=1, max_size=300))
def test_any_bytes(server: Running, failures: Failures, sent: bytes) -> None:
    check(server, failures, sent)


@pytest.mark.parametrize("name", SCANNERS)
def test_port_scanners_get_one_line_in_the_log(server: Running, failures: Failures, name: str) -> None:
    server.pass_seconds(1)  # Ten lines a second are logged.
    before = len(failures.lines)
    check(server, failures, SCANNERS[name])
    lines = [each for each in failures.lines[before:] if "/health" not in each and '"health"' not in each]
    # A request that was read as far as its body has a line of its own, and one in the audit if it is refused.
    assert len(lines) <= (3 if name == "a huge chunk" else 1), lines


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_entity_may_have_create_nothing(
    server: Running, failures: Failures, name: str, tmp_path: Path
) -> None:
    before = entities(server)
    answer = ask(
        server,
        f"PUT /servicebus/queues/{name} HTTP/1.1\r\nhost: a\r\nauthorization: {TOKEN}\r\ncontent-length: 2\r\n"
        "content-type: application/json\r\nconnection: close\r\n\r\n{}".encode(),
    )
    assert failures.found == []
    status = status_of(answer)
    assert status in (200, 201, 400, 404, 405, 409)
    if status >= 400:
        assert entities(server) == before
    assert not [each for each in os.listdir() if each in ("etc", "nul.txt", "q:stream")]


def entities(server: Running) -> list[str]:
    async def names() -> list[str]:
        return [each.name for each in await server.server.serving.bus.entities()]

    found: list[str] = server.call(names())
    return found


def fuzz(folder: Path, seconds: float) -> int:
    """Until the time is over. Raises with the seed of the first failure."""
    failures = Failures()
    for name in ("unibus", "uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(failures)
    logging.getLogger("unibus").disabled = False  # The campaigns around it switch it off.
    (folder / "entities.json").write_text(ENTITIES)
    chosen = ServerSettings(
        store="memory://",
        port=0,
        amqp_port=None,
        tls=False,
        entities=str(folder / "entities.json"),
        **SETTINGS,  # type: ignore[arg-type]
    )
    count, until = 0, time.monotonic() + seconds
    with running(chosen, build_app=None, make_broker=None) as server:
        while time.monotonic() < until:
            seed = random.getrandbits(64)
            try:
                check(server, failures, Damage(seed).request())
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            failures.lines.clear()
            count += 1
    return count
