"""Settling what a worker got from a MessageBackend, on a backend that may fail.

A call that fails is logged, counted and made again, each time after a longer pause, up to TRIES times. After that:

    acknowledge   the message was handled; the backend delivers it again when it likes
    requeue       the message stays with the backend, which must not lose what was got and not acknowledged
    dead letter   the message is requeued instead, and fails again later

So a worker goes on with the next message, and nothing is acknowledged that is not in another place by then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from unibus.bus.compat.backends import MessageBackend
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage

log = logging.getLogger("unibus")

TRIES: Final = 6
AGAIN_S: Final = 0.05
"""The first pause; each further one is twice as long, up to AGAIN_S_MAX."""
AGAIN_S_MAX: Final = 1.0


def is_cancelled() -> bool:
    """Whether the running task is being cancelled, so that a CancelledError is not the work of the code it called."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def ends_program(error: BaseException) -> bool:
    """Whether it must leave the worker: the program, the worker's task or its event loop ends."""
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    return isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))


class BackendCounts:
    """What a subscription counts, as the bus cannot: its messages are with the backend."""

    def __init__(self) -> None:
        self.errors = 0  # Deliveries that failed.
        self.backend_errors = 0  # Calls of the backend that failed.


class BackendSettling:
    """The calls of a worker that end a delivery."""

    def __init__(self, backend: MessageBackend) -> None:
        self._backend = backend

    async def acknowledge(self, view: BusMessage, counts: BackendCounts) -> bool:
        return await self._tried("acknowledge", view, lambda: self._backend.acknowledge(view), counts)

    async def requeue(self, view: BusMessage, counts: BackendCounts) -> bool:
        return await self._tried("requeue", view, lambda: self._backend.requeue(view), counts)

    async def dead_letter(self, view: BusMessage, letter: Message, counts: BackendCounts) -> bool:
        """Publish the dead letter; if that cannot be done, put the message back. False if neither could."""
        dead = BusMessage(letter)
        if await self._tried("publish a dead letter", view, lambda: self._backend.publish(dead), counts):
            return True
        return await self.requeue(view, counts)

    async def put_back(self, view: BusMessage, counts: BackendCounts) -> None:
        """Not handled, and not lost: the worker ends."""
        if await self.requeue(view, counts):
            await self.acknowledge(view, counts)

    async def _tried(
        self, what: str, view: BusMessage, call: Callable[[], Awaitable[None]], counts: BackendCounts
    ) -> bool:
        pause_s = AGAIN_S
        for left in range(TRIES - 1, -1, -1):
            try:
                await call()
                return True
            except BaseException as error:
                if ends_program(error):
                    raise
                counts.backend_errors += 1
                log.error("the backend cannot %s %r, %d tries left: %r", what, view.message, left, error)
            if left:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_S_MAX)
        return False
