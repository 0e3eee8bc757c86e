"""Waiting until nothing is on its way: no message queued for a handler, none in a handler, none waiting for a retry."""

import asyncio
import threading

from unibus.bus.aftermath import BusAftermath
from unibus.bus.registry import Registry


class Quiet:
    """Messages that a created channel keeps for its first subscriber are at rest, and do not count."""

    def __init__(self, registry: Registry, aftermath: BusAftermath) -> None:
        self._registry = registry
        self._aftermath = aftermath

    def is_now(self) -> bool:
        return all(group.is_quiet() for group in self._registry.groups())

    def wait(self, timeout_s: float | None) -> bool:
        """Block until quiet; False at the time-out."""
        changed = threading.Condition()

        def look_again() -> None:
            with changed:
                changed.notify_all()

        self._aftermath.watch(look_again)
        try:
            with changed:
                return changed.wait_for(self.is_now, timeout_s)
        finally:
            self._aftermath.unwatch(look_again)

    async def wait_async(self, timeout_s: float | None) -> bool:
        """The same without blocking the loop."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def look_again() -> None:
            loop.call_soon_threadsafe(changed.set)

        self._aftermath.watch(look_again)
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_now():
                    await changed.wait()
                    changed.clear()
            return True
        except TimeoutError:
            return self.is_now()
        finally:
            self._aftermath.unwatch(look_again)
