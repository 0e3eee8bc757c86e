"""The handle of one subscription: what `subscribe` returns."""

import asyncio
from collections.abc import Callable, Generator
from typing import Final

from unibus.bus.pubsub.group import Consumer
from unibus.core.topics.pattern import Pattern
from unibus.display import described, quoted


class Subscription:
    """The result of `subscribe`. It may be awaited, which returns the same object at once.

    `cancel()` stops the delivery to its handler. An async handler that runs is cancelled, and its message is requeued
    in the group; a sync handler finishes. `await subscription.cancel()` waits until the cancelled handlers have ended.
    """

    def __init__(
        self, pattern: Pattern, consumer: Consumer, cancel: Callable[["Subscription"], "CancelledHandlers"]
    ) -> None:
        self.id: Final = int(consumer.id)
        self.pattern: Final = pattern
        self.channel: Final = str(pattern.text)
        self.consumer: Final = consumer
        self._cancel = cancel

    @property
    def group(self) -> str:
        return self.consumer.group.name

    @property
    def active(self) -> bool:
        return not self.consumer.cancelled

    @property
    def backlog(self) -> int:
        """Messages that wait in the queue of this subscription's group."""
        return len(self.consumer.group.queue)

    @property
    def dropped(self) -> int:
        """Messages that a lossy subscription has dropped because its queue was full."""
        return int(self.consumer.group.dropped)

    def cancel(self) -> "CancelledHandlers":
        """Stop the subscription. Await the result to wait for its handlers."""
        return self._cancel(self)

    def __await__(self) -> Generator[object, None, "Subscription"]:
        yield from ()
        return self

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        state = "active" if self.active else "cancelled"
        return f"{self.id} {quoted(self.group, 40)} on {quoted(self.channel, 40)}, {state}"


class CancelledHandlers:
    """The result of `cancel()`: await it to wait until the cancelled handlers on this event loop have ended."""

    def __init__(self, tasks: list["asyncio.Task[None]"]) -> None:
        self._tasks = tasks

    def __repr__(self) -> str:
        return described(self, lambda: f"{sum(not task.done() for task in self._tasks)} still running")

    def __await__(self) -> Generator[object, None, None]:
        # A task of another loop cannot be awaited here, and a handler that cancels its own subscription must not await
        # itself.
        loop = asyncio.get_running_loop()
        here = [task for task in self._tasks if task.get_loop() is loop and task is not asyncio.current_task()]
        # return_exceptions: how a cancelled handler ended is not an error of the caller.
        yield from asyncio.gather(*here, return_exceptions=True).__await__()
