"""HTTP with the standard library: one persistent connection, bounded answers, no redirects, no proxies.

    idle ── request ──▶ sent ── complete answer ──▶ idle
      │                   └── error, timeout, incomplete answer ──▶ closed; the next request connects again
      └── closed by the server: noticed before the next request, which connects again

The errors tell a caller what may have happened. `ServerUnavailable`: nothing was sent. `AnswerLost`: the server may
have executed the request. Proxies of the environment are not used: they are set for the web, and a signature must not
reach anything but the server.
"""

import contextlib
import http.client
import select
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from unibus.client.address import Address
from unibus.errors import AnswerInvalid, ServerUnavailable

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than the largest message, 100 MiB, as base64 in a JSON document."""

CHUNK_BYTES: Final = 1024 * 1024
ERROR_BYTES_MAX: Final = 64 * 1024


class AnswerLost(Exception):
    """The connection ended, or the time ran out, after the request was sent and before the answer was complete."""


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


Check: TypeAlias = Callable[[Callable[[str], HttpAnswer]], None]
"""Verifies a new connection, or raises. Its argument is a function that requests a path without a signature."""


class Wire:
    """One connection at a time, for one thread. `ca_file` replaces the system's trusted certificates.

    `check` is called for each new connection, before anything else is sent over it.
    """

    def __init__(self, address: Address, ca_file: str = "", check: Check | None = None) -> None:
        self._address = address
        self._ca_file = ca_file
        self._check = check
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, wait_s: float = 0.0
    ) -> HttpAnswer:
        """The complete answer; the server may take `wait_s` longer than ANSWER_S.

        Raises ServerUnavailable, AnswerLost or AnswerInvalid.
        """
        ends_s = time.monotonic() + ANSWER_S + wait_s
        with self._exchange():
            found = self._sent(method, path, headers, body, ANSWER_S + wait_s)
            answer = HttpAnswer(found.status, _whole(found, ends_s))
            if found.will_close:
                self.close()
            return answer

    def stream(self, method: str, path: str, headers: dict[str, str], silence_s: float) -> Iterator[bytes]:
        """The pieces of an answer of any length as they arrive. AnswerLost after `silence_s` without any.

        The first piece is empty: it says that the answer has begun, with status 200.
        """
        with self._exchange():
            found = self._sent(method, path, headers, None, ANSWER_S)
            if found.status != 200:
                raise StreamRefused(
                    HttpAnswer(found.status, _whole(found, time.monotonic() + ANSWER_S, ERROR_BYTES_MAX))
                )
            self._set_timeout(silence_s)
            yield b""
            while piece := found.read1(CHUNK_BYTES):
                yield piece
            _check_end(found)
        self.close()

    def connect(self) -> None:
        """Open and verify a connection, unless there is one; BusError if that fails."""
        self._connected()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """From another thread: end the current wait, as if the server had closed the connection."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    # Sending

    def _sent(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, answer_s: float
    ) -> http.client.HTTPResponse:
        connection = self._connected()
        self._set_timeout(answer_s)
        # A server that refuses a request before it has read all of it closes the connection. Its answer was received.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, f"{self._address.prefix}{path}", body, headers)
        return connection.getresponse()

    def _connected(self) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is not None and connection.sock is not None and not _is_over(connection.sock):
            return connection
        self.close()
        self._connection = connection = self._new_connection()
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            self.close()
            raise unreachable(self._address, error) from error
        connection.auto_open = 0  # http.client must not reconnect on its own: a new connection has to be verified.
        if self._check is not None:
            self._checked(connection, self._check)
        return connection

    def _checked(self, connection: http.client.HTTPConnection, check: Check) -> None:
        try:
            check(partial(self._first, connection))
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise unreachable(self._address, error) from error  # Nothing was sent.
        except BaseException:
            self.close()
            raise

    def _first(self, connection: http.client.HTTPConnection, path: str) -> HttpAnswer:
        connection.request("GET", f"{self._address.prefix}{path}", None, {"Accept": "application/json"})
        found = connection.getresponse()
        return HttpAnswer(found.status, _whole(found, time.monotonic() + CONNECT_S, ERROR_BYTES_MAX))

    def _new_connection(self) -> http.client.HTTPConnection:
        address = self._address
        if not address.is_encrypted:
            return http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise ServerUnavailable(
                f"the CA certificates in {self._ca_file} cannot be read", "name a PEM file: --ca FILE or UNIBUS_CA"
            ) from error
        return http.client.HTTPSConnection(address.host, address.port, timeout=CONNECT_S, context=context)

    def _set_timeout(self, seconds: float) -> None:
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        """One request with its answer. After an error the connection is closed: the rest of an answer may follow."""
        try:
            yield
        except (http.client.RemoteDisconnected, http.client.IncompleteRead, OSError) as error:
            self.close()
            raise AnswerLost(_reason(error)) from error
        except http.client.HTTPException as error:
            self.close()
            hint = "check that it is a unibus server, and whether the address needs http or https"
            raise AnswerInvalid(f"the answer of {self._address} is not HTTP", hint) from error
        except BaseException:
            self.close()
            raise


class StreamRefused(Exception):
    """The server answered with an error instead of a stream."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _whole(found: http.client.HTTPResponse, ends_s: float, bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
    pieces: list[bytes] = []
    size = 0
    # read1 returns what has arrived, so the deadline is checked even if a server sends byte by byte.
    while piece := found.read1(CHUNK_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise AnswerInvalid(f"the answer of the server has more than {bytes_max:,} bytes", "ask for less at once")
        if time.monotonic() > ends_s:
            raise TimeoutError("the answer took too long")
    _check_end(found)
    found.read()  # Returns nothing, but marks the connection as reusable, which `read1` does not.
    return b"".join(pieces)


def _check_end(found: http.client.HTTPResponse) -> None:
    if found.length:  # A read of a given size does not raise when the connection ends early.
        raise http.client.IncompleteRead(b"", found.length)


def _is_over(sock: socket.socket) -> bool:
    """Whether the server has closed the connection, or sent data without a request. Checked before a request is sent,
    so that none is lost."""
    try:
        readable, _, _ = select.select([sock], [], [], 0)
    except (OSError, ValueError):
        return True
    return bool(readable)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "its answer ended early"
    return "it closed the connection"


_CA_HINT: Final = (
    "name its CA: `unibus --ca FILE …`, or UNIBUS_CA; a unibus server has its own in the folder STORE-certificates: "
    "ca.pem"
)
"""The hint does not name the server's URL of ca.pem: a certificate fetched over plain text would prove nothing."""


def unreachable(address: Address, error: Exception) -> ServerUnavailable:
    """The error of a connection that cannot be opened, in terms of the address that the user gave."""
    what = f"the server {address} cannot be reached: {_why(error)}"
    hint = "check that it is running, and that the port is right"
    if isinstance(error, socket.gaierror):
        what, hint = f"the host {address.host} is unknown", "check the name in --url"
    elif isinstance(error, TimeoutError):
        what = f"the server {address} did not answer within {CONNECT_S:g} s"
    elif type(error).__module__ == "ssl":
        what, hint = _tls(address, error)
    return ServerUnavailable(what, hint)


def _tls(address: Address, error: Exception) -> tuple[str, str]:
    if type(error).__name__ == "SSLCertVerificationError":
        what = f"the certificate of {address} is not trusted: {getattr(error, 'verify_message', '') or 'unknown'}"
        return what, _CA_HINT
    return f"the TLS handshake with {address} failed: {_why(error)}", "use http:// if the server has no TLS"


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__).lower()
