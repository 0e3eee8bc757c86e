"""Work in several steps, written once for programs with and without an event loop.

A step is an answer that has to be waited for. The work is a generator that gives each of them and is given its value,
or its error; whoever runs it knows how to wait.
"""

import asyncio
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
    """To the end, blocking this thread. Other threads run between two steps."""
    try:
        pending = next(steps)
        while True:
            try:
                if pending.done:
                    time.sleep(0)  # Long computations hold the interpreter for a whole switch interval otherwise.
                value = pending.wait()
            except BaseException as error:
                pending = steps.throw(error)
            else:
                pending = steps.send(value)
    except StopIteration as end:
        found: T = end.value
        return found


async def walk_async(steps: Steps[T]) -> T:
    """To the end, letting others run between two steps."""
    try:
        pending = next(steps)
        while True:
            try:
                if pending.done:
                    await asyncio.sleep(0)
                value = await pending
            except BaseException as error:
                pending = steps.throw(error)
            else:
                pending = steps.send(value)
    except StopIteration as end:
        found: T = end.value
        return found


class _Alarm:
    """Goes off once, whoever sets it off first."""

    def __init__(self) -> None:
        self.outcome = CommitResult(None)

    def ring(self) -> None:
        if not self.outcome.done:
            self.outcome.decide()


def pause(store: Store, timers: Timers, entity: str, delay_ns: int) -> Steps[None]:
    """Wait so long, by the clock of the bus. May end early: when the store is closed, nobody waits for time any more.

    Timers that were stopped never call. The entity is watched because a store that closes wakes whoever watches.
    """
    alarm = _Alarm()
    try:
        stop = store.watch(entity, alarm.ring)
    except EntityNotFound:
        return
    timers.after(delay_ns, alarm.ring)
    try:
        yield Pending(None, alarm.outcome)
    finally:
        stop()
