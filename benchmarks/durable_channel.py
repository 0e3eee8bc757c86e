"""Messages a second from `publish` on a persistent channel to a handler that has returned and settled.

The same 200-byte bodies by the same 256 tasks as in `benchmarks.durable`, on SQLite with its default durability: each
task publishes its next message when the one before is on the disk. The channel has no bound, so that a handler which
is slower than the publishers builds up a backlog, and the feed works with a full prefetch. The clock stops when the
last message is settled; each message must have been handled exactly once.
"""

import asyncio
from functools import partial
from pathlib import Path

from benchmarks.disk import scratch
from benchmarks.durable_bus import url
from benchmarks.durable_load import PYTHON_SWITCH_SECONDS, QUEUE, Phase, Rates, from_many_tasks, switch_interval
from benchmarks.measure import Options, check_delivered, counting_async_handler, rounds_of
from unibus import MessageBus

CONCURRENCIES = (1, 8)
SECONDS_MAX = 60.0
"""More than any trial takes; when it is over, messages are lost."""


def rates(count: int, options: Options) -> dict[int, float]:
    """The best round for each concurrency of the handler."""
    trials = {concurrency: partial(trial, concurrency) for concurrency in CONCURRENCIES}
    rounds = rounds_of(trials, count, options, warm_up=False)
    return {concurrency: max(found) for concurrency, found in rounds.items()}


def trial(concurrency: int, count: int) -> float:
    with scratch() as folder, switch_interval(PYTHON_SWITCH_SECONDS):
        return asyncio.run(handled(folder, concurrency, count))


async def handled(folder: Path, concurrency: int, count: int) -> float:
    handler, received = counting_async_handler()
    async with MessageBus(url(folder / "bus.db")) as bus:
        bus.create_channel(QUEUE, max_queue_size=0)
        bus.subscribe(QUEUE, handler, group="group", concurrency=concurrency)
        phase = Phase(count)
        await from_many_tasks(partial(bus.publish, QUEUE), phase)
        await bus.drain(SECONDS_MAX)
        rate = phase.rate()
        check_delivered(received(), phase.done)
    return rate


def one_after_the_other(found: Rates) -> float:
    """A contender that has no handlers: the same messages sent by as many tasks, then received and settled."""
    return 1 / (1 / found.send_each + 1 / found.receive)
