# mypyc: compiled
"""Names the handler that blocks an event loop for more than a second.

    timers' thread   look ──ask──▶ loop's queue          look: no answer yet, which task is running?
    loop's thread                      └──── _answer ────▶ more than a second late: log the handler

A handler that calls `time.sleep` or a blocking library stops all other tasks of its loop, and nothing shows which one
it was. So while slots of a loop run, the thread of the timers puts a call into the loop's queue every LOOK_NS. A call
that is not answered means that one step of a task lasts that long, and the running task is the one that blocks.

Delivery pays nothing for each message: a slot that begins checks one flag. No clock is read on the loop's thread.
While no slot runs, nothing is asked. A task is only named if two looks have found it running: after the whole process
was suspended, any task may be the running one.
"""

import asyncio
import os
import sys
import weakref
from _thread import allocate_lock
from collections.abc import Callable
from types import FrameType
from typing import Final, final

from mypy_extensions import i64

from unibus.bus.pubsub.group import INSIDE, Consumer
from unibus.clock import Timers
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

LOOK_NS: Final = 100_000_000
"""How often a busy loop is asked. The logged duration is exact to half of it."""

BLOCKED_NS: Final = 1_000_000_000
"""A handler that blocks its loop for longer than this is logged."""

STILL_NS: Final = 10_000_000_000
"""A handler that blocks for so long is logged before it ends: it may never end."""

REPEAT_NS: Final = 60_000_000_000
"""Each handler is logged at most once in this time."""

_SUSPECT_NS: Final = BLOCKED_NS // 2
_STANDARD_LIBRARY: Final = os.path.dirname(os.__file__)


@final
class LoopWatch:
    """The watch of one event loop. A pending look keeps neither the bus nor the loop alive."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timers: Timers | None, monotonic_ns: Callable[[], int]) -> None:
        self._loop = weakref.ref(loop)
        self.busy: i64 = 0  # Slots that are not parked. Only the loop's thread changes it.
        self.tasks: dict[object, Consumer] = {}  # The tasks of all slots.
        self.ident = 0  # Of the loop's thread.
        self._timers = timers
        self._monotonic_ns = monotonic_ns
        self._lock = allocate_lock()
        self.is_watching = timers is None  # Without timers (virtual time) it never begins.
        self._asked_ns = -1  # When the loop was asked; -1: it has answered.
        self._number = 0  # Of the question, so that a late answer to an old one is ignored.
        self._task: object = None  # The task that was running at the last look, while the answer is late.
        self._consumer: Consumer | None = None
        self._line = ""
        self._sights = 0
        self._logged_ns: dict[str, int] = {}

    def start(self) -> None:
        """A slot begins to run while the loop is not watched. Called on the loop's thread, after `busy` was raised."""
        with self._lock:
            if self.is_watching or self._timers is None:
                return
            self.is_watching = True
        self._timers.after(LOOK_NS, self.look)

    def look(self) -> None:
        """Ask the loop, or find out what it is doing if it does not answer. In the thread of the timers."""
        if self._timers is None or not self._goes_on():
            return
        now_ns = self._monotonic_ns()
        if self._asked_ns < 0:
            self._ask(now_ns)
        elif now_ns - self._asked_ns >= _SUSPECT_NS:
            self._find_running_task()
            if now_ns - self._asked_ns >= STILL_NS:
                self._report("has blocked the event loop for %.1f s and still does", now_ns)
        self._timers.after(LOOK_NS, self.look)

    def _goes_on(self) -> bool:
        """Whether the loop has to be watched. If not, the next slot that begins starts the watch again."""
        # The flag first, then the count: a slot that begins meanwhile has either seen the flag and waits for the lock,
        # or its count is seen here.
        with self._lock:
            self.is_watching = False
            loop = self._loop()
            is_running = loop is not None and loop.is_running()
            self.is_watching = is_running and (self.busy > 0 or self._asked_ns >= 0)
            if not self.is_watching:
                self._forget()
            return self.is_watching

    def _ask(self, now_ns: int) -> None:
        self._forget()
        self._asked_ns = now_ns
        loop = self._loop()
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._answer, self._number)
        except RuntimeError:
            self._forget()  # The loop was closed. The next look sees that it does not run.

    def _answer(self, number: int) -> None:
        """On the loop's thread: it is not blocked any more."""
        if number == self._number and self._asked_ns >= 0:
            now_ns = self._monotonic_ns()
            if now_ns - self._asked_ns >= BLOCKED_NS:
                self._report("blocked the event loop for %.1f s", now_ns)
            self._forget()

    def _forget(self) -> None:
        self._number += 1
        self._asked_ns = -1
        self._task = None
        self._consumer = None
        self._sights = 0

    def _find_running_task(self) -> None:
        task = asyncio.current_task(self._loop())
        if task is None or task is not self._task:
            self._task = task
            self._consumer = None if task is None else self._consumer_of(task)
            self._sights = 0
        self._sights += 1
        if self._consumer is not None:
            self._line = _line_of(sys._current_frames().get(self.ident))

    def _consumer_of(self, task: "asyncio.Task[object]") -> Consumer | None:
        """The consumer whose handler the task runs, or whose handler has started it. None: not a task of the bus."""
        found = self.tasks.get(task)
        if found is None and sys.version_info >= (3, 12):
            inside = task.get_context().get(INSIDE)
            found = inside if isinstance(inside, Consumer) else None
        return found

    def _report(self, what: str, now_ns: int) -> None:
        consumer = self._consumer
        if consumer is None or self._sights < 2:
            return
        name = consumer.name.partition("#")[0]
        last_ns = self._logged_ns.get(name)
        if last_ns is not None and now_ns - last_ns < REPEAT_NS:
            return
        self._logged_ns = {other: ns for other, ns in self._logged_ns.items() if now_ns - ns < REPEAT_NS}
        self._logged_ns[name] = now_ns
        log.warning(
            "handler %s of group %r " + what + "%s; other handlers of this loop waited: use await asyncio.to_thread(…)"
            " for the blocking call, or a plain def handler, which runs on a worker thread",
            name,
            consumer.group.name,
            (now_ns - self._asked_ns + LOOK_NS // 2) / 1e9,  # It began between two looks.
            self._line,
        )


def _line_of(frame: FrameType | None) -> str:
    """The innermost line outside of the libraries: the call that blocks."""
    while frame is not None:
        path = frame.f_code.co_filename
        is_library = path.startswith((_STANDARD_LIBRARY, "<")) or "site-packages" in path
        if not is_library and not str(frame.f_globals.get("__name__")).startswith("unibus.bus."):
            return f" at {path}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
