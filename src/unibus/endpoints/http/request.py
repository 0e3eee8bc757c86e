"""One HTTP request as handlers see it, and the response that they return: plain data, no framework.

Header names are lower case. Where a header is given twice the first one counts, except `host`, of which the protocol
in front lets exactly one through.
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
"""Where the scope says that the answer is a live one: it has no end of its own, and none waits for it."""
EVENT_STREAM: Final = "text/event-stream"
TEXT: Final = "text/plain; charset=utf-8"


class Disconnected(Exception):
    """The client closed the connection before its answer was there."""


class Request:
    """`place` is what the path means; `entity` and `params` are its parts, still in the caller's case.

    The body is read by `read_body`, after authorization: a caller without rights cannot make the server hold bytes.
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
        self.detail = ""  # For the audit: what was changed, where the entity alone does not say it.
        self.rule = ""  # The authorization rule that allowed it.

    @property
    def query(self) -> dict[str, str]:
        """Names without case, the last value of each. A broken escape is DecodeError."""
        found = self._query
        if found is None:
            raw = self.scope.get("query_string", b"")
            assert isinstance(raw, bytes)
            found = parsed_query(raw)
            self._query = found
        return found

    def query_values(self, name: str) -> list[str]:
        """Every value of a name that may come more than once, in order."""
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
        """`https://host:port` as the client called us, so that links in answers work through any mapped port."""
        return f"{self.scope.get('scheme', 'http')}://{self.headers.get('host', 'localhost')}"

    @property
    def root(self) -> str:
        """What is before our paths: the place of a mount, or the prefix of a router."""
        return f"{self.scope.get('root_path') or ''}{self.scope.get(PREFIX, '')}"

    def accepts_json(self) -> bool:
        return self.is_management or JSON in self.headers.get("accept", "")

    @property
    def is_management(self) -> bool:
        """Whether it is for the management API: JSON whatever is accepted, and errors by the codes of the bus."""
        return self.place.shape.startswith(MANAGEMENT_PREFIX)

    async def read_body(self, bytes_max: int) -> bytes:
        """The whole body, or MessageTooLarge as soon as it is longer than allowed."""
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
                raise MessageTooLarge(f"a request body of more than {bytes_max} bytes", "send a reference")
            if piece:
                pieces.append(piece)
            if not message.get("more_body", False):
                self.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                return self.body

    async def disconnected(self) -> None:
        """Return when the client closes the connection. To be called after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def json(self) -> object:
        """The body as JSON; DecodeError where it is none."""
        return self.json_as(msgspec.json.decode)

    def json_as(self, decode: Callable[[bytes], T]) -> T:
        """The body through a decoder of msgspec, which also checks its types; DecodeError where it does not fit."""
        try:
            return decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DecodeError(f"the request body cannot be read: {error!s:.200}", "send JSON") from error


@dataclass(slots=True)
class Response:
    """`headers` beside Content-Type and Content-Length, which the runner writes. A text becomes UTF-8.

    `stream` in place of `body`: pieces of an answer that has no known length. It is closed when the client leaves.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: AsyncGenerator[bytes, None] | None = None

    @property
    def is_live(self) -> bool:
        """Server-sent events: without an end of its own."""
        return self.stream is not None and self.content_type.startswith(EVENT_STREAM)


def json_response(value: object, status: int = 200, headers: list[tuple[str, str]] | None = None) -> Response:
    return Response(status, msgspec.json.encode(value), f"{JSON}; charset=utf-8", headers or [])
