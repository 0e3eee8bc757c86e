"""What the tests of the bus watch it with: time by hand, handlers that can be waited for, threads that must end.

Nothing here sleeps. GUARD_S only ends a test that has gone wrong.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from unibus.clock import Clock
from unibus.core.envelope.message import Message

GUARD_S = 10.0
SECOND = 1_000_000_000


class HandClock:
    """Wall and monotonic time that only the test moves."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000 * SECOND
        self.monotonic = 0

    def clock(self, timers: "HandTimers | None" = None) -> Clock:
        return TimersClock(timers, wall_ns=lambda: self.wall, monotonic_ns=lambda: self.monotonic)

    def advance(self, seconds: float) -> None:
        self.wall += int(seconds * SECOND)
        self.monotonic += int(seconds * SECOND)


class TimersClock(Clock):
    """A clock that brings timers of its own, if it has any."""

    def __init__(self, timers: "HandTimers | None", **readings: Callable[[], int]) -> None:
        super().__init__(**readings)
        self._timers = timers

    def timers(self, is_resting: Callable[[], bool]) -> "HandTimers | None":
        return self._timers


class HandTimers:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.delays_ns: list[int] = []
        self._due: list[Callable[[], None]] = []

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        with self._changed:
            self.delays_ns.append(delay_ns)
            self._due.append(action)
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._due.clear()

    def wait(self, count: int) -> None:
        """Until so many calls wait to be fired."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._due) >= count, GUARD_S), "no timer was set"

    def wait_for(self, delay_s: float) -> None:
        """Until a call was put off by so much: the code that delays it may run in a thread of its own."""
        delay_ns = round(delay_s * 1e9)
        with self._changed:
            assert self._changed.wait_for(lambda: delay_ns in self.delays_ns, GUARD_S), "no such timer was set"

    def fire(self) -> None:
        with self._changed:
            due, self._due = self._due, []
        for action in due:
            action()

    def fire_until(self, is_done: Callable[[], bool]) -> None:
        """For timers that other threads set, each in its own time."""
        for _ in range(int(GUARD_S * 200)):
            self.fire()
            if is_done():
                return
            threading.Event().wait(0.005)
        raise AssertionError("the timers fired, and it did not happen")


class Collector:
    """A sync handler that keeps what it got, in order, and can be waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    @property
    def bodies(self) -> list[object]:
        return [message.body for message in self.messages]

    def wait(self, count: int) -> list[object]:
        with self._changed:
            found = self._changed.wait_for(lambda: len(self.messages) >= count, GUARD_S)
        assert found, f"got {self.bodies!r:.200}, not {count}"
        return self.bodies


class Gate:
    """A sync handler that says when it was entered and returns when it is let go."""

    def __init__(self) -> None:
        self._entries = threading.Semaphore(0)
        self._open = threading.Event()
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._entries.release()
        assert self._open.wait(GUARD_S), "the gate was not opened"

    def wait_entered(self, times: int = 1) -> None:
        for _ in range(times):
            assert self._entries.acquire(timeout=GUARD_S), "the handler was not called"

    def open(self) -> None:
        self._open.set()


class Flaky:
    """A sync handler that fails its first calls."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.left = failures
        self.error = error or ValueError("not now")
        self.seen: list[tuple[object, int]] = []  # (body, delivery_count)

    def __call__(self, message: Message) -> None:
        self.seen.append((message.body, message.delivery_count))
        if self.left > 0:
            self.left -= 1
            raise self.error


def within(action: Callable[[], object]) -> object:
    """The result of the action, which must end: it runs in a thread of its own."""
    results: list[object] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(GUARD_S)
    assert not thread.is_alive(), "it does not return"
    if errors:
        raise errors[0]
    return results[0]


def event_wait(event: threading.Event) -> None:
    assert event.wait(GUARD_S), "it did not happen"


def bus_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("unibus-")}


def assert_all_end(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(GUARD_S)
    assert [thread.name for thread in threads if thread.is_alive()] == []


@contextmanager
def eager_switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter can, so that a race shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_together(count: int, action: Callable[[int], None]) -> None:
    """The action in so many threads that start at once; the first error is raised here."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(GUARD_S)
            action(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    assert not any(thread.is_alive() for thread in threads), "a thread does not end"
    if errors:
        raise errors[0]


class Publisher:
    """A thread that publishes once and has to wait for it."""

    def __init__(self, publish: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._publish = publish
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._publish()
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(GUARD_S)
        assert not self._thread.is_alive(), "the publisher still waits"

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()


def taken_slots(bus: Any) -> list[str]:
    """Groups that cannot offer all of their slots. A slot that was claimed in vain is free a little later."""
    found = []
    for group in bus._runtime.registry.groups():
        usable = [consumer for consumer in group.consumers if not consumer.unrunnable]
        free = sum(consumer.concurrency for consumer in usable)
        counts = [int(group.running), *[int(consumer.active) for consumer in usable]]
        if any(counts) or group.idle != free:
            found.append(f"{group.name}: {group.idle} of {free} idle, running and active {counts}")
    return found


def assert_slots_are_free(bus: Any) -> None:
    """No slot was lost: each consumer that can run gets all of its slots back. Not on a loop that handlers need."""
    for _ in range(int(GUARD_S * 1_000)):
        if not taken_slots(bus):
            return
        threading.Event().wait(0.001)
    raise AssertionError(taken_slots(bus))


async def assert_slots_are_free_here(bus: Any) -> None:
    """The same on a loop."""
    for _ in range(int(GUARD_S * 1_000)):
        if not taken_slots(bus):
            return
        await asyncio.sleep(0.001)
    raise AssertionError(taken_slots(bus))
