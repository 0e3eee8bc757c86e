"""A client for ASGI applications in the same loop, small enough to see every byte of the exchange."""

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from unibus.endpoints.http.app import Asgi


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


class AsgiClient:
    def __init__(self, app: Asgi) -> None:
        self._app = app
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
        path, _, query = target.partition("?")
        written = list(headers or {})
        given = {"host": "bus.example:5300", "accept": "application/json", **(headers or {})}
        scope: MutableMapping[str, object] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": ("127.0.0.1", 50_000),
            **({"unibus.header_names": [name.encode() for name in written]} if self.keeps_names else {}),
            "server": ("127.0.0.1", 5300),
        }
        await self._app(scope, connection.receive, connection.send)
