"""A client for ASGI applications in the same loop, small enough to see every byte of the exchange."""

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import msgspec

from unibus.endpoints.http.application.app import Asgi

HOST: Final = {"host": "bus.test:5300"}
JSON_CLIENT: Final = {**HOST, "accept": "application/json"}


@dataclass(frozen=True)
class Answer:
    """Header names in lower case; a header that comes twice is a mistake."""

    status: int
    headers: dict[str, str]
    body: bytes
    names: tuple[str, ...]

    def json(self) -> object:
        return msgspec.json.decode(self.body)

    def properties(self) -> dict[str, object]:
        found = msgspec.json.decode(self.headers["brokerproperties"])
        assert isinstance(found, dict)
        return found

    def code(self) -> str:
        """The code of an error in its JSON form."""
        document = self.json()
        assert isinstance(document, dict), document
        return str(document["error"]["code"])


class Connection:
    """One request; `leave` closes the connection before its answer is there."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._asked = False
        self._left = asyncio.Event()
        self.waits = asyncio.Event()
        self.started: MutableMapping[str, object] | None = None
        self.pieces: list[bytes] = []

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> MutableMapping[str, object]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        self.waits.set()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, object]) -> None:
        if message["type"] == "http.response.start":
            assert self.started is None, "two answers to one request"
            self.started = message
        else:
            piece = message.get("body", b"")
            assert isinstance(piece, bytes)
            self.pieces.append(piece)

    def answer(self) -> Answer:
        assert self.started is not None, "no answer"
        raw = self.started["headers"]
        assert isinstance(raw, list)
        names = tuple(name.decode() for name, _ in raw)
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in raw}
        assert len(headers) == len(raw), f"a header twice: {names}"
        for name, value in headers.items():
            assert value.replace("\t", " ").isprintable(), f"a header that no server writes: {name}"
        status = self.started["status"]
        assert isinstance(status, int)
        return Answer(status, headers, b"".join(self.pieces), names)


def scope_of(method: str, target: str, headers: Mapping[str, str], peer: str) -> MutableMapping[str, object]:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": (peer, 50_000),
        "server": ("127.0.0.1", 5300),
    }


class AsgiClient:
    """`defaults` are headers of every request. With `keeps_names` header names reach the application as written."""

    def __init__(self, app: Asgi, defaults: Mapping[str, str] = JSON_CLIENT, peer: str = "127.0.0.1") -> None:
        self._app = app
        self._defaults = defaults
        self._peer = peer
        self.keeps_names = False

    async def __call__(
        self, method: str, target: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = self.connect(body)
        await self.run(connection, method, target, headers)
        return connection.answer()

    def connect(self, body: bytes | str = b"") -> Connection:
        return Connection(body.encode() if isinstance(body, str) else body)

    async def run(
        self, connection: Connection, method: str, target: str, headers: Mapping[str, str] | None = None
    ) -> None:
        scope = scope_of(method, target, {**self._defaults, **(headers or {})}, self._peer)
        if self.keeps_names:
            scope["unibus.header_names"] = [name.encode() for name in headers or {}]
        await self._app(scope, connection.receive, connection.send)
