"""All connections of a server, and the sweep that closes those whose peer misses a deadline, once per second.

A timer for each request would cost a third of its processor time. Instead a connection records the tick at which the
server began to wait for its peer, and one sweep per second visits all connections. Time is counted in sweeps ("ticks"),
so nothing here reads a clock, and a test advances the time by calling `sweep`.

A wait that began in tick t with a deadline of d seconds is cut by the first sweep with tick - t > d, so after d to
d + 1 seconds.

At the limit of connections a new one replaces the oldest that has sent nothing for seconds, or the oldest TLS
handshake: a peer that only holds connections open does not keep other clients out.
"""

import logging
import math
from typing import Final, Protocol

from unibus.config.settings import ServerSettings
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.transport.handshakes import OLD_TICKS, Handshakes
from unibus.endpoints.transport.open_files import connections_allowed

log = logging.getLogger("unibus.server")

REFUSALS_PER_TICK: Final = 10
"""Log lines about refused connections per second. More are only counted: a port scanner must not fill a disk."""


class Connection(Protocol):
    """A connection of any protocol, as the server sees it."""

    def sweep(self, tick: int) -> None:
        """Called once per second: close the connection if its peer has missed a deadline."""

    def shutdown(self) -> None:
        """The server stops: finish in-flight requests, then close."""

    def abort(self) -> None:
        """Close now, and drop in-flight requests."""


class ConnectionDeadlines:
    """The deadlines of a peer, in ticks."""

    def __init__(self, settings: ServerSettings) -> None:
        self.head = math.ceil(settings.head_deadline_s)
        self.body = math.ceil(settings.body_deadline_s)
        self.idle = math.ceil(settings.idle_deadline_s)


class SilentConnection(Connection, Protocol):
    """A connection that has sent nothing. `since` is the tick in which it was accepted."""

    since: int


class Connections:
    """The open connections. uvicorn shuts down the members of its set `drained`, and waits for them, when it stops."""

    def __init__(self, settings: ServerSettings, drained: set[object]) -> None:
        self.settings = settings
        self.deadlines = ConnectionDeadlines(settings)
        self.tick = 0
        self.accepted = 0
        self.refused = 0
        self.cut = 0
        self.handovers = 0
        """Plain-text connections between their first byte and their protocol: no longer silent, not open yet."""
        self.handshakes = Handshakes(settings.handshakes_max, self._count_cut_handshake)
        """The same for TLS, which needs a handshake in between. Handshakes that wait are open connections."""
        self.most = connections_allowed(settings.connections_max)
        self.bodies_bytes = 0
        """Body bytes of all in-flight requests, which may all be in memory."""
        self._open: set[Connection] = set()
        self._silent: dict[SilentConnection, None] = {}  # The oldest is first.
        self._silent_cut = 0
        self._handshakes_cut = 0
        self._drained = drained
        self._reported = 0
        self._unreported = 0

    def __len__(self) -> int:
        return len(self._open)

    def has_room(self) -> bool:
        """Whether another connection is allowed. At the limit this first cuts an old silent one or handshake."""
        if not 0 < self.most <= len(self._open) + self.handovers + len(self.handshakes):
            return True
        return self._cut_silent() or self.handshakes.cut_oldest()

    def _cut_silent(self) -> bool:
        oldest = next(iter(self._silent), None)
        if oldest is None or self.tick - oldest.since < OLD_TICKS:
            return False
        self._silent_cut += 1
        self.cut += 1
        oldest.abort()
        return True

    def _count_cut_handshake(self) -> None:
        self._handshakes_cut += 1
        self.cut += 1

    def add(self, connection: Connection) -> None:
        """Sweep this connection from now on, and shut it down when the server stops."""
        self._open.add(connection)
        self._drained.add(connection)

    def add_silent(self, connection: SilentConnection) -> None:
        """Add a connection that may be cut for another one until it sends something."""
        self._silent[connection] = None
        self.add(connection)

    def discard_silent(self, connection: SilentConnection) -> None:
        self._silent.pop(connection, None)
        self.discard(connection)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._drained.discard(connection)

    def sweep(self) -> None:
        """One second has passed."""
        self.tick += 1
        if self._unreported:
            log_event(log, logging.WARNING, "more connections refused", count=self._unreported)
        if self._silent_cut or self._handshakes_cut:
            counts = {"silent": self._silent_cut, "handshakes": self._handshakes_cut}
            log_event(
                log, logging.WARNING, "idle connections closed for new ones: connections_max is reached", **counts
            )
        self._reported = self._unreported = self._silent_cut = self._handshakes_cut = 0
        self.handshakes.sweep(self.tick)
        for connection in list(self._open):
            connection.sweep(self.tick)

    def abort(self) -> None:
        """Close all of them now."""
        for connection in list(self._open):
            connection.abort()

    def report_refused(self, reason: str, peer: object) -> None:
        """Log and count a connection or request that was refused before any operation."""
        self.refused += 1
        self._report(logging.WARNING, "connection refused", reason, peer)

    def report_cut(self, reason: str, peer: object) -> None:
        """Log and count a connection whose peer missed a deadline."""
        self.cut += 1
        self._report(logging.INFO, "connection cut", reason, peer)

    def _report(self, level: int, event: str, reason: str, peer: object) -> None:
        if not log.isEnabledFor(level):
            return
        if self._reported >= REFUSALS_PER_TICK:
            self._unreported += 1
            return
        self._reported += 1
        log_event(log, level, event, reason=reason, peer=address_of(peer))


def address_of(peer: object) -> str:
    """The address of a peer as text: `127.0.0.1:4711` or `[::1]:4711`."""
    if not isinstance(peer, tuple) or len(peer) < 2:
        return "unknown"
    host, port = str(peer[0]), peer[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
