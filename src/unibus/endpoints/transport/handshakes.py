"""Unfinished TLS handshakes: bounded in number, because each has buffers of its own from its first byte on.

    first byte ─▶ add ─┬─ fewer than handshakes_max ─────────────────▶ running ─▶ open
                       ├─ the oldest runs for seconds: it is closed ─▶ running
                       └─ all of them are recent ─▶ waiting, without a buffer ─▶ running, when one ends or gets old

A handshake of a healthy client takes milliseconds, so an old one belongs to a peer that holds it open. A burst of
healthy clients waits, and none of them is closed. The latest that waits runs next (last in, first out): behind many
connections that are only held open, a first-in order would make a healthy client wait past its deadline. To keep
clients out a peer has to begin new handshakes continuously, faster than the server runs them.
"""

from collections.abc import Callable
from typing import Final, Protocol

OLD_TICKS: Final = 2
"""The age in sweeps from which a handshake may be closed for another: after one to two seconds."""


class Handshake(Protocol):
    """A connection that has sent the first byte of a TLS handshake."""

    began: int
    """The tick in which it began to run."""

    def run(self) -> None:
        """Begin. `Handshakes.discard` is called when it ends."""

    def hold(self) -> None:
        """Called when the handshake has to wait."""

    def cut(self) -> None:
        """Close the connection."""


class Handshakes:
    """The handshakes of a server, in the order of their arrival. `on_cut` is called for each one cut for another."""

    def __init__(self, most: int, on_cut: Callable[[], None]) -> None:
        self._most = most
        self._on_cut = on_cut
        self._tick = 0
        self._running: dict[Handshake, None] = {}
        self._waiting: dict[Handshake, None] = {}
        self._is_filling = False

    def __len__(self) -> int:
        """How many are running. Waiting ones have no buffers yet."""
        return len(self._running)

    def add(self, handshake: Handshake) -> None:
        self._waiting[handshake] = None
        self._fill()
        if handshake in self._waiting:
            handshake.hold()

    def discard(self, handshake: Handshake) -> None:
        """Forget a handshake that has ended, or whose connection was closed while it waited."""
        self._waiting.pop(handshake, None)
        self._running.pop(handshake, None)
        self._fill()

    def sweep(self, tick: int) -> None:
        """One second has passed: more running handshakes may be old."""
        self._tick = tick
        self._fill()

    def cut_oldest(self) -> bool:
        """Cut the oldest running handshake, if it is old enough; return whether it was."""
        oldest = next(iter(self._running), None)
        if oldest is None or self._tick - oldest.began < OLD_TICKS:
            return False
        del self._running[oldest]
        self._on_cut()
        oldest.cut()
        return True

    def _fill(self) -> None:
        """Run waiting handshakes, up to the limit. One that ends inside `run`, because its port is closed, calls this
        again: `_is_filling` prevents the recursion."""
        if self._is_filling:
            return
        self._is_filling = True
        while self._waiting and (len(self._running) < self._most or self.cut_oldest()):
            latest, _ = self._waiting.popitem()
            self._running[latest] = None
            latest.began = self._tick
            latest.run()
        self._is_filling = False
