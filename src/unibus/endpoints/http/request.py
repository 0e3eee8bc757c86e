"""The request that a handler gets and the response that it returns: plain data, no framework.

Header names are lower case. Of a repeated header the first one is used, except `host`: the transport refuses a request
with two of them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec

from unibus.endpoints.error_body import JSON
from unibus.endpoints.http.address import parsed_query, query_pairs
from unibus.endpoints.http.routing import MANAGEMENT_PREFIX, RoutedPath
from unibus.errors import DecodeError, MessageTooLarge

Scope: TypeAlias = MutableMapping[str, object]
AsgiMessage: TypeAlias = MutableMapping[str, object]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]

T = TypeVar("T")
PREFIX: Final = "unibus.prefix"
LIVE: Final = "unibus.live"
"""The key of the scope that marks a live answer: it is endless, so a server that stops does not wait for it."""
EVENT_STREAM: Final = "text/event-stream"
TEXT: Final = "text/plain; charset=utf-8"


class Disconnected(Exception):
    """The client closed the connection before it was answered."""


class Request:
    """`place` is the parsed path; `entity` and `params` are its parts, in the caller's case.

    `read_body` reads the body, after authorization: a caller without rights cannot make the server buffer bytes.
    """

    __slots__ = (
        "_query",
        "_raw_headers",
        "_receive",
        "body",
        "detail",
        "entity",
        "headers",
        "method",
        "params",
        "place",
        "rule",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, place: RoutedPath) -> None:
        self.scope = scope
        self.method = str(scope["method"])
        self.place = place
        self.entity = place.entity
        self.params = place.params
        raw = scope["headers"]
        assert isinstance(raw, (list, tuple))
        headers: dict[str, str] = {}
        for name, value in raw:
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        self.headers = headers
        self._query: dict[str, str] | None = None
        self._receive = receive
        self.body = b""
        self.detail = ""  # For the audit log: what was changed, if the entity alone does not say it.
        self.rule = ""  # The authorization rule that allowed the request.

    @property
    def query(self) -> dict[str, str]:
        """The last value of each name (casefolded). DecodeError for an invalid escape."""
        found = self._query
        if found is None:
            raw = self.scope.get("query_string", b"")
            assert isinstance(raw, bytes)
            found = parsed_query(raw)
            self._query = found
        return found

    def query_values(self, name: str) -> list[str]:
        """Every value of a parameter that may be repeated, in order."""
        raw = self.scope.get("query_string", b"")
        assert isinstance(raw, bytes)
        return [value for each, value in query_pairs(raw) if each == name]

    @property
    def peer(self) -> str:
        """The address of the client, without its port."""
        client = self.scope.get("client")
        return str(client[0]) if isinstance(client, (list, tuple)) and client else ""

    @property
    def is_encrypted(self) -> bool:
        return self.scope.get("scheme") in ("https", "wss")

    @property
    def base_url(self) -> str:
        """`https://host:port` as the client called it, so that links in answers work through a mapped port."""
        return f"{self.scope.get('scheme', 'http')}://{self.headers.get('host', 'localhost')}"

    @property
    def root(self) -> str:
        """The path before ours: that of a mount, or the prefix of a router."""
        return f"{self.scope.get('root_path') or ''}{self.scope.get(PREFIX, '')}"

    def accepts_json(self) -> bool:
        return self.is_management or JSON in self.headers.get("accept", "")

    @property
    def is_management(self) -> bool:
        """Whether it is for the management API, which always answers JSON, with the error codes of the bus."""
        return self.place.shape.startswith(MANAGEMENT_PREFIX)

    async def read_body(self, bytes_max: int) -> bytes:
        """The whole body; MessageTooLarge as soon as it is longer than `bytes_max`."""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            piece = message.get("body", b"")
            assert isinstance(piece, bytes)
            size += len(piece)
            if size > bytes_max:
                raise MessageTooLarge(
                    f"the request body has more than {bytes_max} bytes", "send less, or a reference to the data"
                )
            if piece:
                pieces.append(piece)
            if not message.get("more_body", False):
                self.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                return self.body

    async def disconnected(self) -> None:
        """Wait until the client closes the connection. Call this after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def json(self) -> object:
        """The body as JSON; DecodeError if it is not JSON."""
        return self.json_as(msgspec.json.decode)

    def json_as(self, decode: Callable[[bytes], T]) -> T:
        """The body, decoded and type-checked by a msgspec decoder; DecodeError if it does not match."""
        try:
            return decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DecodeError(f"the request body cannot be read: {error!s:.200}", "send JSON") from error


@dataclass(slots=True)
class Response:
    """`headers` besides Content-Type and Content-Length, which the runner writes.

    `stream` instead of `body`: pieces of an answer of unknown length. It is closed when the client disconnects.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: AsyncGenerator[bytes, None] | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is an endless answer of server-sent events."""
        return self.stream is not None and self.content_type.startswith(EVENT_STREAM)


def json_response(value: object, status: int = 200, headers: list[tuple[str, str]] | None = None) -> Response:
    return Response(status, msgspec.json.encode(value), f"{JSON}; charset=utf-8", headers or [])
