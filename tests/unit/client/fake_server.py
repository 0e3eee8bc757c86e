"""A server of raw sockets that answers with whatever bytes a test gives it, one answer for each request."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from unibus.client.address import Address
from unibus.client.client import Client

PATIENCE_S = 5.0
Reply = bytes | Callable[[socket.socket], None]


def ok(body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def refused(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def cut(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


class FakeServer:
    """`requests` are the heads and bodies that came. After the last reply a connection is closed."""

    def __init__(self, replies: list[Reply]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._replies = list(replies)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> Address:
        return Address("http", "127.0.0.1", self.port, rule="root", key="SAS_KEY_VALUE")

    def _serve(self) -> None:
        while self._replies:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # It was closed.
            self.connections += 1
            with connection:
                connection.settimeout(PATIENCE_S)
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        while self._replies:
            try:
                request = _read_request(connection)
            except OSError:
                return
            if not request:
                return
            self.requests.append(request)
            reply = self._replies.pop(0)
            if callable(reply):
                reply(connection)
                return
            connection.sendall(reply)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # Wakes the thread that accepts; closing alone does not.
        self._listener.close()
        self._thread.join(PATIENCE_S)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def talking(*replies: Reply) -> Iterator[tuple[Client, FakeServer]]:
    server = FakeServer(list(replies))
    client = Client(server.address)
    try:
        yield client, server
    finally:
        client.close()
        server.close()
