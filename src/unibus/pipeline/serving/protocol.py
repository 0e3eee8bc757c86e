"""The socket protocol of `unibus pipeline serve` for `unibus pipeline report`: one JSON line per request and per reply.

    report ── ReportRequest ──▶  LAKE/serve.sock  ──▶ answering(request, gone)
           ◀── Reply ──────────

It is a Unix socket that only its owner may open. Its path is in `serve.json` in the folder of the lake, which only the
owner may read too, since it holds the token of the Connect server. A file lock, which ends with the process, shows
whether a server runs: the next server replaces the files of a killed one, and clients ignore them.

Only known requests are answered; nothing that a client sends is executed. The event `gone` is set when the client
disconnects before it has its reply.
"""

import contextlib
import os
import selectors
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from unibus.errors import DecodeError, StoreBusy
from unibus.pipeline.reports.request import Reply, ReportRefusal, ReportRequest
from unibus.pipeline.serving.client import ADDRESS, ServingAddress
from unibus.stores.files.owner import Owner

SOCKET: Final = "serve.sock"
REQUEST_BYTES_MAX: Final = 1 << 20
PATH_BYTES_MAX: Final = 100
"""Of the path of a socket: the limit of operating systems is 104 to 108 bytes."""

Answering = Callable[[ReportRequest, threading.Event], Reply]
"""The event is set when the client has disconnected."""


@contextlib.contextmanager
def serve_requests(lake: Path, connect: str, answering: Answering) -> Iterator[ServingAddress]:
    """Answer requests, each in a thread, until the block is left. StoreBusy if another server runs."""
    owner = lock_serving(lake)
    place = _place(lake)
    address = ServingAddress(os.getpid(), str(place), connect, os.path.realpath(lake))
    try:
        place.unlink(missing_ok=True)
        with _Server(str(place), answering) as server:
            _publish(lake, address)
            thread = threading.Thread(target=server.serve_forever, name="door", daemon=True)
            thread.start()
            try:
                yield address
            finally:
                server.shutdown()
                thread.join()
    finally:
        for path in (lake / ADDRESS, place):
            path.unlink(missing_ok=True)
        if place.parent != lake.absolute():
            place.parent.rmdir()
        owner.release()


def lock_serving(lake: Path) -> Owner:
    """StoreBusy if a server runs. The lock ends with its process, even if that is killed."""
    try:
        return Owner(str(lake / "serve"))
    except StoreBusy as error:
        raise StoreBusy(
            f"a server for {lake} already runs: {error.holder}",
            "`unibus pipeline report` uses it; stop it to start another",
            error.holder,
        ) from None


def _place(lake: Path) -> Path:
    """In the folder of the lake, unless that path is too long for a socket."""
    place = (lake / SOCKET).absolute()
    if len(os.fsencode(place)) <= PATH_BYTES_MAX:
        return place
    return Path(tempfile.mkdtemp(prefix="unibus-")) / SOCKET


def _publish(lake: Path, address: ServingAddress) -> None:
    part = lake / f"{ADDRESS}.part{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(address))
    part.replace(lake / ADDRESS)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: str, answering: Answering) -> None:
        self.answering = answering
        before = os.umask(0o177)  # Only the owner may connect, from the moment it exists.
        try:
            super().__init__(place, _Asked)
        finally:
            os.umask(before)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is not an error."""


class _Asked(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while line := self.rfile.readline(REQUEST_BYTES_MAX):
            with _watched(self.connection) as gone:
                reply = self._reply(line, gone)
            self.wfile.write(msgspec.json.encode(reply) + b"\n")

    def _reply(self, line: bytes, gone: threading.Event) -> Reply:
        try:
            request = msgspec.json.decode(line, type=ReportRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Reply(
                refusal=ReportRefusal.of(
                    DecodeError(
                        f"the request cannot be decoded: {error}", "use the same version of unibus on both sides"
                    )
                )
            )
        return self.server.answering(request, gone)


@contextlib.contextmanager
def _watched(line: socket.socket) -> Iterator[threading.Event]:
    """The event is set when the client closes the connection before the block is left."""
    gone = threading.Event()
    woken, waking = socket.socketpair()

    def watch() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(line, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select()]
        if line in ready and _is_closed(line):
            gone.set()

    watching = threading.Thread(target=watch, name="watching", daemon=True)
    watching.start()
    try:
        yield gone
    finally:
        waking.close()
        watching.join()
        woken.close()


def _is_closed(line: socket.socket) -> bool:
    """False if the client has only sent its next request already."""
    try:
        return not line.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
