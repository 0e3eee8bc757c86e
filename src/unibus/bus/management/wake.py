"""Wakes tasks that wait for a change, from any thread."""

import asyncio


class Wake:
    """Wakes all tasks that wait at this moment, from any thread. For one event loop.

    To miss no change, a task first checks its condition and then waits, without an await in between.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """Wake all waiters; called on the loop."""
        # Done if a waiter has cancelled it, which `coming` asks callers not to do.
        if not self._next.done():
            self._next.set_result(None)
        # A new future at once: a task that begins to wait after this waits for the next wake-up.
        self._next = self._loop.create_future()

    def wake_soon(self) -> None:
        """Wake all waiters, from any thread. Does nothing once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            # Closed: none of its tasks waits any more.
            return

    def coming(self) -> "asyncio.Future[None]":
        """A future that the next wake-up resolves. It is shared: wait with `asyncio.wait`, which does not cancel it."""
        return self._next

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for the next wake-up. False on a timeout; None waits without limit."""
        done, _ = await asyncio.wait([self._next], timeout=timeout_s)
        return bool(done)
