"""Our side of the durable benchmarks: the bus through its public interface, on SQLite and in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from benchmarks.durable_load import BATCH, QUEUE, Phase, from_many_tasks, in_batches
from unibus import MessageBus

RECEIVE_SECONDS_MAX = 60.0
"""More than any message takes to come; when it is over, messages are lost."""

FILL_BATCH = 1_000


class Ours:
    """The bus as a user meets it."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus

    @classmethod
    @asynccontextmanager
    async def on_sqlite(cls, folder: Path) -> AsyncIterator["Ours"]:
        async with MessageBus(url(folder / "bus.db")) as bus:
            await bus.create_queue(QUEUE)
            yield cls(bus)

    @classmethod
    @asynccontextmanager
    async def in_memory(cls, folder: Path) -> AsyncIterator["Ours"]:
        async with MessageBus() as bus:
            await bus.create_queue(QUEUE)
            yield cls(bus)

    async def send_each(self, phase: Phase) -> None:
        await from_many_tasks(partial(self._bus.send, QUEUE), phase)

    async def send_batches(self, phase: Phase) -> None:
        for batch in phase.batches():
            await self._bus.send_many(QUEUE, batch)

    async def receive(self, phase: Phase) -> None:
        while phase.goes_on():
            messages = await self._bus.receive_batch(QUEUE, BATCH, timeout=RECEIVE_SECONDS_MAX)
            phase.received(len(messages))
            await self._bus.complete_many(messages)

    async def waiting(self) -> int:
        return await waiting(self._bus)


def url(path: Path) -> str:
    return f"sqlite:///{path}"


async def waiting(bus: MessageBus) -> int:
    """Messages in the queue that are not settled, locked ones included."""
    (queue,) = [entity for entity in await bus.entities() if entity.name == QUEUE]
    return queue.active + queue.locked


async def filled(path: Path, size: int) -> MessageBus:
    """A bus with that many messages waiting. They go to the kernel only, as no call waits for them to be durable."""
    bus = MessageBus(url(path))
    await bus.create_queue(QUEUE)
    for batch in in_batches(size, FILL_BATCH):
        await bus.send_many(QUEUE, batch, durability="D1")
    return bus
