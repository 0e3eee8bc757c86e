"""The figures of the demo: one row per channel, read from the counters of its buses."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rich import box
from rich.table import Table

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.flow.metrics import ChannelSnapshot

RATE_WINDOW_S: Final = 1.0
NOT_MEASURED: Final = "–"


class DemoRow(NamedTuple):
    """One channel. Latencies run from publish to dispatch; None if no message was measured."""

    channel: str
    published: int
    dispatched: int
    waiting: int
    retried: int
    dead_letters: int
    rate_per_s: float
    p50_us: float | None
    p99_us: float | None


class DemoWatch:
    """Reads the counters of the buses at each `rows`, and derives rates from earlier readings."""

    def __init__(self, bus: SyncMessageBus, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._buses = [bus]
        self._monotonic_s = monotonic_s
        self._before: deque[tuple[float, dict[str, int]]] = deque()

    def add(self, bus: SyncMessageBus) -> None:
        """One more bus, whose channels have names of their own."""
        self._buses.append(bus)

    def rows(self) -> list[DemoRow]:
        """All channels in the order of their creation, without internal ones."""
        seen = {each.channel: (bus, each) for bus in self._buses for each in _channels(bus)}
        rates = self._rates({name: each.dispatched for name, (_, each) in seen.items()})
        return [
            DemoRow(
                channel=name,
                published=each.published,
                dispatched=each.dispatched,
                waiting=bus.queue_size(name) or 0,
                retried=each.retried,
                dead_letters=each.dead_lettered,
                rate_per_s=rates[name],
                p50_us=each.dispatch_latency.p50_us if each.dispatch_latency.samples else None,
                p99_us=each.dispatch_latency.p99_us if each.dispatch_latency.samples else None,
            )
            for name, (bus, each) in seen.items()
        ]

    def _rates(self, dispatched: dict[str, int]) -> dict[str, float]:
        now_s = self._monotonic_s()
        self._before.append((now_s, dispatched))
        # Keep one reading that is at least a window old, to compare with.
        while len(self._before) > 2 and now_s - self._before[1][0] >= RATE_WINDOW_S:
            self._before.popleft()
        then_s, then = self._before[0]
        passed_s = max(now_s - then_s, 1e-9)
        return {name: (count - then.get(name, 0)) / passed_s for name, count in dispatched.items()}


def _channels(bus: SyncMessageBus) -> list[ChannelSnapshot]:
    # The row of a channel includes its dead-letter queue; the channel for replies is internal.
    shown = {name for name in bus.channels() if not name.startswith("$") and not is_sub_queue(name)}
    return [each for each in bus.snapshot().channels if each.channel in shown]


HEADINGS: Final = ("channel", "published", "dispatched", "waiting", "retried", "dead", "p50", "p99", "rate/s")


def table(rows: list[DemoRow], rates: bool = True) -> Table:
    """For a terminal. Without the rates after the bus was closed."""
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False)
    width = len(HEADINGS) if rates else len(HEADINGS) - 1
    drawn.add_column(HEADINGS[0], overflow="ellipsis", no_wrap=True, min_width=12)
    for name in HEADINGS[1:width]:
        drawn.add_column(name, justify="right", no_wrap=True, min_width=8 if name in ("p50", "p99") else None)
    for row in rows:
        drawn.add_row(*_cells(row)[:width])
    return drawn


def lines(rows: list[DemoRow]) -> list[str]:
    """For a pipe: columns of fixed width, without the rates."""
    form = "{:<20}{:>12}{:>12}{:>9}{:>9}{:>6}{:>10}{:>10}"
    return [form.format(*cells[:-1]) for cells in (HEADINGS, *map(_cells, rows))]


def _cells(row: DemoRow) -> tuple[str, ...]:
    counts = (row.published, row.dispatched, row.waiting, row.retried, row.dead_letters)
    return (row.channel, *[f"{n:,}" for n in counts], shown(row.p50_us), shown(row.p99_us), f"{row.rate_per_s:,.0f}")


def shown(us: float | None) -> str:
    """A latency, in a unit that keeps it short."""
    if us is None:
        return NOT_MEASURED
    if us < 1_000:
        return f"{us:.0f} µs"
    return f"{us / 1_000:.1f} ms" if us < 1_000_000 else f"{us / 1_000_000:.1f} s"
