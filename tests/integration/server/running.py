"""A server in a thread of its own, on either event loop, and raw clients for it."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from unibus.bus.api.message_bus import MessageBus
from unibus.config.settings import ServerSettings
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.server.server import Server
from unibus.endpoints.server.serving import Serving
from unibus.errors import StoreFailed

PATIENCE_S = 30.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class TinyBroker:
    """As much of a broker as the tests of the transport need."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.rules: tuple[AuthorizationRule, ...] = ()

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        return self.rules


class TinyApp:
    """An ASGI application: it says what it was asked, waits until it may answer, or streams without end."""

    def __init__(self) -> None:
        self.serving: Serving[TinyBroker] | None = None
        self.requests: list[str] = []
        self.entered = threading.Event()
        self.disconnected = threading.Event()
        self.is_down = False
        self.answer: asyncio.Event | None = None

    def build(self, serving: Serving[TinyBroker], settings: ServerSettings) -> "TinyApp":
        self.serving = serving
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        self.requests.append(scope["path"])
        if scope["path"] == "/wait":
            await self._wait(receive)
        body = await self._body(receive)
        if body is None:
            self.disconnected.set()
            return
        said = {"path": scope["path"], "scheme": scope["scheme"], "client": scope["client"], "bytes": len(body)}
        said["headers"] = [name.decode() for name, _ in scope["headers"]]
        content = b"x" * 50_000_000 if scope["path"] == "/large" else json.dumps(said).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": content})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        self.answer = asyncio.Event()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.is_down = True
        await send({"type": "lifespan.shutdown.complete"})

    async def _wait(self, receive: Any) -> None:
        self.entered.set()
        assert self.answer is not None
        await self.answer.wait()

    async def _body(self, receive: Any) -> bytes | None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body


class Running:
    """A started server. Time passes only by `pass_seconds`."""

    def __init__(self, settings: ServerSettings, loop_name: str, **options: Any) -> None:
        self.app = TinyApp()
        options.setdefault("build_app", self.app.build)
        options.setdefault("make_broker", TinyBroker)
        self.server: Server[TinyBroker] = Server(settings, is_swept=False, **options)
        self._loop = LOOPS[loop_name]()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._is_stopped = False

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def do(self, action: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return action()

        return self.call(run())

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.do(self.server.connections.sweep)

    def until(self, condition: Callable[[], bool]) -> None:
        """Until it holds on the loop; looked at after every turn of it."""

        async def look() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():  # noqa: ASYNC110 - what it looks at knows nothing of tests
                    await asyncio.sleep(0.001)

        self.call(look())

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.call(self.server.stop())

    def end(self) -> None:
        try:
            self.stop()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()

    # Clients

    def connect(self, host: str = "127.0.0.1", tls: bool = False, port: int = 0) -> socket.socket:
        opened = socket.create_connection((host, port or self.server.port), PATIENCE_S)
        if not tls:
            return opened
        context = ssl.create_default_context(cafile=str(self.server.ca_file))
        return context.wrap_socket(opened, server_hostname="localhost")

    def ask(self, request: bytes, **where: Any) -> bytes:
        """Everything that is answered until the server closes."""
        with self.connect(**where) as client:
            client.sendall(request)
            return read_all(client)


@contextmanager
def running(settings: ServerSettings, loop_name: str = "uvloop", **options: Any) -> Iterator[Running]:
    server = Running(settings, loop_name, **options)
    try:
        server.call(server.server.start())
        yield server
    finally:
        server.end()


def fail(server: Running) -> None:
    """As a write does that the disk refuses."""
    store = server.server.serving.bus._runtime.queues().store
    store._committer.fail(StoreFailed("the disk is gone"))  # type: ignore[attr-defined]


def read_all(client: socket.socket) -> bytes:
    """Until the end, or a reset: what was cut may end with one."""
    found = b""
    try:
        while chunk := client.recv(65_536):
            found += chunk
    except (ConnectionResetError, ssl.SSLEOFError):
        pass
    return found


def read_answer(client: socket.socket) -> bytes:
    """One answer, as long as its Content-Length says."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += _received(client)
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _received(client)
    return head + b"\r\n\r\n" + body


def _received(client: socket.socket) -> bytes:
    chunk = client.recv(65_536)
    assert chunk, "closed before the answer was complete"
    return chunk


def request(path: str = "/", method: str = "GET", headers: str = "host: localhost\r\n", body: bytes = b"") -> bytes:
    length = f"content-length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\n{headers}{length}connection: close\r\n\r\n".encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0
