"""Calls into an event loop from other threads, which know nothing of its end.

A loop that is closed drops the calls in its queue, and reports nothing. The slot must not be lost with the call, so a
call that was dropped gives it up, in the thread that closed the loop.

A loop may also be closed while it is called. What is only a notification for tasks of that loop is then dropped: an
error would hit the caller, in the middle of work that has nothing to do with that loop.

Left uncompiled on purpose: it needs `__del__`, which compiled classes do not have.
"""

import asyncio
from collections.abc import Callable

from unibus.bus.pubsub.group import Consumer


def notify_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Let the loop call this soon. Nothing happens if it is closed: none of its tasks waits any more."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return


class LoopCall:
    """What the loop calls: `start`, once; or `dropped` when it never will."""

    def __init__(
        self, consumer: Consumer, start: Callable[[Consumer], None], dropped: Callable[[Consumer], None]
    ) -> None:
        self._consumer: Consumer | None = consumer
        self._start = start
        self._dropped = dropped

    def __call__(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._start(consumer)

    def __del__(self) -> None:
        if self._consumer is not None:
            self._dropped(self._consumer)
