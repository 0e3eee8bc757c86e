"""Work in several steps, written once for programs with and without an event loop.

The work is a generator that yields each `Pending` it has to wait for, and receives its value or its error. The runner
decides how to wait: `walk` blocks the thread, `walk_async` awaits.
"""

import time
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from unibus.clock import Timers
from unibus.errors import EntityNotFound
from unibus.stores.seam.pending import CommitResult, Pending
from unibus.stores.seam.store import Store

T = TypeVar("T")
Steps: TypeAlias = Generator[Pending[Any], Any, T]


def walk(steps: Steps[T]) -> T:
    """Run to the end, blocking this thread. Other threads run between two steps."""
    try:
        pending = next(steps)
        while True:
            try:
                if pending.done:
                    time.sleep(0)  # Yield the GIL: a long computation keeps it for a whole switch interval otherwise.
                value = pending.wait()
            except BaseException as error:
                # Into the generator, also Ctrl-C: its `finally` and `with` blocks run, and it may handle an error of
                # the store.
                pending = steps.throw(error)
            else:
                pending = steps.send(value)
    except StopIteration as end:
        found: T = end.value
        return found


async def walk_async(steps: Steps[T]) -> T:
    """Run to the end. Other tasks run between two steps."""
    try:
        pending = next(steps)
        while True:
            try:
                # A long scan yields results that are ready. Without this the loop would run nothing else until the scan
                # ends.
                if pending.done:
                    import asyncio  # Here: a program that only blocks has not loaded it, and `walk` does not need it.

                    await asyncio.sleep(0)
                value = await pending
            except BaseException as error:
                # A cancellation is thrown into the work at its wait, hence between two batches or while one is written.
                # A batch that was applied is written in any case: the store does not know of this task.
                pending = steps.throw(error)
            else:
                pending = steps.send(value)
    except StopIteration as end:
        found: T = end.value
        return found


class _WakeUp:
    """Resolves once, by the timer or by the store, whichever is first."""

    def __init__(self) -> None:
        self.outcome = CommitResult(None)

    def resolve(self) -> None:
        if not self.outcome.done:
            self.outcome.decide()


def pause(store: Store, timers: Timers, entity: str, delay_ns: int) -> Steps[None]:
    """Wait for a time by the clock of the bus. It may end early: callers check their condition again.

    Closing a bus stops its timers, which then never run; but a store that closes wakes its watchers. So the entity is
    watched as well, and a pause never outlasts the store.
    """
    wake_up = _WakeUp()
    try:
        stop = store.watch(entity, wake_up.resolve)
    except EntityNotFound:
        return
    timers.after(delay_ns, wake_up.resolve)
    try:
        yield Pending(None, wake_up.outcome)
    finally:
        stop()
