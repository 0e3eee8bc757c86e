"""Settles messages of a MessageBackend whose calls may fail.

A call that fails is logged, counted and repeated with exponential backoff, up to TRIES times. After that:

    acknowledge   the message was handled; the backend may redeliver it (at-least-once)
    requeue       the message stays unacknowledged with the backend, which must not lose it
    dead-letter   the message is requeued instead, and fails again later

So the worker always continues with the next message, and a message is acknowledged only after it was handled or is in
another queue.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from unibus.bus.compat.backends import MessageBackend
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

TRIES: Final = 6
AGAIN_S: Final = 0.05
"""The first pause; each further one is twice as long, up to AGAIN_S_MAX seconds."""
AGAIN_S_MAX: Final = 1.0


def is_cancelled() -> bool:
    """Whether the running task is being cancelled. If not, a CancelledError comes from the code that it called."""
    task = asyncio.current_task()
    # A backend or a handler may raise CancelledError of its own, of a task that it has cancelled. That must not end the
    # worker.
    return task is not None and task.cancelling() > 0


def ends_program(error: BaseException) -> bool:
    """Whether the error must end the worker: the program, the worker's task or its event loop ends."""
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    # Everything else is a failure of one call. GeneratorExit: the loop is closed, and the worker's coroutine with it.
    return isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))


class BackendCounts:
    """The counters of one subscription. The metrics of the bus do not cover messages of a backend."""

    def __init__(self) -> None:
        self.errors = 0  # Deliveries that failed.
        self.backend_errors = 0  # Calls to the backend that failed.


class BackendSettling:
    """The calls to the backend that end a delivery. Each gives whether it succeeded in the end."""

    def __init__(self, backend: MessageBackend) -> None:
        self._backend = backend

    async def acknowledge(self, view: BusMessage, counts: BackendCounts) -> bool:
        return await self._retry("acknowledge", view, lambda: self._backend.acknowledge(view), counts)

    async def requeue(self, view: BusMessage, counts: BackendCounts) -> bool:
        return await self._retry("requeue", view, lambda: self._backend.requeue(view), counts)

    async def dead_letter(self, view: BusMessage, copy: Message, counts: BackendCounts) -> bool:
        """Publish the copy to the dead-letter topic; if that fails, requeue the message. False if both failed."""
        # Published first, acknowledged by the worker afterwards: a crash in between leaves two copies and loses none.
        dead_message = BusMessage(copy)
        if await self._retry("dead-letter", view, lambda: self._backend.publish(dead_message), counts):
            return True
        return await self.requeue(view, counts)

    async def put_back(self, view: BusMessage, counts: BackendCounts) -> None:
        """Requeue a message that was not handled, because the worker ends. Acknowledge it only once it is requeued."""
        if await self.requeue(view, counts):
            await self.acknowledge(view, counts)

    async def _retry(
        self, what: str, view: BusMessage, call: Callable[[], Awaitable[None]], counts: BackendCounts
    ) -> bool:
        pause_s = AGAIN_S
        for left in range(TRIES - 1, -1, -1):
            try:
                await call()
                return True
            # Not only Exception: the library of a backend may raise classes of its own, and the worker has to survive
            # all of them.
            except BaseException as error:
                if ends_program(error):
                    raise
                counts.backend_errors += 1
                log.error("the backend cannot %s %r, %d tries left: %r", what, view.message, left, error)
            if left:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_S_MAX)
        return False
