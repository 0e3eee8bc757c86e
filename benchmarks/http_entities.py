"""One of 10,000 entities, as every request looks for it: found for its settings, and with its counts."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from benchmarks.durable_bus import url
from benchmarks.measure import Options, Trial, best_of, check_delivered, turns
from benchmarks.report import Figure
from unibus import MessageBus
from unibus.bus.api.broker import Broker

ENTITIES = 10_000
LOOKS = 20_000
FIND_NS_MAX = 50_000


def names(count: int) -> list[str]:
    return [f"team/queue-{number:05}" for number in range(count)]


def figures(options: Options) -> list[Figure]:
    return asyncio.run(_figures(options))


async def _figures(options: Options) -> list[Figure]:
    async with MessageBus() as bus:
        broker = Broker(bus)
        wanted = names(ENTITIES)
        for name in wanted:
            await broker.create("queue", name)
        known = {name: name for name in wanted}
        trials = {
            "find": _looking(lambda name: broker.find(name).name, wanted),
            "entity": _looking(lambda name: broker.entity(name).value.name, wanted),
            "limit": _looking(known.__getitem__, wanted),
        }
        best = best_of(trials, options.count(LOOKS), options)
    named = f"one of {ENTITIES:,} entities"
    return [
        Figure(f"{named} found", "ns", best["find"], FIND_NS_MAX, limit=best["limit"]),
        Figure(f"{named} with its counts", "ns", best["entity"], FIND_NS_MAX, limit=best["limit"]),
    ]


def _looking(look: Callable[[str], str], wanted: list[str]) -> Trial:
    def trial(count: int) -> float:
        # Not in the order in which they were made; 7 shares no divisor with their number.
        order = [wanted[(7 * number) % len(wanted)] for number in range(len(wanted))]
        asked = list(turns(order, count))
        found = 0
        start = perf_counter_ns()
        for name in asked:
            found += look(name) == name
        elapsed = perf_counter_ns() - start
        check_delivered(found, count)
        return elapsed / count

    return trial


async def fill(store: Path, count: int = ENTITIES - 1) -> None:
    """A file with so many queues, for a server. One less than a store may have, which the load brings itself."""
    async with MessageBus(url(store)) as bus:
        broker = Broker(bus)
        await asyncio.gather(*[broker.create("queue", name) for name in names(count)])
