"""Waiting until nothing is on its way: no message queued for a handler, none in a handler, none waiting for a retry.

A bus that has closed delivers nothing more, so a wait ends there too, with what is true then.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from unibus.bus.execution.executors import HandlerExecutors
from unibus.bus.execution.outcomes import BusDeliveryOutcomes
from unibus.bus.pubsub.group import INSIDE, Group
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.pubsub.registry import Registry

LEAST_S: Final = 0.05
"""Long enough for a thread that has nothing more to do to end."""


class Deadline:
    """One time-out for several waits, each of which gets what the others left. A little is always left."""

    def __init__(self, timeout_s: float | None) -> None:
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s

    def left_s(self) -> float | None:
        return None if self._end_s is None else max(LEAST_S, self._end_s - time.monotonic())


class Drain:
    """Messages that a created channel keeps for its first subscriber are at rest, and do not count."""

    def __init__(self, registry: Registry, outcomes: BusDeliveryOutcomes, places: HandlerExecutors) -> None:
        self._registry = registry
        self._outcomes = outcomes
        self._places = places
        self._is_over = False  # The bus has closed.

    def is_now(self) -> bool:
        """A handler that asks is not quiet itself, so its own group is left out of its answer."""
        consumer = INSIDE.get()
        mine = None if consumer is None else consumer.group
        return self._all(lambda group: group is mine or group.is_idle())

    def end(self) -> None:
        """The bus has closed: let everybody who waits look once more, and go."""
        self._is_over = True
        for watcher in self._outcomes.watchers:
            watcher()

    def is_resting(self) -> bool:
        """Whether nothing happens until a timer fires: retries may wait, but nothing else."""
        return self._all(lambda group: not group.queue.size and not group.running)

    def _all(self, fits: Callable[[Group], bool]) -> bool:
        admitted = self._registry.admitted()
        # A group that was looked at first may have got something from one that was looked at last.
        return all(fits(group) for group in self._registry.groups()) and self._registry.admitted() == admitted

    def wait(self, timeout_s: float | None, until: Callable[[], bool] | None = None) -> bool:
        """Block until quiet (or until something else that changes when a slot rests); False at the time-out."""
        changed = threading.Condition()
        reached = until or self.is_now

        def look_again() -> None:
            with changed:
                changed.notify_all()

        self._places.recover()
        self._outcomes.watch(look_again)
        try:
            with changed:
                changed.wait_for(lambda: reached() or self._is_over, timeout_s)
            return reached()
        finally:
            self._outcomes.unwatch(look_again)

    async def wait_async(self, timeout_s: float | None, until: Callable[[], bool] | None = None) -> bool:
        """The same without blocking the loop."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        reached = until or self.is_now

        def look_again() -> None:
            notify_loop(loop, changed.set)

        self._places.recover()
        self._outcomes.watch(look_again)
        try:
            async with asyncio.timeout(timeout_s):
                while not reached() and not self._is_over:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            pass  # What counts is how it is now.
        finally:
            self._outcomes.unwatch(look_again)
        return reached()
