"""A clock that only a test moves, so that a test of a minute takes no time and always has the same result.

    advance(1.0)   wait for the handlers ─▶ run the first timer, at exactly its time ─▶ wait for the handlers ─▶ …

Between two timers the clock does not move until the handlers are idle. So a handler that fails reads the time at which
it was called, and its next retry is exactly one delay later.
"""

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.bus.message_ids import new_id_generator
from unibus.bus.pubsub.backpressure import on_a_loop
from unibus.clock import Clock, Timers
from unibus.core.envelope.stamp import IdGenerator, default_id_generator, set_default_id_generator
from unibus.errors import LoopMismatch, UsageError

START: Final = datetime(2000, 1, 1, tzinfo=UTC)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TIMEOUT_S: Final = 5.0
"""Of real time: much longer than the handlers of a test take, and short enough to report soon why it hangs."""

NAP_S: Final = 0.0002
"""Handlers may run in any thread and on any loop, so waiting for them is polling. Only while a handler runs."""

EAGER_LOOKS: Final = 100
"""How often an event loop runs before the first sleep: enough for handlers that wait for nothing."""


class VirtualClock(Clock):
    """`MessageBus(clock=VirtualClock())`: time stamps, ttl, rate limits, windows and retries follow this clock.

    Several buses may share one. Time-outs of blocking calls (`drain`, `request`, `close`) stay in real time, so that
    they end a test that hangs. As a context manager, it also sets the time of messages created by `Message.new`.
    """

    def __init__(self, start: datetime = START) -> None:
        super().__init__(self._read_wall_ns, self._read_monotonic_ns)
        self._elapsed_ns = 0
        self._wall_offset_ns = wall_ns_of(start)
        self._agenda = Agenda()
        self._lent: list[IdGenerator] = []

    # Reading

    @property
    def elapsed(self) -> float:
        """The seconds by which this clock was advanced; `set_wall` does not count."""
        return self._elapsed_ns / 1e9

    def now(self) -> datetime:
        """The wall time, in UTC, to the microsecond."""
        return EPOCH + timedelta(microseconds=self._read_wall_ns() // 1_000)

    def _read_wall_ns(self) -> int:
        return self._wall_offset_ns + self._elapsed_ns

    def _read_monotonic_ns(self) -> int:
        return self._elapsed_ns

    # Moving

    def advance(self, seconds: float, *, settle: bool = True, timeout: float | None = TIMEOUT_S) -> None:
        """Move the wall and the monotonic time, and run the timers on the way, in order, each at its time.

        Waits for the handlers of every bus on this clock before the first move and after each timer; TimeoutError if
        that takes more than `timeout` seconds of real time in total. `settle=False` does not wait. On the thread of an
        event loop waiting would block its handlers: LoopMismatch.
        """
        self._walk(self._steps(self._elapsed_ns + seconds_ns(seconds)), settle, timeout)

    async def advance_async(self, seconds: float, *, settle: bool = True, timeout: float | None = TIMEOUT_S) -> None:
        """`advance` on an event loop, whose handlers run meanwhile."""
        await self._walk_async(self._steps(self._elapsed_ns + seconds_ns(seconds)), settle, timeout)

    def run_timers(self, timers: "VirtualTimers | None" = None, *, timeout: float | None = TIMEOUT_S) -> None:
        """Advance from timer to timer until none is left (of one bus, or of all), including new ones."""
        self._walk(self._runs(timers), True, timeout)

    async def run_timers_async(
        self, timers: "VirtualTimers | None" = None, *, timeout: float | None = TIMEOUT_S
    ) -> None:
        """`run_timers` on an event loop."""
        await self._walk_async(self._runs(timers), True, timeout)

    def set_wall(self, when: datetime) -> None:
        """Set the wall clock, forward or back, as an administrator does. No timer runs: no time has passed."""
        self._wall_offset_ns = wall_ns_of(when) - self._elapsed_ns

    def _steps(self, until_ns: int) -> Iterator[None]:
        """Move the time and run timers. Yields where the handlers have to become idle first."""
        yield
        while (call := self._agenda.take(until_ns)) is not None:
            self._move(call.due_ns)
            call.action()
            yield
        self._move(until_ns)

    def _runs(self, timers: "VirtualTimers | None") -> Iterator[None]:
        yield
        while (due_ns := self._agenda.next_ns(timers)) is not None:
            yield from self._steps(due_ns)

    def _move(self, to_ns: int) -> None:
        self._elapsed_ns = max(self._elapsed_ns, to_ns)

    # Waiting

    def _walk(self, steps: Iterator[None], settle: bool, timeout_s: float | None) -> None:
        if settle and on_a_loop():
            raise LoopMismatch(
                "waiting for handlers here would block the event loop that they may need",
                "await advance_async or run_timers_async; or advance with settle=False",
            )
        deadline = deadline_after(timeout_s)
        for _ in steps:
            while settle and not self._is_resting(deadline):
                time.sleep(NAP_S)

    async def _walk_async(self, steps: Iterator[None], settle: bool, timeout_s: float | None) -> None:
        deadline = deadline_after(timeout_s)
        for _ in steps:
            looks = 0
            while settle and not self._is_resting(deadline):
                looks += 1
                await asyncio.sleep(0 if looks < EAGER_LOOKS else NAP_S)

    def _is_resting(self, deadline: float) -> bool:
        # Twice: a handler of the last bus may have published to the first one after that was checked.
        if all(timers.is_resting() for timers in self._agenda.owners() * 2):
            return True
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"handlers still run after the time-out (of real time); the virtual clock is at "
                f"{self.elapsed} s (let the handlers return, or advance with settle=False)"
            )
        return False

    def timers(self, is_resting: Callable[[], bool]) -> "VirtualTimers":
        return VirtualTimers(self._agenda, self._read_monotonic_ns, is_resting)

    # The time of messages that are created outside of a bus

    def __enter__(self) -> "VirtualClock":
        self._lent.append(default_id_generator())
        set_default_id_generator(new_id_generator(self))
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        set_default_id_generator(self._lent.pop())


class VirtualTimers(Timers):
    """The timers of one bus on a virtual clock. They run in the thread that moves the clock."""

    def __init__(self, agenda: "Agenda", now_ns: Callable[[], int], is_resting: Callable[[], bool]) -> None:
        self._agenda = agenda
        self._now_ns = now_ns
        self.is_resting = is_resting
        agenda.open(self)

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self._agenda.add(self, self._now_ns() + delay_ns, action)

    def stop(self) -> None:
        self._agenda.close(self)


@dataclass(order=True)
class Call:
    """Calls of the same time run in the order in which they were added."""

    due_ns: int
    number: int
    action: Callable[[], None] = field(compare=False)
    owner: VirtualTimers = field(compare=False)


class Agenda:
    """The scheduled calls of all buses. Handlers add calls from their threads while the test takes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._count = 0
        self._owners: list[VirtualTimers] = []

    def open(self, owner: VirtualTimers) -> None:
        with self._lock:
            self._owners.append(owner)

    def close(self, owner: VirtualTimers) -> None:
        """Remove the owner and its calls; calls that it adds later are ignored."""
        with self._lock:
            self._owners = [other for other in self._owners if other is not owner]
            self._calls = [call for call in self._calls if call.owner is not owner]
            heapq.heapify(self._calls)

    def owners(self) -> list[VirtualTimers]:
        with self._lock:
            return list(self._owners)

    def add(self, owner: VirtualTimers, due_ns: int, action: Callable[[], None]) -> None:
        with self._lock:
            if owner in self._owners:
                self._count += 1
                heapq.heappush(self._calls, Call(due_ns, self._count, action, owner))

    def next_ns(self, owner: VirtualTimers | None) -> int | None:
        """The time of the next call, of one owner or of all; None if there is none."""
        with self._lock:
            return min((call.due_ns for call in self._calls if owner in (None, call.owner)), default=None)

    def take(self, until_ns: int) -> Call | None:
        """Remove and return the first call up to that time."""
        with self._lock:
            return heapq.heappop(self._calls) if self._calls and self._calls[0].due_ns <= until_ns else None


def deadline_after(timeout_s: float | None) -> float:
    return float("inf") if timeout_s is None else time.monotonic() + timeout_s


def seconds_ns(seconds: float) -> int:
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"a clock cannot advance by {seconds!r} s", "time only moves forward; set_wall jumps")
    return round(seconds * 1e9)


def wall_ns_of(when: datetime) -> int:
    if when.tzinfo is None:
        raise UsageError(f"{when!r} has no time zone", "datetime(..., tzinfo=UTC)")
    # In whole microseconds: a float cannot hold today's time in nanoseconds.
    return (when - EPOCH) // timedelta(microseconds=1) * 1_000
