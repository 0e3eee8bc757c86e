"""The second design's seam: five verbs, one queue per topic. A bus can stand on anybody's implementation of it.

    publish ──▶ backend ──get──▶ worker ──▶ handler ──▶ acknowledge
                   ▲                          │ raised: requeue (then acknowledge), or dead letter
                   └──────────────────────────┘

Such a backend knows no groups: the subscriptions of one topic compete. Everything that the in-process bus does beyond
that (inline dispatch, filters, patterns, drop policies) is refused here, because the backend cannot promise it.
"""

import asyncio
from typing import Protocol, runtime_checkable

from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.core.flow.queue import PriorityQueue
from unibus.errors import BusClosed, StoreUnavailable


@runtime_checkable
class MessageBackend(Protocol):
    """What a backend has to do. A message that was got and neither acknowledged nor requeued must not be lost."""

    async def publish(self, message: BusMessage) -> None: ...

    async def get(self, topic: str) -> BusMessage:
        """The next message by (priority, order of publishing); waits for one."""
        ...

    async def requeue(self, message: BusMessage) -> None:
        """Put a message back. It keeps its priority, its metadata and its count of deliveries."""
        ...

    async def acknowledge(self, message: BusMessage) -> None:
        """Forget what was got: it was handled, or requeued, or published as a dead letter before this call."""
        ...

    async def close(self) -> None: ...


class InMemoryQueueBackend:
    """One strict priority queue per topic, in this process and on one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, PriorityQueue[Message]] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._sequences: dict[str, int] = {}
        self._closed = False

    async def publish(self, message: BusMessage) -> None:
        if self._closed:
            raise BusClosed("the backend is closed")
        topic = message.topic
        self._sequences[topic] = self._sequences.get(topic, 0) + 1
        message.message.sequence = self._sequences[topic]
        self._queue(topic).push(message.message)
        self._wake(topic)

    async def get(self, topic: str) -> BusMessage:
        while True:
            message = self._queue(topic).pop()
            if message is not None:
                return BusMessage(message)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(topic, []).append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._leave(topic, waiter)
                raise

    async def requeue(self, message: BusMessage) -> None:
        inner = message.message
        self._queue(message.topic).restore(inner, inner.priority, inner.sequence)
        self._wake(message.topic)

    async def acknowledge(self, message: BusMessage) -> None:
        """Nothing is left to do: what was got has left the queue."""

    async def close(self) -> None:
        self._closed = True

    def _queue(self, topic: str) -> PriorityQueue[Message]:
        return self._queues.setdefault(topic, PriorityQueue(0))

    def _leave(self, topic: str, waiter: "asyncio.Future[None]") -> None:
        """It was cancelled. If it had been woken, the message that it was woken for is for another one."""
        waiting = self._waiting.get(topic, [])
        if waiter in waiting:
            waiting.remove(waiter)
        elif self._queue(topic).size:
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        waiting = self._waiting.get(topic, [])
        while waiting:
            waiter = waiting.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return


class RedisStreamBackend:
    """Named by the second design; not in this version."""

    def __init__(self, *args: object, **settings: object) -> None:
        raise StoreUnavailable(
            "this version cannot keep messages in redis://", "use MessageBus(), which keeps them in this process only"
        )
