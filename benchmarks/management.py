"""What it costs to look at a server at work: its page, and hundreds of clients that follow history.

    page       processor time of the server at 10,000 messages a second with its page open, against the same without
    tails      the slowest of a hundred requests while 200 clients follow every event of 10,000 a second
    no tails   the same without any client that follows

The server is a process of its own with its defaults; messages are sent in batches over one connection.
"""

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cpu import cpu_seconds
from benchmarks.disk import scratch
from benchmarks.http_client import BATCH_TYPE, connected
from benchmarks.http_servers import Server, unibus
from benchmarks.measure import Options
from benchmarks.report import Figure, Report

RATE = 10_000
BATCH = 500
QUEUE = "orders"
QUEUES = 50
SECONDS = 10.0
TAILS = 200
REQUESTS = 100
PAGE_TIMES = 1.03
TAILS_SECONDS = 0.1


def run(options: Options) -> Report:
    seconds = SECONDS / 4 if options.quick else SECONDS
    with scratch() as folder:
        with _server(Path(folder) / "page.db") as server:
            rounds = [_page(server, seconds) for _ in range(options.rounds)]
            # The best of each, not the best of the ratios: that would be the round with the most noise.
            page = min([opened for _, opened in rounds]) / min([without for without, _ in rounds])
        with _server(Path(folder) / "tails.db") as server:
            alone, beside = _tails(server, seconds)
    return Report(
        "management",
        (
            Figure("page open, processor time", "times", page, PAGE_TIMES),
            Figure(f"slowest request, {TAILS} tails", "s", beside, TAILS_SECONDS, limit=alone),
        ),
    )


@contextmanager
def _server(store: Path) -> Iterator[Server]:
    with unibus(store) as server, connected(server) as client:
        for number in range(QUEUES):
            client.create_queue(f"q{number}")
        client.create_queue(QUEUE)
        yield server


def _page(server: Server, seconds: float) -> tuple[float, float]:
    """Without the page, and with it."""
    with _load(server) as sent:
        time.sleep(0.5)
        without = _busy(server, sent, seconds)
        with _following(server, ["server/live", "entities/live"]):
            time.sleep(0.5)
            return without, _busy(server, sent, seconds)


def _busy(server: Server, sent: list[int], seconds: float) -> float:
    """Processor time of the server for each batch that was sent meanwhile."""
    began, before = cpu_seconds(server.pid), len(sent)
    time.sleep(seconds)
    return (cpu_seconds(server.pid) - began) / max(1, len(sent) - before)


def _tails(server: Server, seconds: float) -> tuple[float, float]:
    """The slowest request without and with the tails."""
    with _load(server):
        time.sleep(0.5)
        alone = _slowest(server, seconds)
        with _following(server, ["events/live"] * TAILS):
            time.sleep(2.0)
            return alone, _slowest(server, seconds)


def _slowest(server: Server, seconds: float) -> float:
    found = []
    with connected(server) as client:
        for _ in range(REQUESTS):
            began = time.perf_counter()
            client.call("GET", "/health")
            found.append(time.perf_counter() - began)
            time.sleep(seconds / REQUESTS)
    return max(found)


@contextmanager
def _load(server: Server) -> Iterator[list[int]]:
    """Messages at RATE, until the block is left. Gives a list with an entry for each batch that was sent."""
    ended = threading.Event()
    sent: list[int] = []
    failed: list[Exception] = []

    def send() -> None:
        body = json.dumps([{"Body": "x" * 200}] * BATCH)
        with connected(server) as client:
            due_s = time.monotonic()
            while not ended.is_set():
                try:
                    client.call("POST", f"/{QUEUE}/messages", body, BATCH_TYPE)
                except Exception as error:
                    failed.append(error)
                    return
                sent.append(BATCH)
                due_s += BATCH / RATE
                ended.wait(max(0.0, due_s - time.monotonic()))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield sent
    finally:
        ended.set()
        sending.join()
    if failed:
        raise failed[0]


@contextmanager
def _following(server: Server, paths: list[str]) -> Iterator[None]:
    """Clients that read their live answers, in one thread."""
    ended = threading.Event()
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        for path in paths:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            head = f"GET /unibus/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {server.token}\r\n\r\n"
            line.sendall(head.encode())
            if not line.recv(65_536).startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"{path} was refused")
            line.setblocking(False)
            ready.register(line, selectors.EVENT_READ)
        buffer = bytearray(1 << 20)

        def read() -> None:
            while not ended.is_set():
                for key, _ in ready.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    key.fileobj.recv_into(buffer)

        reading = threading.Thread(target=read)
        reading.start()
        try:
            yield
        finally:
            ended.set()
            reading.join()
