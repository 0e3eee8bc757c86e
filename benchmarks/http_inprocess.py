"""Batches without a network: `send_many` and `receive_batch` in process, on the same disk with the same promise.

What the HTTP endpoint adds to a message of a batch is told against these. As many tasks call as there are connections.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks.disk import scratch
from benchmarks.durable_bus import url
from benchmarks.http_operations import BATCHED_MOST
from benchmarks.http_requests import BATCH, BODY
from unibus import MessageBus
from unibus.bus.queues import RECEIVE_AND_DELETE

QUEUE = "orders"
FILL_BATCH = 1_000
Call = Callable[[], Awaitable[bool]]
"""One batch; False when there is nothing left to do."""


def send_rate(tasks: int, seconds: int) -> float:
    """Messages a second by `send_many`."""
    return asyncio.run(_rate(_sending, tasks, seconds))


def receive_rate(tasks: int, seconds: int) -> float:
    """Messages a second by `receive_batch`, received and deleted."""
    return asyncio.run(_rate(_receiving, tasks, seconds))


async def _rate(prepared: Callable[[MessageBus], Awaitable[Call]], tasks: int, seconds: int) -> float:
    with scratch() as folder:
        async with MessageBus(url(folder / "bus.db")) as bus:
            await bus.create_queue(QUEUE)
            call = await prepared(bus)
            return await _from_tasks(call, tasks, seconds)


async def _from_tasks(call: Call, tasks: int, seconds: int) -> float:
    done = 0
    start = perf_counter()

    async def work() -> None:
        nonlocal done
        while perf_counter() - start < seconds and await call():
            done += BATCH

    await asyncio.gather(*[work() for _ in range(tasks)])
    return done / (perf_counter() - start)


async def _sending(bus: MessageBus) -> Call:
    batch = [BODY.encode()] * BATCH

    async def send() -> bool:
        await bus.send_many(QUEUE, batch)
        return True

    return send


async def _receiving(bus: MessageBus) -> Call:
    for _ in range(0, BATCHED_MOST, FILL_BATCH):
        await bus.send_many(QUEUE, [BODY.encode()] * FILL_BATCH, durability="D1")

    async def receive() -> bool:
        return bool(await bus.receive_batch(QUEUE, BATCH, timeout=0, mode=RECEIVE_AND_DELETE))

    return receive
