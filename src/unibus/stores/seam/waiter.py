# mypyc: compiled
"""A task that waits for an answer, in the shape that asyncio's tasks ask of a future.

A real Future hands its task to the loop by itself, one call for each, which costs more than the rest of a send. Here
hundreds of tasks wait for one write, so they are continued one after the other inside of a single call of the loop.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import final


@final
class Waiter:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = True  # By this a task knows a future; it sets it back when it waits.
        self._loop = loop
        self._wake: Callable[[Waiter], object] | None = None
        self._context: contextvars.Context | None = None
        self._cancelled = False
        self._why: object = None

    # What a task asks for

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(
        self, callback: Callable[["Waiter"], object], *, context: contextvars.Context | None = None
    ) -> None:
        self._wake = callback
        self._context = context

    def result(self) -> None:
        if self._cancelled:
            raise asyncio.CancelledError() if self._why is None else asyncio.CancelledError(self._why)

    def cancel(self, msg: object = None) -> bool:
        if self._wake is None:
            return False  # It goes on already.
        self._cancelled = True
        self._why = msg
        self._loop.call_soon(self.go_on)
        return True

    # What a store does

    def go_on(self) -> None:
        """Continue the task, here and now. On the loop, outside of any task; the second time nothing happens."""
        wake = self._wake
        context = self._context
        if wake is not None:
            self._wake = None
            if context is None:
                wake(self)
            else:
                context.run(wake, self)
