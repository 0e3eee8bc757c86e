"""Batches without a network: `send_many` and `receive_batch` in process, on the same disk with the same promise.

What the HTTP endpoint adds to a message of a batch is measured against these. As many tasks call as there are
connections, and the messages have the same bodies and properties.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time

from benchmarks.disk import scratch
from benchmarks.durable_bus import url
from benchmarks.http_requests import BATCH, BODY, BROKER_PROPERTIES
from benchmarks.wrk import MICROSECONDS, Load, load_of
from unibus import MessageBus
from unibus.bus.queues.operations import RECEIVE_AND_DELETE

QUEUE = "orders"
FILL_BATCH = 1_000
PROPERTIES = {"subject": BROKER_PROPERTIES["Label"], "correlation_id": BROKER_PROPERTIES["CorrelationId"]}
MESSAGES_MAX = 100_000
"""Messages that can be received; a load ends with the last of them."""

Call = Callable[[], Awaitable[bool]]
"""One batch; False when there is none left."""


def send(tasks: int, seconds: int) -> Load:
    """A request is one `send_many`."""
    return asyncio.run(_load(_sending, tasks, seconds))


def receive(tasks: int, seconds: int) -> Load:
    """A request is one `receive_batch`, received and deleted."""
    return asyncio.run(_load(_receiving, tasks, seconds))


async def _load(prepared: Callable[[MessageBus], Awaitable[Call]], tasks: int, seconds: int) -> Load:
    with scratch() as folder:
        async with MessageBus(url(folder / "bus.db")) as bus:
            await bus.create_queue(QUEUE)
            return await _from_tasks(await prepared(bus), tasks, seconds)


async def _from_tasks(call: Call, tasks: int, seconds: int) -> Load:
    taken: list[float] = []
    start, used = perf_counter(), process_time()

    async def work() -> None:
        began = perf_counter()
        while began - start < seconds and await call():
            ended = perf_counter()
            taken.append((ended - began) * MICROSECONDS)
            began = ended

    await asyncio.gather(*[work() for _ in range(tasks)])
    return load_of(taken, perf_counter() - start, process_time() - used)


async def _sending(bus: MessageBus) -> Call:
    batch = [BODY.encode()] * BATCH

    async def send() -> bool:
        await bus.send_many(QUEUE, batch, **PROPERTIES)
        return True

    return send


async def _receiving(bus: MessageBus) -> Call:
    for _ in range(0, MESSAGES_MAX, FILL_BATCH):
        await bus.send_many(QUEUE, [BODY.encode()] * FILL_BATCH, durability="D1", **PROPERTIES)

    async def receive() -> bool:
        return len(await bus.receive_batch(QUEUE, BATCH, timeout=0, mode=RECEIVE_AND_DELETE)) == BATCH

    return receive
