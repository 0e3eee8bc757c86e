"""Threads that are stopped right before a lock, until all the others can get no further.

Races need a thread that is slow at one place. Here it is: the locks of the package are replaced by ones that count, for
each thread, how often it has come to a lock. At the counts that a schedule names, the thread is stopped, and goes on
when no other thread has come to a lock or left one for a while. How long that while is decides how good a schedule is,
never whether a test passes. A schedule is drawn from a seed and printed when something goes wrong.

Only for the package as plain Python: compiled code has no such places on its fast path (see core/atomic.py).
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.unit.bus.probes import GUARD_S

Stop = tuple[str, int]
"""The name of a thread, and how often it has come to a lock."""

LOOK_S: Final = 0.0005
LOOKS: Final = 3
PARKED_S_MAX: Final = 0.2

_MODULE_LOCKS: Final = ("LOCK", "_RARE")
"""Locks that modules of the package hold by these names, and others import from them."""


class Schedule:
    """Where threads are stopped. Without any stop it only counts."""

    def __init__(self, stops: list[Stop] | None = None) -> None:
        self.stops = stops or []
        self.counts: Counter[str] = Counter()
        self.parked: list[Stop] = []
        self.errors: list[BaseException] = []
        self._steps = 0  # Grows with whatever any thread does at a lock.
        self._threads: list[threading.Thread] = []

    def come(self) -> None:
        """A thread is about to take a lock."""
        name = threading.current_thread().name
        self.counts[name] += 1
        self._steps += 1
        stop = (name, self.counts[name])
        if stop in self.stops:
            self.parked.append(stop)
            self._park()

    def went(self) -> None:
        self._steps += 1

    def _park(self) -> None:
        seen, quiet = self._steps, 0
        end_s = time.monotonic() + PARKED_S_MAX
        while quiet < LOOKS and time.monotonic() < end_s:
            time.sleep(LOOK_S)
            quiet = quiet + 1 if self._steps == seen else 0
            seen = self._steps

    # The threads of a scenario

    def run(self, **actions: Callable[[], object]) -> None:
        """All of them at once, each in a thread of its name; each must end, and raise nothing."""
        barrier = threading.Barrier(len(actions))

        def act(action: Callable[[], object]) -> None:
            try:
                barrier.wait(GUARD_S)
                action()
            except BaseException as error:
                self.errors.append(error)

        threads = [
            threading.Thread(target=act, args=(action,), name=name, daemon=True) for name, action in actions.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD_S)
        assert [thread.name for thread in threads if thread.is_alive()] == [], "a thread is stuck"
        if self.errors:
            raise self.errors[0]


class WatchedLock:
    """A lock of `threading` that a schedule can stop threads at."""

    def __init__(self, lock: Any, schedule: Schedule) -> None:
        self._lock = lock
        self._schedule = schedule

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._schedule.come()
        taken: bool = self._lock.acquire(blocking, timeout)
        self._schedule.went()
        return taken

    def release(self) -> None:
        self._lock.release()
        self._schedule.went()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)  # `locked`, and what a Condition wants to know.


class WatchedThreading(ModuleType):
    """Stands in for the module `threading`: with its locks watched, and all the rest as it is."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__("threading")
        self._schedule = schedule

    def Lock(self) -> WatchedLock:
        return WatchedLock(threading.Lock(), self._schedule)

    def RLock(self) -> WatchedLock:
        return WatchedLock(threading.RLock(), self._schedule)

    def Condition(self, lock: Any = None) -> threading.Condition:
        return threading.Condition(self.RLock() if lock is None else lock)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


@contextmanager
def watched(schedule: Schedule) -> Iterator[Schedule]:
    """Every lock that the package makes in this block is a watched one, and so are those that its modules have."""
    replaced: list[tuple[ModuleType, str, object]] = []
    locks: dict[int, WatchedLock] = {}
    stand_in = WatchedThreading(schedule)
    for name, module in list(sys.modules.items()):
        if not name.startswith("unibus."):
            continue
        if getattr(module, "threading", None) is threading:
            replaced.append((module, "threading", threading))
            module.threading = stand_in  # type: ignore[attr-defined]
        for held in _MODULE_LOCKS:
            lock = getattr(module, held, None)
            if lock is not None:
                replaced.append((module, held, lock))
                setattr(module, held, locks.setdefault(id(lock), WatchedLock(lock, schedule)))
    try:
        yield schedule
    finally:
        for module, held, value in replaced:
            setattr(module, held, value)


def drawn(chance: random.Random, counts: Counter[str]) -> list[Stop]:
    """One to three stops, at places that the threads have come to in a run without any."""
    names = sorted(counts)
    chosen = [chance.choice(names) for _ in range(chance.randint(1, 3))]
    return [(name, chance.randint(1, counts[name])) for name in chosen]


def run(race: Callable[[Schedule, Path], None], schedule: Schedule, folder: Path) -> Schedule:
    """A race by this schedule, with a new folder for its files. What goes wrong names the schedule."""
    folder.mkdir()
    with watched(schedule):
        try:
            race(schedule, folder)
        except BaseException as error:
            error.add_note(f"{race.__name__} with the stops {schedule.stops}, of which {schedule.parked} were reached")
            raise
    return schedule
