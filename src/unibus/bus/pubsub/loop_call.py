"""Calls into an event loop from other threads, safe against a loop that is closed meanwhile.

A loop that is closed drops the calls in its queue without any report. A claimed slot must not be lost with such a
call, so the call gives the slot up in its finalizer, which runs in the thread that closed the loop.

A loop may also be closed between a check and a call. A mere notification for tasks of that loop is then ignored: an
error would hit the caller, whose work has nothing to do with that loop.

Not compiled on purpose: it needs `__del__`, which compiled classes do not have.
"""

import asyncio
from collections.abc import Callable

from unibus.bus.pubsub.group import Consumer


def notify_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Let the loop call `call` soon. Without effect if the loop is closed: none of its tasks waits any more."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return


class LoopCall:
    """The callback of the loop: calls `start` once, or `dropped` when the loop is closed before that."""

    def __init__(
        self, consumer: Consumer, start: Callable[[Consumer], None], dropped: Callable[[Consumer], None]
    ) -> None:
        self._consumer: Consumer | None = consumer
        self._start = start
        self._dropped = dropped

    def __call__(self) -> None:
        # Taken out before the call: from now on the Slot owns the claimed slot, and the finalizer must not give it up
        # again.
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._start(consumer)

    def __del__(self) -> None:
        if self._consumer is not None:
            self._dropped(self._consumer)
