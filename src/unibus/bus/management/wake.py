"""Waking those who wait for something new on an event loop, from any thread."""

import asyncio


class Wake:
    """Wakes all who wait at this moment, from any thread. For one event loop.

    A waiter looks first whether there is something new and waits after that, without an await in between.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """On the loop."""
        if not self._next.done():
            self._next.set_result(None)
        self._next = self._loop.create_future()

    def wake_soon(self) -> None:
        """From any thread. Nothing happens once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return

    def coming(self) -> "asyncio.Future[None]":
        """Done by the next wake-up. Shared: it is waited for by `asyncio.wait`, and never cancelled."""
        return self._next

    async def wait(self, timeout_s: float | None) -> bool:
        """False if nothing came in that time; None waits without end."""
        done, _ = await asyncio.wait([self._next], timeout=timeout_s)
        return bool(done)
