"""TLS handshakes that are not finished: bounded in number, because each has buffers of its own from the first byte on.

    first byte ─▶ add ─┬─ fewer than handshakes_max ───────────────▶ running ─▶ open
                       ├─ the oldest runs for seconds: it is cut ──▶ running
                       └─ all of them are fresh ─▶ waiting, without a buffer ─▶ running, when one ends or gets old

A handshake of a healthy client takes milliseconds, so those that are old are of peers that hold them open. A burst of
healthy clients waits for its turn, and none of it is cut. Of those that wait the latest is next: behind a crowd that
holds connections open it would come too late. To keep clients out a peer has to begin new handshakes all the time,
faster than they are served.
"""

from collections.abc import Callable
from typing import Final, Protocol

OLD_TICKS: Final = 2
"""From so many sweeps on a handshake may be cut for another: that is after one to two seconds."""


class Handshake(Protocol):
    """A connection of which the first byte of a handshake has come."""

    began: int
    """The tick in which it began to run."""

    def run(self) -> None:
        """Begin. `Handshakes.discard` is called when it ends."""

    def hold(self) -> None:
        """It has to wait for its turn."""

    def cut(self) -> None:
        """Close the connection."""


class Handshakes:
    """Those of a server, in the order in which they came. `on_cut` is called for each that is cut for another."""

    def __init__(self, most: int, on_cut: Callable[[], None]) -> None:
        self._most = most
        self._on_cut = on_cut
        self._tick = 0
        self._running: dict[Handshake, None] = {}
        self._waiting: dict[Handshake, None] = {}
        self._is_filling = False

    def __len__(self) -> int:
        """How many run. Those that wait have no buffers yet."""
        return len(self._running)

    def add(self, handshake: Handshake) -> None:
        self._waiting[handshake] = None
        self._fill()
        if handshake in self._waiting:
            handshake.hold()

    def discard(self, handshake: Handshake) -> None:
        """It has ended, or its connection was closed while it waited."""
        self._waiting.pop(handshake, None)
        self._running.pop(handshake, None)
        self._fill()

    def sweep(self, tick: int) -> None:
        """One second has passed: more of those that run may be old."""
        self._tick = tick
        self._fill()

    def cut_oldest(self) -> bool:
        """Cut the handshake that runs for the longest time, if that is seconds."""
        oldest = next(iter(self._running), None)
        if oldest is None or self._tick - oldest.began < OLD_TICKS:
            return False
        del self._running[oldest]
        self._on_cut()
        oldest.cut()
        return True

    def _fill(self) -> None:
        """Run those that wait, as far as they may. One that ends meanwhile, as its port is closed, calls this again."""
        if self._is_filling:
            return
        self._is_filling = True
        while self._waiting and (len(self._running) < self._most or self.cut_oldest()):
            latest, _ = self._waiting.popitem()
            self._running[latest] = None
            latest.began = self._tick
            latest.run()
        self._is_filling = False
