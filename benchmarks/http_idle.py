"""Memory of an idle connection: a thousand that have had one answer and are kept, resident memory of the server.

Every trial has a fresh server, since memory that connections before have returned would hide what these take.
"""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.http_servers import Server

CONNECTIONS = 1_000
WARM_UP = 50
PAGE_BYTES = resource.getpagesize()
SPARE_FILES = 100
REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def idle_bytes(server: Server, connections: int = CONNECTIONS) -> float:
    """Resident bytes for each connection that is kept open and idle."""
    with _open(server, WARM_UP):
        before = resident_bytes(server.pid)
        with _open(server, connections):
            return max(1.0, (resident_bytes(server.pid) - before) / connections)


@contextmanager
def _open(server: Server, connections: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(connections):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            line.sendall(REQUEST)
            if not line.recv(4_096).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("the server did not answer a connection that shall be idle")
        yield


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def allow_files(count: int = CONNECTIONS + SPARE_FILES) -> None:
    """For this process and for the servers that it starts afterwards: a usual limit is 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
