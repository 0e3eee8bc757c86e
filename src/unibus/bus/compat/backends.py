"""MessageBackend: five methods, one queue per topic. A bus can use any implementation instead of its own queues.

    publish ──▶ backend ──get──▶ worker ──▶ handler ──▶ acknowledge
                   ▲                          │ raised: requeue (then acknowledge), or dead-letter
                   └──────────────────────────┘

A backend has no consumer groups: the subscriptions of one topic compete. Features of the in-process bus that a backend
cannot guarantee (inline dispatch, filters, patterns, drop policies) raise an error.
"""

import asyncio
from typing import Protocol, runtime_checkable

from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.core.flow.queue import PriorityQueue
from unibus.counting import counted
from unibus.display import described
from unibus.errors import BusClosed, StoreUnavailable


@runtime_checkable
class MessageBackend(Protocol):
    """The interface of a backend. It must not lose a message that `get` returned before it is acknowledged."""

    async def publish(self, message: BusMessage) -> None: ...

    async def get(self, topic: str) -> BusMessage:
        """The next message by (priority, order of publishing); waits until there is one."""
        ...

    async def requeue(self, message: BusMessage) -> None:
        """Make a message available again. It keeps its priority, its metadata and its delivery count."""
        ...

    async def acknowledge(self, message: BusMessage) -> None:
        """Remove an in-flight message: it was handled, requeued or dead-lettered before this call."""
        ...

    async def close(self) -> None: ...


class InMemoryQueueBackend:
    """One strict priority queue per topic, in this process and on one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, PriorityQueue[Message]] = {}
        # The receivers that wait, the longest first. No lock: everything here runs on one event loop.
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._sequences: dict[str, int] = {}
        self._closed = False

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        return f"{counted(len(self._queues), 'topic')}, {'closed' if self._closed else 'open'}"

    async def publish(self, message: BusMessage) -> None:
        if self._closed:
            raise BusClosed("the backend is closed")
        topic = message.topic
        self._sequences[topic] = self._sequences.get(topic, 0) + 1
        # A sequence for each topic and not a time: it orders messages of one priority, and `requeue` finds the old
        # position by it.
        message.message.sequence = self._sequences[topic]
        self._queue(topic).push(message.message)
        self._wake(topic)

    async def get(self, topic: str) -> BusMessage:
        while True:
            message = self._queue(topic).pop()
            if message is not None:
                return BusMessage(message)
            # No await between the pop and the append below: a publish cannot fall in between and wake no waiter.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(topic, []).append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._remove_waiter(topic, waiter)
                raise

    async def requeue(self, message: BusMessage) -> None:
        inner = message.message
        # By its old sequence, so that it comes before later messages of the same priority.
        self._queue(message.topic).restore(inner, inner.priority, inner.sequence)
        self._wake(message.topic)

    async def acknowledge(self, message: BusMessage) -> None:
        """Nothing to do: `get` has removed the message from the queue already."""

    async def close(self) -> None:
        self._closed = True

    def _queue(self, topic: str) -> PriorityQueue[Message]:
        return self._queues.setdefault(topic, PriorityQueue(0))

    def _remove_waiter(self, topic: str, waiter: "asyncio.Future[None]") -> None:
        """A `get` was cancelled. If it was already woken for a message, wake another waiter for that message."""
        # A wake-up that is lost would leave its message in the queue until the next publish, although another receiver
        # waits.
        waiting = self._waiting.get(topic, [])
        if waiter in waiting:
            waiting.remove(waiter)
        elif self._queue(topic).size:
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        waiting = self._waiting.get(topic, [])
        while waiting:
            # A cancelled receiver may still be in the list: its future is done, and the wake-up goes to the next one.
            waiter = waiting.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return


class RedisStreamBackend:
    """A reserved name: this version has no backend for Redis, and never replaces one by memory silently."""

    def __init__(self, *args: object, **settings: object) -> None:
        raise StoreUnavailable(
            "this version has no backend for Redis", "use MessageBus(), which keeps messages in this process only"
        )
