"""Detects the protocol of a connection by its first byte, in plain text and again inside TLS.

    0x16       a TLS handshake
    'A'        an AMQP header; no HTTP method that is served begins with it
    any other  HTTP, whose parser refuses what is none

One byte is enough, so the server never has to wait for the rest of a prefix. `protocols` adds other protocols by their
first byte.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, cast

from unibus.config.settings import is_trusted
from unibus.endpoints.transport.connections import Connections

TLS: Final = 0x16
AMQP: Final = ord("A")
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
"""The answer to a protocol header that the server does not accept, before it closes (AMQP 1.0, part 2.2)."""

ConnectionFactory = Callable[[Connections], asyncio.Protocol]
"""Creates the protocol of a connection, which has to add itself to the connections: else it is not swept, and not shut
down."""

_PLAIN_REFUSED: Final = b"""\
plain text is accepted from loopback and from the networks of allow_networks only: use TLS, or start with --insecure
"""


class Protocols:
    """The protocols of a server by their first byte. `http` takes every other byte."""

    def __init__(
        self,
        connections: Connections,
        http: Callable[[], asyncio.Protocol],
        protocols: Mapping[int, ConnectionFactory] | None = None,
    ) -> None:
        self.connections = connections
        self._http = http
        self._protocols: dict[int, ConnectionFactory] = {AMQP: AmqpNotYet, **(protocols or {})}
        self._networks = connections.settings.networks()

    def protocol_for(self, first: int, peer: object, is_tls: bool) -> asyncio.Protocol:
        if not is_tls and not self._accepts_plain(peer):
            return ConnectionRefusal(
                self.connections, "plain text from an address that needs TLS", _plain_answer(first)
            )
        made = self._protocols.get(first)
        return self._http() if made is None else made(self.connections)

    def _accepts_plain(self, peer: object) -> bool:
        if self.connections.settings.insecure:
            return True
        return isinstance(peer, tuple) and is_trusted(str(peer[0]), self._networks)


class InsideTls(asyncio.Protocol):
    """A TLS connection until its first byte has arrived. It has the deadline for headers."""

    def __init__(self, protocols: Protocols) -> None:
        self._protocols = protocols
        self._connections = protocols.connections
        self._since = self._connections.tick
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._since = self._connections.tick
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._connections.discard(self)
        protocol = self._protocols.protocol_for(data[0], transport.get_extra_info("peername"), True)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)

    def sweep(self, tick: int) -> None:
        if tick - self._since > self._connections.deadlines.head and self._transport is not None:
            reason = "nothing was sent after the TLS handshake"
            self._connections.report_cut(reason, self._transport.get_extra_info("peername"))
            self._transport.abort()

    def shutdown(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class ConnectionRefusal(asyncio.Protocol):
    """A connection that is refused: one log line, one answer, close."""

    def __init__(self, connections: Connections, reason: str, answer: bytes) -> None:
        self._connections = connections
        self._reason = reason
        self._answer = answer
        self._since = connections.tick
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._connections.report_refused(self._reason, transport.get_extra_info("peername"))
        self._transport.write(self._answer)
        # What the peer still sends is read and dropped: closing with unread data would reset the connection, and the
        # peer might lose the answer.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)

    def sweep(self, tick: int) -> None:
        if tick - self._since > 2 and self._transport is not None:
            self._transport.abort()

    def shutdown(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class AmqpNotYet(ConnectionRefusal):
    """AMQP clients are answered in their own protocol, so that they report an unsupported version, not a broken
    connection."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections, "AMQP: not yet", AMQP_HEADER)


def _plain_answer(first: int) -> bytes:
    if first == AMQP:
        return AMQP_HEADER
    head = f"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\ncontent-length: {len(_PLAIN_REFUSED)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode("ascii") + _PLAIN_REFUSED
