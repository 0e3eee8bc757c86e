"""`unibus serve` as a process: what it prints, how it ends, and what stops it from starting."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.programs import environment
from unibus.sync import MessageBus

PATIENCE_S = 60.0
# The transport with an application of the test's own in the place of the real one, and the command line as it is.
PROGRAM = """
import asyncio, signal, sys, types
signal.signal(signal.SIGINT, signal.default_int_handler)

class Broker:
    def __init__(self, bus):
        self.bus = bus
    def namespace_rules(self):
        return ()

def build(serving, settings, ca_path, local_rule):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            raise NotImplementedError
        if scope["path"] == "/wait":
            print("waiting", flush=True)
            await serving.draining.wait()
        if scope["path"] == "/hang":
            print("hanging", flush=True)
            await asyncio.Event().wait()
        body = ca_path.read_bytes() if scope["path"].endswith("ca.pem") else b"ok"
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})
    return app

sys.modules["unibus.bus.api.broker"] = types.SimpleNamespace(Broker=Broker)
sys.modules["unibus.endpoints.http.application.app"] = types.SimpleNamespace(build=build)
from unibus.cli.main import app
app(prog_name="unibus")
"""


class Command:
    """`unibus serve …` in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        kept = {name: text for name, text in environment().items() if not name.startswith("UNIBUS_")}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**kept, "PYTHONUNBUFFERED": "1"},
        )
        self.printed: list[str] = []

    def read_until(self, words: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line)
            if words in line:
                return line
        raise AssertionError(f"no {words!r} in {self.printed} and {self.process.stderr.read()}")  # type: ignore[union-attr]

    @property
    def port(self) -> int:
        found = re.search(r"sb://localhost:(\d+);", "".join(self.printed))
        assert found is not None
        return int(found[1])

    def end(self, number: int) -> tuple[int, list[dict[str, object]]]:
        """The exit code, and what was logged."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, list[dict[str, object]]]:
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, [json.loads(line) for line in errors.splitlines() if line.startswith("{")]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def serving(command: Callable[..., Command], *arguments: str) -> Command:
    found = command("serve", *arguments, "--port", "0", "--amqp-port", "off")
    found.read_until("Ctrl-C")
    return found


def get(port: int, path: str = "/") -> bytes:
    client = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
    client.request("GET", path)
    try:
        return client.getresponse().read()
    finally:
        client.close()


def test_it_prints_what_to_connect_to(command: Callable[..., Command], tmp_path: Path) -> None:
    found = serving(command)
    port = found.port
    key = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
    assert found.printed == [
        f"endpoints          http://localhost:{port} https://localhost:{port}\n",
        f"page               http://localhost:{port}/ (API reference: /docs)\n",
        f"connection string  Endpoint=sb://localhost:{port};{key};UseDevelopmentEmulator=true\n",
        "key                SAS_KEY_VALUE is the key itself: no secret, for programs on this machine\n",
        f"CA certificate     unibus.db-certificates/ca.pem (and http://localhost:{port}/unibus/v1/ca.pem)\n",
        "Ctrl-C stops it\n",
    ]
    assert get(port) == b"ok"
    assert get(port, "/unibus/v1/ca.pem") == (tmp_path / "unibus.db-certificates" / "ca.pem").read_bytes()
    trusting = ssl.create_default_context(cafile=str(tmp_path / "unibus.db-certificates" / "ca.pem"))
    client = http.client.HTTPSConnection("localhost", port, context=trusting, timeout=PATIENCE_S)
    client.request("GET", "/")
    assert client.getresponse().read() == b"ok"
    client.close()
    code, log = found.end(signal.SIGTERM)
    assert code == 0
    assert [each["event"] for each in log if each["event"] in ("started", "stopping", "stopped")] == [
        "started",
        "stopping",
        "stopped",
    ]
    with MessageBus(str(tmp_path / "unibus.db")):  # Created and closed.
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_what_is_in_flight_and_ends_with_0(command: Callable[..., Command], number: int) -> None:
    found = serving(command, "memory://", "--no-tls")
    with socket.create_connection(("localhost", found.port), PATIENCE_S) as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        found.read_until("waiting")
        code, _ = found.end(number)
        answer = b""
        while chunk := client.recv(65_536):
            answer += chunk
    assert code == 0
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_a_second_signal_does_not_wait(command: Callable[..., Command]) -> None:
    found = serving(command, "memory://", "--no-tls", "--drain-deadline-s", "1000")
    with socket.create_connection(("localhost", found.port), PATIENCE_S) as client:
        client.sendall(b"GET /hang HTTP/1.1\r\nhost: a\r\n\r\n")
        found.read_until("hanging")
        found.process.send_signal(signal.SIGINT)
        assert found.process.stderr is not None
        for line in found.process.stderr:
            if "stopping" in line:
                break
        code, _ = found.end(signal.SIGINT)
    assert code == 0


def failed(found: Command) -> tuple[int, list[str]]:
    _, errors = found.process.communicate(timeout=PATIENCE_S)
    return found.process.returncode, [line for line in errors.splitlines() if not line.startswith("{")]


def test_a_taken_port_is_two_lines(command: Callable[..., Command]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, lines = failed(command("serve", "memory://", "--no-tls", "--port", str(port), "--amqp-port", "off"))
    assert code == 4
    assert lines == [
        f"error: port {port} is taken on 127.0.0.1",
        "hint: another program uses it: end that one, or choose others: --port, --amqp-port",
    ]


def test_a_store_that_is_in_use_is_two_lines(command: Callable[..., Command], tmp_path: Path) -> None:
    with MessageBus(str(tmp_path / "unibus.db")):
        code, lines = failed(command("serve", "--no-tls", "--port", "0", "--amqp-port", "off"))
    assert code == 4
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert str(os.getpid()) in lines[0]


def test_a_store_that_is_damaged_is_two_lines(command: Callable[..., Command], tmp_path: Path) -> None:
    (tmp_path / "unibus.db").write_bytes(b"this is no database, but it is long enough to look like one" * 100)
    code, lines = failed(command("serve", "--no-tls", "--port", "0", "--amqp-port", "off"))
    assert code == 4
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]


def test_elsewhere_without_keys_is_refused(command: Callable[..., Command], tmp_path: Path) -> None:
    code, lines = failed(command("serve", "--host", "0.0.0.0", "--no-tls", "--port", "0"))
    assert code == 2
    assert lines[0] == "error: listening on 0.0.0.0 without TLS and without a key is refused"
    assert not list(tmp_path.iterdir())


def test_the_file_and_variables_are_used(command: Callable[..., Command], tmp_path: Path) -> None:
    (tmp_path / "unibus.yaml").write_text("store: memory://\ntls: false\nport: 0\namqp_port: off\nlog_format: json\n")
    found = command("serve")
    found.read_until("Ctrl-C")
    assert not any("https" in line or "CA" in line for line in found.printed)
    assert get(found.port) == b"ok"
    assert found.end(signal.SIGTERM)[0] == 0
    (tmp_path / "unibus.yaml").write_text("store: memory://\n\nprot: 1\n")
    code, lines = failed(command("serve"))
    assert code == 2
    assert lines == ["error: unibus.yaml, line 3: unknown setting 'prot'", "hint: did you mean 'port'?"]
