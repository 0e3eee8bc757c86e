"""Sums over all entities, read without blocking the event loop: for health and metrics.

A namespace may have 10,000 queues and more subscriptions. They are read page by page, and after a slice of about
`SLICE_NS` the loop runs other requests. Health needs no key, so its sums are computed at most once per second however
many requests arrive; concurrent requests wait for the same result.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from unibus.bus.api.broker import Broker, EntityInfo

SLICE_NS: Final = 5_000_000
PAGE: Final = 100
FRESH_NS: Final = 1_000_000_000
KINDS: Final = ("queue", "topic", "subscription")


class Slices:
    """Yields to the event loop after each slice of work. `count` is the number of slices so far."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns: Final = clock_ns
        self._began_ns = clock_ns()
        self.count = 1

    async def pause(self) -> None:
        """Call this between short steps: yields if the current slice has taken long enough."""
        if self._clock_ns() - self._began_ns >= SLICE_NS:
            await asyncio.sleep(0)
            self.count += 1
            self._began_ns = self._clock_ns()


async def all_entities(broker: Broker, slices: Slices) -> AsyncIterator[EntityInfo]:
    """Each entity once, by kind and name. One that is created or deleted meanwhile may be missed."""
    for kind in KINDS:
        seen: set[str] = set()  # Pages shift when an entity is created: none may be yielded twice.
        skip = 0
        while True:
            page = await broker.entities(kind, None, skip, PAGE)
            for info in page:
                if info.name not in seen:
                    seen.add(info.name)
                    yield info
            # A page that is not full is the last one, so entities created meanwhile cannot make this endless.
            if len(page) < PAGE:
                break
            skip += PAGE
            await slices.pause()


@dataclass(frozen=True)
class Sums:
    """`stalled`: queues and subscriptions whose consumers have stopped: they have a backlog and no deliveries."""

    queues: int = 0
    topics: int = 0
    subscriptions: int = 0
    active: int = 0
    dead: int = 0
    scheduled: int = 0
    locked: int = 0
    stalled: int = 0


class Overview:
    """`stalled_after_s`: how long a queue that had deliveries before may have a backlog without any."""

    def __init__(self, stalled_after_s: float) -> None:
        self._stalled_after_ns: Final = int(stalled_after_s * 1e9)
        self._deliveries: dict[str, tuple[int, int]] = {}  # By name: the number, and when it was first seen.
        self._sums: Sums | None = None
        self._read_ns = 0
        self._reading: asyncio.Task[Sums] | None = None

    async def sums(self, broker: Broker, fresh_ns: int = FRESH_NS) -> Sums:
        """At most a second old, or as old as `fresh_ns` allows."""
        if self._sums is not None and 0 <= broker.now_ns() - self._read_ns < fresh_ns:
            return self._sums
        if self._reading is None or self._reading.done() or self._reading.get_loop() is not asyncio.get_running_loop():
            self._reading = asyncio.ensure_future(self._read(broker))
        # Shielded: a client that disconnects must not cancel the reading for the others.
        return await asyncio.shield(self._reading)

    async def _read(self, broker: Broker) -> Sums:
        counts = dict.fromkeys(KINDS, 0)
        active = dead = scheduled = locked = stalled = 0
        deliveries: dict[str, tuple[int, int]] = {}
        now_ns = broker.now_ns()
        async for info in all_entities(broker, Slices()):
            counts[info.kind] += 1
            active += info.active
            dead += info.dead
            scheduled += info.scheduled
            locked += info.locked
            deliveries[info.name] = self._delivered(info, now_ns)
            stalled += self._is_stalled(info, deliveries[info.name], now_ns)
        self._deliveries = deliveries
        self._sums = Sums(
            counts["queue"],
            counts["topic"],
            counts["subscription"],
            active,
            dead,
            scheduled,
            locked,
            stalled,
        )
        self._read_ns = now_ns
        return self._sums

    def _delivered(self, info: EntityInfo, now_ns: int) -> tuple[int, int]:
        known = self._deliveries.get(info.name)
        return known if known is not None and known[0] == info.delivered else (info.delivered, now_ns)

    def _is_stalled(self, info: EntityInfo, delivered: tuple[int, int], now_ns: int) -> bool:
        # A queue without a delivery since the start has no consumer that could have stopped.
        if not info.active or not info.delivered or not info.oldest_ns:
            return False
        limit_ns = now_ns - self._stalled_after_ns
        return delivered[1] <= limit_ns and info.oldest_ns <= limit_ns
