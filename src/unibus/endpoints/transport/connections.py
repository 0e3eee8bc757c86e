"""All connections of a server, and the one sweep per second that ends those which owe bytes for too long.

A timer for each request would cost a third of its processor time. Instead a connection notes the second in which its
peer began to owe something, and once a second all of them are asked. Time is counted in sweeps ("ticks"), so nothing
here reads a clock, and a test moves the time by sweeping.

What is noted in tick t and has d seconds is cut by the first sweep with tick - t > d: after d to d + 1 seconds.

When there are as many as may be, a new connection takes the place of the oldest that has sent nothing for seconds, or
of the oldest TLS handshake: a peer that only holds connections open keeps no client out.
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
"""Lines about refused connections in one second. The rest is counted: a port scanner must not fill a disk."""


class Connection(Protocol):
    """What the server knows of a connection of any protocol."""

    def sweep(self, tick: int) -> None:
        """Called once a second: close the connection if its peer is late."""

    def shutdown(self) -> None:
        """The server stops: finish what is in flight, and close."""

    def abort(self) -> None:
        """Close now, whatever is in flight."""


class ConnectionDeadlines:
    """How many ticks a peer has."""

    def __init__(self, settings: ServerSettings) -> None:
        self.head = math.ceil(settings.head_deadline_s)
        self.body = math.ceil(settings.body_deadline_s)
        self.idle = math.ceil(settings.idle_deadline_s)


class SilentConnection(Connection, Protocol):
    """One that has sent nothing. `since` is the tick in which it was accepted."""

    since: int


class Connections:
    """The open connections. `drained` is the set whose members uvicorn shuts down and waits for when it stops."""

    def __init__(self, settings: ServerSettings, drained: set[object]) -> None:
        self.settings = settings
        self.deadlines = ConnectionDeadlines(settings)
        self.tick = 0
        self.accepted = 0
        self.refused = 0
        self.cut = 0
        self.handovers = 0
        """Connections in plain text that are neither silent nor open: between their first byte and their protocol."""
        self.handshakes = Handshakes(settings.handshakes_max, self._count_cut_handshake)
        """The same for TLS, where that takes a handshake. Those that wait for their turn are open connections."""
        self.most = connections_allowed(settings.connections_max)
        self.bodies_bytes = 0
        """Of all requests that are in flight: their bodies may all be in memory."""
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
        """Whether one more may come: also after another one was cut for it."""
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
        """From now on it is swept, and shut down when the server stops."""
        self._open.add(connection)
        self._drained.add(connection)

    def add_silent(self, connection: SilentConnection) -> None:
        """One that may be cut for another, until it sends something."""
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
            log_event(log, logging.WARNING, "connections cut for others", **counts)
        self._reported = self._unreported = self._silent_cut = self._handshakes_cut = 0
        self.handshakes.sweep(self.tick)
        for connection in list(self._open):
            connection.sweep(self.tick)

    def abort(self) -> None:
        """Close all of them now."""
        for connection in list(self._open):
            connection.abort()

    def report_refused(self, reason: str, peer: object) -> None:
        """A connection or request that was refused before any operation saw it."""
        self.refused += 1
        self._report(logging.WARNING, "connection refused", reason, peer)

    def report_cut(self, reason: str, peer: object) -> None:
        """A connection whose peer was late."""
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
