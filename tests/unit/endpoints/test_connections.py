"""What a silent connection costs, and how deadlines are counted."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from unibus.config.settings import ServerSettings
from unibus.endpoints.transport.connections import Connections, address_of


class Late:
    def __init__(self) -> None:
        self.ticks: list[int] = []
        self.is_aborted = False

    def sweep(self, tick: int) -> None:
        self.ticks.append(tick)

    def shutdown(self) -> None:
        raise AssertionError("no shutdown here")

    def abort(self) -> None:
        self.is_aborted = True


def test_every_connection_is_swept_once_a_tick_until_it_is_discarded() -> None:
    drained: set[object] = set()
    connections = Connections(ServerSettings(), drained)
    late, gone = Late(), Late()
    connections.add(late)
    connections.add(gone)
    connections.sweep()
    connections.discard(gone)
    connections.sweep()
    assert (late.ticks, gone.ticks) == ([1, 2], [1])
    assert drained == {late}
    connections.abort()
    assert (late.is_aborted, gone.is_aborted) == (True, False)


def test_a_connection_may_leave_while_it_is_swept() -> None:
    connections = Connections(ServerSettings(), set())

    class Leaving(Late):
        def sweep(self, tick: int) -> None:
            connections.discard(self)

    for _ in range(3):
        connections.add(Leaving())
    connections.sweep()
    assert len(connections) == 0


def test_deadlines_are_never_shorter_than_asked_for() -> None:
    deadlines = Connections(
        ServerSettings(head_deadline_s=1.2, body_deadline_s=5, idle_deadline_s=7.9), set()
    ).deadlines
    assert (deadlines.head, deadlines.body, deadlines.idle) == (2, 5, 8)


@pytest.mark.parametrize(
    ("peer", "text"),
    [(("127.0.0.1", 5), "127.0.0.1:5"), (("::1", 5, 0, 0), "[::1]:5"), (None, "unknown"), ("", "unknown")],
)
def test_addresses(peer: Any, text: str) -> None:
    assert address_of(peer) == text


def test_a_silent_connection_costs_less_than_two_kilobytes() -> None:
    """Of Python's memory; the kernel has its buffers besides."""
    import socket

    from unibus.endpoints.transport.first_byte import Protocols
    from unibus.endpoints.transport.listening import bind_all
    from unibus.endpoints.transport.port import Port

    async def measure() -> float:
        settings = ServerSettings(port=0, amqp_port=None, host=("127.0.0.1",))
        connections = Connections(settings, set())
        protocols = Protocols(connections, lambda: asyncio.Protocol())
        port = Port(bind_all(settings)[0], protocols, None)
        opened: list[socket.socket] = []

        async def open_many(count: int) -> None:
            wanted = len(connections) + count
            for _ in range(count):
                client = socket.socket()
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, port.address)
                opened.append(client)
            while len(connections) < wanted:  # noqa: ASYNC110 - the loop has to turn
                await asyncio.sleep(0)

        await open_many(20)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        clients_before = len(opened)
        await open_many(200)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(opened) - clients_before == 200
        connections.abort()
        port.close()
        for client in opened:
            client.close()
        return grown / 200

    assert asyncio.run(measure()) < 2_048
