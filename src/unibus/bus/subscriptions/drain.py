"""Drain: wait until the bus is idle, with no backlog, no message in-flight and no pending retry.

    slot idle ──on_idle──▶ watchers ──▶ the waiter wakes ──▶ looks at every group ──▶ idle: return True
                                            ▲                      │ not yet
                                            └──────────────────────┘

Register first, then look, then wait: a slot that becomes idle between the look and the wait is not missed. A closed bus
delivers nothing more, so its close ends every wait, with the state at that time as the result.
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
"""The shortest wait: long enough for a thread without work to end."""


class Deadline:
    """One timeout for several waits in a row: each gets what is left, at least LEAST_S."""

    def __init__(self, timeout_s: float | None) -> None:
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s

    def left_s(self) -> float | None:
        return None if self._end_s is None else max(LEAST_S, self._end_s - time.monotonic())


class Drain:
    """Waits for one bus. Messages that a channel keeps for its first subscriber do not count: no handler has them."""

    def __init__(self, registry: Registry, outcomes: BusDeliveryOutcomes, executors: HandlerExecutors) -> None:
        self._registry = registry
        self._outcomes = outcomes
        self._executors = executors
        self._is_over = False  # The bus has closed.

    def is_now(self) -> bool:
        """Whether the bus is idle now. For a call from inside a handler its own group does not count: it is busy."""
        # Otherwise a handler that calls drain() would wait for itself.
        consumer = INSIDE.get()
        mine = None if consumer is None else consumer.group
        return self._all(lambda group: group is mine or group.is_idle())

    def end(self) -> None:
        """The bus has closed: every wait checks once more and returns."""
        # Set before the watchers are called: a waiter that registers later sees the flag at its first look.
        self._is_over = True
        for watcher in self._outcomes.watchers:
            watcher()

    def is_resting(self) -> bool:
        """Whether nothing happens before the next timer: only retries are pending."""
        # Retries that wait for their time are left out: a virtual clock asks this to decide whether to move on to the
        # next timer.
        return self._all(lambda group: not group.queue.size and not group.running)

    def _all(self, fits: Callable[[Group], bool]) -> bool:
        admitted = self._registry.admitted()
        # Not atomic over all groups: while the last group is checked, its handler may publish to the first one. That
        # message was admitted meanwhile, so the count differs and the check fails.
        return all(fits(group) for group in self._registry.groups()) and self._registry.admitted() == admitted

    def wait(self, timeout_s: float | None, until: Callable[[], bool] | None = None) -> bool:
        """Block until the bus is idle, or until `until`, checked when a slot becomes idle. False at timeout."""
        # A condition of its own for each waiter: one that ends, or is interrupted, leaves nothing behind for others.
        changed = threading.Condition()
        reached = until or self.is_now

        def look_again() -> None:
            with changed:
                changed.notify_all()

        # Before the first look: what a closed loop holds would otherwise count as in-flight for ever.
        self._executors.recover()
        self._outcomes.watch(look_again)
        try:
            with changed:
                changed.wait_for(lambda: reached() or self._is_over, timeout_s)
            return reached()
        finally:
            self._outcomes.unwatch(look_again)

    async def wait_async(self, timeout_s: float | None, until: Callable[[], bool] | None = None) -> bool:
        """The same for a task: it awaits and does not block the event loop."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        reached = until or self.is_now

        def look_again() -> None:
            notify_loop(loop, changed.set)

        self._executors.recover()
        self._outcomes.watch(look_again)
        try:
            async with asyncio.timeout(timeout_s):
                # Clear after the wait and before the next look: a change during the look sets the event again and ends
                # the next wait. A cancelled waiter changes nothing but its own registration.
                while not reached() and not self._is_over:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            pass  # The state now is the result, even at the timeout.
        finally:
            self._outcomes.unwatch(look_again)
        return reached()
