"""A listening port: accepts connections, and passes each to the protocol of its first byte.

    accept ─▶ FirstByteWait: readable ─▶ recv(1, MSG_PEEK) ─┬─ plain ───────────▶ connect_accepted_socket(protocol)
                                                            └─ TlsHandshake ──▶ connect_accepted_socket(…, ssl=…)

The byte is peeked at and not consumed, so TLS and every protocol get the stream as it was sent. Until it arrives a
connection costs one small object and no buffer, and the sweep closes it at the deadline for headers.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Coroutine
from typing import Final

from unibus.endpoints.log_lines import log_event
from unibus.endpoints.transport.connections import log
from unibus.endpoints.transport.first_byte import TLS, InsideTls, Protocols
from unibus.errors import PortUnavailable

BACKLOG: Final = 1_024
ACCEPTS_PER_EVENT: Final = 64
"""Connections accepted per readiness event: a flood of new ones must not starve the existing ones."""

TLS_SHUTDOWN_S: Final = 2.0
_RESUME_S: Final = 1.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to every address of a host name. They do not listen yet. PortUnavailable gives the reason."""
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            # With port 0 the free port of the first address is used for all addresses of the host.
            chosen = bound[0].getsockname()[1] if bound and not port else port
            bound.append(_bound(family, kind, protocol, (address[0], chosen, *address[2:])))
    except OSError as error:
        for each in bound:
            each.close()
        raise _unavailable(host, port, error) from error
    return bound


def _bound(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made


def _unavailable(host: str, port: int, error: OSError) -> PortUnavailable:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return PortUnavailable(
            f"port {port} is taken on {host}",
            "another program uses it: end that one, or choose others: --port, --amqp-port",
        )
    if error.errno == errno.EACCES:
        return PortUnavailable(f"{where} is not allowed for this user", "choose a port above 1023: --port 5300")
    return PortUnavailable(f"cannot listen on {where}: {error.strerror or error}", "see --host and --port")


def is_missing_address(error: PortUnavailable) -> bool:
    """Whether this machine does not have the address, such as IPv6 in many containers."""
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) or (isinstance(cause, OSError) and cause.errno in _NO_SUCH_ADDRESS)


class Port:
    """One listening socket. It belongs to the event loop that it is created on.

    It listens from its construction, not from `bind`: the operating system accepts connections for a listening socket,
    and the server must be ready before that. PortUnavailable if another program, which bound the same address at the
    same time, listens first.
    """

    def __init__(self, listening: socket.socket, protocols: Protocols, tls: ssl.SSLContext | None) -> None:
        self._listening = listening
        self._protocols = protocols
        self._connections = protocols.connections
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._handovers: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self.is_open = True
        try:
            listening.listen(BACKLOG)
        except OSError as error:
            raise _unavailable(*self.address, error) from error
        self._loop.add_reader(listening, self._accept)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop accepting. Accepted connections stay open."""
        if not self.is_open:
            return
        self.is_open = False
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    async def wait_closed(self) -> None:
        """Cancel the handshakes in progress, and wait for their end."""
        for each in self._handovers:
            each.cancel()
        await asyncio.gather(*self._handovers, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            accepted.setblocking(False)
            self._connections.accepted += 1
            if self._connections.has_room():
                FirstByteWait(self, accepted, peer)
            else:
                self._connections.report_refused("too many connections", peer)
                accepted.close()

    def _pause(self, error: OSError) -> None:
        """Out of file descriptors or memory. The listening socket stays readable, so retrying at once would spin."""
        hint = "the server retries each second; allow more open files (ulimit -n), or lower connections_max"
        log_event(log, logging.ERROR, "cannot accept connections", reason=error.strerror or str(error), hint=hint)
        self._loop.remove_reader(self._listening)
        self._resume = self._loop.call_later(_RESUME_S, self._loop.add_reader, self._listening, self._accept)

    def hand_over(self, accepted: socket.socket, peer: object, first: int) -> None:
        """The first byte of a connection has arrived."""
        if first == TLS and self._tls is None:
            self._connections.report_refused("the client uses TLS, which is switched off here", peer)
            accepted.close()
            return
        if first == TLS:
            self._connections.handshakes.add(TlsHandshake(self, accepted, peer))
            return
        self._connections.handovers += 1
        self.start(self._connect(accepted, peer, first)).add_done_callback(self._handed_over)

    def start(self, connecting: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        """A task that is cancelled with the port."""
        task = self._loop.create_task(connecting)
        self._handovers.add(task)
        task.add_done_callback(self._handovers.discard)
        return task

    def _handed_over(self, task: "asyncio.Task[None]") -> None:
        self._connections.handovers -= 1

    async def _connect(self, accepted: socket.socket, peer: object, first: int) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._protocols.protocol_for(first, peer, False), accepted)
        except OSError as error:
            self._connections.report_refused(_reason_of(error), peer)
            accepted.close()

    async def shake_hands(self, accepted: socket.socket, peer: object) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: InsideTls(self._protocols),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._connections.settings.head_deadline_s,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except OSError as error:  # Includes SSLError, and TimeoutError for the deadline.
            self._connections.report_refused(f"TLS handshake: {_reason_of(error)}", peer)
            accepted.close()
        except asyncio.CancelledError:  # It was cut for another handshake, or the port is closed.
            accepted.close()
            raise


class TlsHandshake:
    """A connection that has begun a TLS handshake. While it waits, nothing is read from it."""

    def __init__(self, port: Port, accepted: socket.socket, peer: object) -> None:
        self.began = 0
        self._port = port
        self._accepted = accepted
        self._peer = peer
        self._connections = port._connections
        self._since = self._connections.tick
        self._task: asyncio.Task[None] | None = None

    # The interface Handshake

    def run(self) -> None:
        self._connections.discard(self)
        if not self._port.is_open:
            self.shutdown()
            return
        self._task = self._port.start(self._port.shake_hands(self._accepted, self._peer))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._connections.handshakes.discard(self)

    def hold(self) -> None:
        self._connections.add(self)

    def cut(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # The interface Connection, while it waits

    def sweep(self, tick: int) -> None:
        if tick - self._since > self._connections.deadlines.head:
            self._connections.report_cut("too many TLS handshakes: this one waited past its deadline", self._peer)
            self.shutdown()

    def shutdown(self) -> None:
        self._connections.discard(self)
        self._connections.handshakes.discard(self)
        self._accepted.close()

    def abort(self) -> None:
        self.shutdown()


class FirstByteWait:
    """An accepted connection from which nothing has been read."""

    def __init__(self, port: Port, accepted: socket.socket, peer: object) -> None:
        self._port = port
        self._accepted = accepted
        self._peer = peer
        self._connections = port._connections
        self.since = self._connections.tick
        self._is_waiting = False
        self._look()

    def _look(self) -> None:
        try:
            first = self._accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._wait()
            return
        except OSError:
            first = b""  # Reset by the peer.
        self._stop_waiting()
        if first:
            self._port.hand_over(self._accepted, self._peer, first[0])
        else:
            self._accepted.close()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._connections.add_silent(self)
            self._port._loop.add_reader(self._accepted, self._look)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._port._loop.remove_reader(self._accepted)
            self._connections.discard_silent(self)

    def sweep(self, tick: int) -> None:
        if tick - self.since > self._connections.deadlines.head:
            self._connections.report_cut("nothing was sent", self._peer)
            self.shutdown()

    def shutdown(self) -> None:
        self._stop_waiting()
        self._accepted.close()

    def abort(self) -> None:
        self.shutdown()


def _reason_of(error: OSError) -> str:
    """One line, without the position in OpenSSL's source."""
    reason = getattr(error, "reason", None)
    return (str(reason or error.strerror or error) or type(error).__name__).replace("\n", " ")
