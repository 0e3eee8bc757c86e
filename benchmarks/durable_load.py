"""The work that the durable benchmarks ask of us, of the peers and of the limit: the same for all, driven by one hand.

A contender does three things, and the clock, the counting and the checking are done here. A phase ends when its
messages are used up or its time is: peers that sync for every message differ from those that do not by a factor of
a hundred, and more beside a busy thread, so that no single number of messages suits all. The rate counts what was
done. Afterwards everything that was sent has either been received or is still there; otherwise the trial fails.
"""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Protocol

from benchmarks.measure import Undelivered, check_delivered

BODY = b"x" * 200
TASKS = 256
BATCH = 100
LOOK_EVERY_MAX = 64
QUEUE = "orders"
PHASE_SECONDS_MAX = 0.4
PYTHON_SWITCH_SECONDS = 0.005
"""What Python starts with: so long may a thread compute before another one gets the interpreter."""


class Phase:
    """One kind of operation for a while: gives out the messages, counts them, takes the time."""

    def __init__(self, count: int, seconds_max: float = PHASE_SECONDS_MAX) -> None:
        self.done = 0
        self._count = count
        self._start = perf_counter()
        self._deadline = self._start + seconds_max

    def goes_on(self) -> bool:
        # Something is always done, so that there is a rate even where one operation outlasts the phase.
        return self.done < self._count and (self.done == 0 or perf_counter() < self._deadline)

    def bodies(self) -> Iterator[bytes]:
        """One after the other; tasks may share it. The clock is read now and then only, as it costs time itself."""
        step = 1
        while self.goes_on():
            for _ in range(min(step, self._count - self.done)):
                self.done += 1
                yield BODY
            step = min(2 * step, LOOK_EVERY_MAX)

    def batches(self) -> Iterator[list[bytes]]:
        while self.goes_on():
            size = min(BATCH, self._count - self.done)
            self.done += size
            yield list(repeat(BODY, size))

    def received(self, count: int) -> None:
        """Nothing to receive while there must be something is an error: the phase would never end."""
        if not count:
            raise Undelivered(f"{self._count} messages are there, but after {self.done} none came")
        self.done += count

    def rate(self) -> float:
        """Messages a second, from the making of this phase until now."""
        return self.done / (perf_counter() - self._start)


class Contender(Protocol):
    """A queue that survives a crash. What each method has returned from is safe, as far as the contender promises."""

    async def send_each(self, phase: Phase) -> None:
        """One message at a time, from as many callers at once as serve the contender best, TASKS at most."""

    async def send_batches(self, phase: Phase) -> None: ...

    async def receive(self, phase: Phase) -> None:
        """Takes up to BATCH messages and settles them, again and again."""

    async def waiting(self) -> int:
        """The number of messages that are not settled."""


Opened = Callable[[Path], AbstractAsyncContextManager[Contender]]
"""Opens a contender with its files in a folder that is new and empty."""


@dataclass(frozen=True)
class Rates:
    """Messages a second of each phase."""

    send_each: float
    send_batches: float
    receive: float


async def measured(opened: Opened, folder: Path, count: int, beside: AbstractContextManager[object]) -> Rates:
    """All three phases on one fresh queue. Opening and closing are not timed, and `beside` is not there then."""
    with switch_interval(PYTHON_SWITCH_SECONDS):
        async with opened(folder) as contender:
            with beside:
                each, each_rate = await _phase(contender.send_each, count)
                batches, batches_rate = await _phase(contender.send_batches, count)
                sent = each.done + batches.done
                received, received_rate = await _phase(contender.receive, sent)
            check_delivered(received.done + await contender.waiting(), sent)
    return Rates(each_rate, batches_rate, received_rate)


async def _phase(operation: Callable[[Phase], Awaitable[None]], count: int) -> tuple[Phase, float]:
    phase = Phase(count)
    await operation(phase)
    return phase, phase.rate()


async def from_many_tasks(send: Callable[[bytes], Awaitable[object]], phase: Phase) -> None:
    """TASKS tasks, each of which sends its next message when the one before is safe."""
    bodies = phase.bodies()

    async def one_task() -> None:
        for body in bodies:
            await send(body)

    await asyncio.gather(*(one_task() for _ in range(TASKS)))


@contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """Whatever a contender sets for the whole process must not help or hurt the one that comes after it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def busy_thread() -> Iterator[None]:
    """Python code that never waits, beside the measured one: every switch back costs a contender milliseconds."""
    stop = False

    def spin() -> None:
        while not stop:
            pass

    thread = threading.Thread(target=spin, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop = True
        thread.join()


def in_batches(count: int, size: int) -> Iterator[list[bytes]]:
    """`count` bodies in lists of `size`, the last one shorter."""
    for done in range(0, count, size):
        yield list(repeat(BODY, min(size, count - done)))
