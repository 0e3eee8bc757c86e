"""The handle of one subscription."""

import asyncio
from collections.abc import Callable, Generator
from typing import Final

from unibus.bus.pubsub.group import Consumer
from unibus.core.topics.pattern import Pattern


class Subscription:
    """What `subscribe` returns. It may be awaited, which does no more than give it back.

    `cancel()` stops it: nothing more is handed to its handler. A message that an async handler was in the middle of
    goes back to its group; a sync handler is let finish. Awaiting the result of `cancel()` waits for the handlers' end.
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
        """Messages that wait for this subscription's group."""
        return len(self.consumer.group.queue)

    @property
    def dropped(self) -> int:
        """Messages that a lossy subscription was too slow for."""
        return int(self.consumer.group.dropped)

    def cancel(self) -> "CancelledHandlers":
        return self._cancel(self)

    def __await__(self) -> Generator[object, None, "Subscription"]:
        yield from ()
        return self

    def __repr__(self) -> str:
        state = "active" if self.active else "cancelled"
        return f"<Subscription {self.id} {self.group!r} on {self.channel!r}, {state}>"


class CancelledHandlers:
    """The result of `cancel()`: awaiting it waits until the cancelled handlers of this loop have ended."""

    def __init__(self, tasks: list["asyncio.Task[None]"]) -> None:
        self._tasks = tasks

    def __await__(self) -> Generator[object, None, None]:
        loop = asyncio.get_running_loop()
        here = [task for task in self._tasks if task.get_loop() is loop and task is not asyncio.current_task()]
        yield from asyncio.gather(*here, return_exceptions=True).__await__()
