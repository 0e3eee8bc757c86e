"""HTTP/1.1 with uvicorn and httptools, plus the limits and deadlines that they lack.

uvicorn alone accepts a request without a Host, headers of any size and number, and a connection that never completes
its request. This subclass tracks each request through its phases:

    WAITING ─ first byte ─▶ HEAD ─ empty line ─▶ BODY ─ last byte ─▶ WORKING ─ answered ─▶ WAITING
       │ idle                 │ too long, late     │ too long, late
       ▼                      ▼                    ▼
     closed                REFUSED: answered; further bytes are read and dropped for up to two seconds; closed

A refused request reaches no operation and leaves one log line. httptools (llhttp, strict) decides about the syntax: it
refuses a Content-Length beside a Transfer-Encoding, bare line feeds, two lengths and folded headers, which are the
means of request smuggling. h11 would accept them, so this server never uses it.
"""

import re
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from unibus.endpoints.error_body import JSON, error_content
from unibus.endpoints.http.request import LIVE
from unibus.endpoints.transport.connections import Connections, log

WAITING: Final = 0
HEAD: Final = 1
BODY: Final = 2
WORKING: Final = 3
REFUSED: Final = 4

LINGER_TICKS: Final = 2
"""Ticks in which a refused peer may send: closing at once could reset the connection before it has the answer."""

PIPELINED_MAX: Final = 16
"""Pipelined requests that may wait behind the one in progress. Above this, reading from the connection is paused."""

_CHUNK_BYTES: Final = 16
"""Bytes that the framing of one chunk may take besides its data."""

HEADER_NAMES: Final = "unibus.header_names"
"""The key of the scope for the header names in their original case."""

_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]+")
_VERSIONS: Final = frozenset({"1.0", "1.1"})

_CODES: Final = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "MessageSizeExceeded",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServerBusy",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
}
_RETRY_AFTER: Final = {HTTPStatus.SERVICE_UNAVAILABLE: "retry-after: 1\r\n"}


class _Refused(Exception):
    """Raised inside the parser's callbacks; httptools wraps it."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class _Reading(FlowControl):
    """Backpressure for pipelined requests. uvicorn resumes reading after every answer, even if thousands of requests
    wait: a peer could fill the memory without bound (13 bytes for each byte that it sends). Here reading is resumed
    only when few requests wait.
    """

    def __init__(self, connection: "HttpConnection") -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        # Waiting requests are answered without reading more. The end of each answer calls this again.
        if len(self._connection.pipeline) < PIPELINED_MAX:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """One connection. uvicorn, asyncio and httptools call its methods, so their names are fixed."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], connections: Connections
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.access_log = False  # The application writes its own request log.
        self.phase = WAITING
        self.since = connections.tick
        self._all = connections
        self._settings = connections.settings
        self._is_offer = False  # Whether the head offers an Upgrade to another protocol.
        self._is_second_reading = False
        self._has_cycle = False  # Whether there was a request: uvicorn's `cycle` belongs to the latest one.
        # The request in progress: an earlier one than `cycle`, with pipelining.
        self._running: RequestResponseCycle | None = None
        self._fed = 0  # Bytes of the chunk that is being parsed.
        self._head_bytes = 0  # Of a head that did not arrive in one chunk.
        self._is_first_chunk = False
        self._hosts = 0
        self._names: list[bytes] = []
        self._length = 0
        self._body_bytes = 0
        self._body_pieces = 0
        self._frame_bytes = 0  # Bytes of the body phase that are no body: chunk framing and trailers.
        self._held = 0  # The share of this connection in `bodies_bytes`.
        self._stalled = -1  # The tick since which the peer has not read its answer; -1: it reads.

    # From the transport

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Reading(self)
        self.since = self._all.tick
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        self._release()
        super().connection_lost(exc)
        running = self._running
        if running is not None and not running.response_complete:
            # uvicorn only notifies the latest request: this one would continue, and write to a closed transport.
            running.disconnected = True
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self.phase == REFUSED:
            return
        self._fed = len(data)
        before = self._body_bytes if self.phase == BODY else -1
        rest: bytes | None = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._refuse_for(error)
        else:
            if self.phase == HEAD:
                self._check_partial_head()
            elif self.phase == BODY and before >= 0:
                self._check_frames(self._body_bytes - before)
        if rest is not None:
            # Not inside the except block: its exception would become the context of every later one, and `_refuse_for`
            # reads the reason of a refusal from the context.
            self._read_without_upgrade(rest)

    def pause_writing(self) -> None:
        self._stalled = self._all.tick
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = -1
        super().resume_writing()

    # From the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.phase = HEAD
        self.since = self._all.tick
        self._is_first_chunk = True
        self._head_bytes = self._hosts = self._length = 0
        # ASGI has header names in lower case only. Message properties are sent as headers, and keep their case.
        self._names = []
        self.scope[HEADER_NAMES] = self._names  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        # Does what super() does, without calling it: this runs for each header of each request.
        if self.phase != HEAD:
            return  # A trailer. Nothing uses trailers, and they must not be taken for headers.
        self._names.append(name)
        name = name.lower()
        if name == b"host":
            self._hosts += 1
            if _HOST.fullmatch(value) is None:
                raise _Refused(HTTPStatus.BAD_REQUEST, "the header Host is not valid")
        elif name == b"content-length":
            self._length = int(value)
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_offer = self.parser.should_upgrade()
        if self._is_offer:
            if self.parser.get_method() == b"CONNECT":
                raise _Refused(HTTPStatus.BAD_REQUEST, "CONNECT is not supported: this server is no proxy")
            return
        self._check_head()
        super().on_headers_complete()
        self._has_cycle = True
        if not self.pipeline:
            self._running = self.cycle
        self.phase = BODY
        self.since = self._all.tick
        self._body_bytes = self._body_pieces = self._frame_bytes = 0

    def on_body(self, body: bytes) -> None:
        count = len(body)
        self._body_bytes += count
        self._body_pieces += 1
        self._held += count
        self._all.bodies_bytes += count
        if self._body_bytes > self._settings.body_bytes_max:
            raise _body_too_large(self._settings.body_bytes_max)
        if self._all.bodies_bytes > self._settings.bodies_bytes_max:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many bytes of requests are in flight")
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_offer:
            return
        super().on_message_complete()
        # It may be answered already: an operation need not wait for the body.
        self.phase = WAITING if self.cycle.response_complete else WORKING
        self.since = self._all.tick

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]
            super().on_response_complete()
            return
        # Does what super() does, without its timer: the sweep closes idle connections.
        self.server_state.total_requests += 1
        self._release()
        if self.phase == WORKING:
            self.phase = WAITING
            self.since = self._all.tick
        if not self.transport.is_closing():
            self.flow.resume_reading()

    # From the server

    def shutdown(self) -> None:
        running = self._running
        if self.phase == REFUSED:
            self.transport.close()
        elif self._stalled >= 0 and running is not None and running.scope.get(LIVE):
            # The peer does not read, and a live answer has no end: waiting for it would only delay the stop.
            self.transport.abort()
        else:
            super().shutdown()

    def abort(self) -> None:
        self.transport.abort()

    def sweep(self, tick: int) -> None:
        deadlines = self._all.deadlines
        if self._stalled >= 0 and tick - self._stalled > deadlines.body:
            self._cut("the peer does not read its answer")
        elif self.phase == WORKING:
            return
        elif self.flow.read_paused:
            self.since += 1  # The server has paused reading: this second does not count against the peer.
        else:
            self._sweep_phase(tick - self.since)

    def _sweep_phase(self, age: int) -> None:
        deadlines = self._all.deadlines
        if self.phase == HEAD and age > deadlines.head:
            self._cut("the headers are not complete")
        elif self.phase == BODY and age > deadlines.body:
            self._cut("the body is not complete")
        elif self.phase == REFUSED and age > LINGER_TICKS:
            self.transport.abort()
        elif self.phase == WAITING and not self._has_cycle and age > deadlines.head:
            self._cut("no request")  # Empty lines do not begin a request.
        elif self.phase == WAITING and age > deadlines.idle:
            self.transport.close()

    def _cut(self, reason: str) -> None:
        self._all.report_cut(reason, self.client)
        self.transport.abort()

    # Upgrade

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its Upgrade: a server may ignore that header (RFC 9110, section 7.8).

        httptools stops after a head with an Upgrade and skips the body. Java's HTTP client offers HTTP/2 this way with
        each request, so the body has to be read.
        """
        if self._is_second_reading:
            # Each of n such requests in one chunk would be parsed with all that follow it: quadratic time.
            self._refuse(_Refused(HTTPStatus.BAD_REQUEST, "requests with an Upgrade header cannot be pipelined"))
            return
        offer = (b"upgrade", b"http2-settings", b"connection")
        lines = [self.parser.get_method(), b" ", self.url, b" HTTP/", self.parser.get_http_version().encode(), b"\r\n"]
        for name, value in self.headers:
            if name not in offer:
                lines += [name, b": ", value, b"\r\n"]
            elif name == b"connection" and b"close" in value.lower():
                lines.append(b"connection: close\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self._is_second_reading = True
        self.data_received(b"".join([*lines, b"\r\n", rest]))
        self._is_second_reading = False

    # Limits

    def _check_head(self) -> None:
        settings = self._settings
        if self._hosts != 1:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the request has {self._hosts} Host headers, 1 is required")
        if len(self.headers) > settings.headers_max:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"more than {settings.headers_max} headers")
        # Counted exactly only if it may be too much: the chunk may also contain the body and the next request.
        most = settings.header_bytes_max
        if self._fed + self._head_bytes > most and _size_of_head(self.url, self.headers) > most:
            raise _head_too_large(most)
        if self._length > settings.body_bytes_max:
            raise _body_too_large(settings.body_bytes_max)
        if self._all.bodies_bytes + self._length > settings.bodies_bytes_max:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many bytes of requests are in flight")
        if self.parser.get_http_version() not in _VERSIONS:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the version is not HTTP/1.1")

    def _check_partial_head(self) -> None:
        if self._is_first_chunk:
            self._is_first_chunk = False  # Not counted: it may also contain the end of an earlier request.
            return
        self._head_bytes += self._fed
        if self._head_bytes > self._settings.header_bytes_max:
            self._refuse(_head_too_large(self._settings.header_bytes_max))

    def _check_frames(self, body_bytes: int) -> None:
        """Bounds what httptools buffers of an endless trailer or chunk extension."""
        self._frame_bytes += self._fed - body_bytes
        if self._frame_bytes > self._settings.header_bytes_max + _CHUNK_BYTES * self._body_pieces:
            self._refuse(_Refused(HTTPStatus.BAD_REQUEST, "chunk framing or trailers are too large"))

    def _release(self) -> None:
        self._all.bodies_bytes -= self._held
        self._held = 0

    # Refusing

    def _refuse_for(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, _Refused):
            self._refuse(cause)
        elif not isinstance(error, httptools.HttpParserCallbackError):
            self._refuse(_Refused(HTTPStatus.BAD_REQUEST, str(error) or "the request is not HTTP"))
        elif isinstance(cause, (UnicodeError, httptools.HttpParserInvalidURLError)):
            self._refuse(_Refused(HTTPStatus.BAD_REQUEST, "the target of the request is not valid"))
        else:
            log.error("a defect of the server while it parsed a request", exc_info=cause)
            self._refuse(_Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error"))

    def _refuse(self, refused: _Refused) -> None:
        self._all.report_refused(refused.reason, self.client)
        in_body = self.phase == BODY
        # In other phases `headers` are those of an earlier request. If Accept follows the wrong part, the body is XML.
        as_json = self.phase in (HEAD, BODY) and _asks_for_json(self.headers)
        self.phase, self.since = REFUSED, self._all.tick
        cycle = self.cycle
        is_busy = self._has_cycle and not cycle.response_complete
        can_answer = not is_busy or (in_body and not self.pipeline and not cycle.response_started)
        if is_busy:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.is_closing():
            return
        if not can_answer:
            # An earlier request is still in progress: the client would take this answer for that one.
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write(_answer(refused, as_json))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()


def _size_of_head(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    # 4 bytes a line: colon, space and CRLF. 20 bytes: method, version and the end of the request line.
    return len(url) + 20 + sum([len(name) + len(value) + 4 for name, value in headers])


def _head_too_large(most: int) -> _Refused:
    return _Refused(HTTPStatus.BAD_REQUEST, f"the request has headers of more than {most} bytes")


def _body_too_large(most: int) -> _Refused:
    return _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has a body of more than {most} bytes")


def _asks_for_json(headers: list[tuple[bytes, bytes]]) -> bool:
    return any([name == b"accept" and JSON.encode() in value for name, value in headers])


def _answer(refused: _Refused, as_json: bool) -> bytes:
    """The answer has no x-correlation-id: the headers were not all read, and no log line would have the id."""
    body, content_type = error_content(as_json, refused.status.value, _CODES[refused.status], refused.reason)
    head = (
        f"HTTP/1.1 {refused.status.value} {refused.status.phrase}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n{_RETRY_AFTER.get(refused.status, '')}connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
