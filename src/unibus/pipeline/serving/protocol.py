"""The door of `unibus pipeline serve` for our own command line: questions come in, answers go out, one JSON line each.

It is a socket of the file system that only its owner may open. Where it is stands in `serve.json` in the lake's folder,
which is also for its owner only, since it holds the token of the Connect server. A lock that ends with the process
tells whether a server is there; what a killed one has left behind is taken over by the next, and does not bother
clients.

Only questions that are known are answered, and what is no question is refused; nothing that comes in is run. Whoever
answers is told when nobody waits for it any more.
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
"""Of the name of a socket: systems allow little more."""

Answering = Callable[[ReportRequest, threading.Event], Reply]
"""The event is set when whoever asked has gone."""


@contextlib.contextmanager
def open_door(lake: Path, connect: str, answering: Answering) -> Iterator[ServingAddress]:
    """Questions are answered, by threads, until the block is left. StoreBusy if another server is there."""
    owner = lock_door(lake)
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


def lock_door(lake: Path) -> Owner:
    """StoreBusy where a server is at work. The lock ends with the process that has it, however that ends."""
    try:
        return Owner(str(lake / "serve"))
    except StoreBusy as error:
        raise StoreBusy(
            f"a server for {lake} is there already: {error.holder}",
            "`unibus pipeline report` asks it; stop it first to start another",
            error.holder,
        ) from None


def _place(lake: Path) -> Path:
    """In the lake's folder, unless its name is too long for a socket."""
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
        before = os.umask(0o177)  # From its first moment on it is for its owner only.
        try:
            super().__init__(place, _Asked)
        finally:
            os.umask(before)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


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
                refusal=ReportRefusal.of(DecodeError(f"this is no question: {error}", "is the client as new?"))
            )
        return self.server.answering(request, gone)


@contextlib.contextmanager
def _watched(line: socket.socket) -> Iterator[threading.Event]:
    """The event is set when the other end of the line is closed before the block is left."""
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
    """Else the next question is there already."""
    try:
        return not line.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
