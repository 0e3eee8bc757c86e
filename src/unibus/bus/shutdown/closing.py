"""The end of one bus: a list of steps, run once, however many callers ask for it and however often.

    close()  ──┐
    close()  ──┼──▶ Closing ──▶ its thread: step 1 ▶ step 2 ▶ … ▶ the last step
    dropped  ──┘       ▲                                               │
                       └── each caller waits, and is woken at the end ─┘

The steps run in a thread of their own. A caller only waits, so whatever ends its wait (a cancelled task, a time-out
around it, Ctrl-C) does not touch the work: the thread goes on, and the next `close()` waits for the same end. No step
is ever cut in the middle, in particular no write. Where no thread can be started (the interpreter is about to end) the
caller runs the steps itself; the position is kept, so the next caller goes on with the step that was interrupted.

A step that raises does not keep the later ones from running: the file must be released whatever happens. The first
error is raised to all who wait, at the end.

Locks: a caller may be interrupted between any two of its instructions. So what callers share with the thread is
guarded by locks of C alone, whose `with` cannot be cut in two; conditions and events of `threading` can.
"""

import asyncio
import logging
import math
import threading
import time
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from unibus.bus.execution.event_loops import SLOT
from unibus.bus.pubsub.group import INSIDE, Group
from unibus.bus.subscriptions.drain import LEAST_S
from unibus.errors import BusError

log = logging.getLogger("unibus")

LOOK_S: Final = 1.0
"""How often a thread that waits looks by itself. A caller for Ctrl-C: one that comes a moment before the wait does not
end it, and on Windows none does. A step for what is not reported: a loop that is closed, or does not run."""


class ClosingStep(NamedTuple):
    """One step of closing. `what` is what it waits for, in the words of a log line."""

    what: str
    run: Callable[[], None]


class Caller:
    """One call of `close()` that waits. A handler that waits for the bus to close must not be waited for."""

    def __init__(self, wake: Callable[[], None], thread: threading.Thread | None) -> None:
        consumer = INSIDE.get()
        self.wake = wake
        self.group: Group | None = None if consumer is None else consumer.group
        self.slot: asyncio.Task[None] | None = SLOT.get()
        self.thread = thread  # The one that is blocked; None for a task, whose loop goes on.
        self.loop = None if thread is None else asyncio._get_running_loop()  # Blocked with its thread.


class Callers:
    """Those who wait in `close()` now, or did so until the bus was closed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # Reentrant: the cycle collector may drop the bus inside of it.
        self._all: list[Caller] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, caller: Caller) -> None:
        with self._lock:
            self._all = [*self._all, caller]

    def remove(self, caller: Caller) -> None:
        with self._lock:
            self._all = [other for other in self._all if other is not caller]

    def has(self, caller: Caller) -> bool:
        return caller in self._all

    def wake(self) -> None:
        for caller in self._all:
            caller.wake()

    def groups(self) -> list[Group]:
        """Those whose handlers wait: they cannot become idle before `close()` returns."""
        return [caller.group for caller in self._all if caller.group is not None]

    def slots(self) -> "list[asyncio.Task[None]]":
        """Tasks of such handlers."""
        return [caller.slot for caller in self._all if caller.slot is not None]

    def threads(self) -> list[threading.Thread]:
        """Threads that are blocked."""
        return [caller.thread for caller in self._all if caller.thread is not None]

    def is_blocked(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a caller blocks the thread of this loop: nothing runs on it before `close()` returns."""
        return any(caller.loop is loop for caller in self._all)


class Closing:
    """Runs the steps, and knows who waits for their end. `refuse` is called first, by each caller."""

    def __init__(self, steps: Sequence[ClosingStep], refuse: Callable[[], None]) -> None:
        self.is_done = False
        self.error: BusError | None = None  # The first one that a step raised.
        self.is_released = False  # The bus is not used any more: no step waits for anything.
        self._steps = list(steps)
        self._refuse = refuse
        self._position = 0
        self._end_s = math.inf
        self._lock = threading.RLock()  # Reentrant, for the same reason.
        self._working = allocate_lock()  # Held by the thread that runs the steps.
        self._worker = 0
        self._thread: threading.Thread | None = None
        self.callers = Callers()
        self._news: SimpleQueue[None] = SimpleQueue()

    # Callers

    def close(self, timeout_s: float | None) -> None:
        """Block this thread until the bus is closed. Waits inside of it are over `timeout_s` from now at the latest."""
        news = _closed_lock()
        caller = Caller(partial(_open, news), threading.current_thread())
        try:
            self._join(caller, timeout_s)
            while not self.is_done:
                self._start()
                news.acquire(True, LOOK_S)
        finally:
            self._leave(caller)
        self._finish(caller)

    async def close_async(self, timeout_s: float | None) -> None:
        """The same without blocking the loop."""
        if self._is_over():
            return  # Also in a forked child, where asyncio knows no running loop.
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        caller = Caller(partial(_wake_task, loop, news), None)
        try:
            self._join(caller, timeout_s)
            while not self.is_done:
                self._start()
                await news.wait()
                news.clear()
        finally:
            self._leave(caller)
        self._finish(caller)

    def _is_over(self) -> bool:
        return self.is_done

    def release(self, timeout_s: float) -> None:
        """The bus was dropped: run the steps without waiting in them. Wait for their end, but no longer than that.

        Called by the cycle collector, in the middle of anything: the locks that the steps need may be held by this
        very thread. So the steps run in another one, and this one does not wait for ever.
        """
        self.is_released = True
        if self._worker == get_ident():
            return
        self._ask(0.0)
        self._start()
        self.wait(timeout_s)

    def finish_here(self) -> None:
        """Run what is left in this thread, unless another one is at it. For the end of the interpreter."""
        self._refuse()
        if not self._working.locked():
            self._run_here()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the end without asking for it. False at the time-out."""
        ended = _closed_lock()
        caller = Caller(partial(_open, ended), None)
        self.callers.add(caller)
        try:
            if not self.is_done:
                ended.acquire(True, -1 if timeout_s is None else timeout_s)
            return self.is_done
        finally:
            self._leave(caller)

    def shorten(self, timeout_s: float) -> None:
        """Let no step wait for longer than that from now on."""
        with self._lock:
            self._end_s = min(self._end_s, time.monotonic() + timeout_s)
        self.wake()

    def _join(self, caller: Caller, timeout_s: float | None) -> None:
        """Ask for the end, and be woken with the others when it is reached; not if the bus is closed already."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        if not self.is_done:  # Before any lock: in a forked child, where this is set, one may be held for ever.
            self.callers.add(caller)
            self._ask(end_s)

    def _ask(self, end_s: float) -> None:
        """Take no new messages, and let no step wait beyond that moment."""
        with self._lock:
            self._end_s = min(self._end_s, end_s)
        self._refuse()
        self.wake()

    def _start(self) -> None:
        """Let a thread run the steps, unless one does."""
        if self._working.locked():
            return
        # Two callers may see this at once. The second thread waits for the first, and finds nothing left to do.
        try:
            threading.Thread(target=self._run, name="unibus-close", daemon=True).start()
        except RuntimeError:
            # No thread can be started any more: at the end of the interpreter, or where the system has no more.
            self._run_here()

    def _run_here(self) -> None:
        try:
            with self._working:
                self._work(True)
        finally:
            if not self.is_done:
                self.callers.wake()  # Interrupted: one of the others takes over.

    def _leave(self, caller: Caller) -> None:
        """A caller that waited to the end stays: a handler that has closed its bus may finish, it is not cancelled."""
        if not self.is_done:
            self.callers.remove(caller)

    def _finish(self, caller: Caller) -> None:
        """The bus is closed. Its last thread is about to end: a caller that lists threads now finds none of ours."""
        if not self.callers.has(caller):
            return  # It was closed before.
        thread = self._thread
        if thread is not None:
            thread.join(LEAST_S)
        if self.error is not None:
            raise self.error

    # What the steps ask. Who waits is in `callers`.

    def left_s(self) -> float | None:
        """How long a step may wait. A little is always left, for what has nothing more to do and is about to end."""
        if self.is_released:
            return 0.0
        end_s = self._end_s
        return None if end_s == math.inf else max(LEAST_S, end_s - time.monotonic())

    def is_out_of_time(self) -> bool:
        """Whether the time of a caller is over, or the bus was dropped."""
        return self.is_released or time.monotonic() >= self._end_s

    def wait_for(self, is_reached: Callable[[], bool], timeout_s: float = math.inf) -> bool:
        """For a step: wait until that is true. False when the time-out, or the time of a caller, is over.

        The code that changes what `is_reached` looks at calls `wake`.
        """
        began_s = time.monotonic()
        while not is_reached():
            left_s = max(min(self._end_s, began_s + timeout_s), began_s + LEAST_S) - time.monotonic()
            if left_s <= 0 or self.is_released:
                return False
            try:
                self._news.get(True, min(left_s, LOOK_S))
                while not self._news.empty():
                    self._news.get_nowait()  # One look is enough for all that came meanwhile.
            except Empty:
                continue
        return True

    def wake(self) -> None:
        """Something has changed: look again. From any thread."""
        self._news.put(None)

    def is_at_work(self) -> bool:
        """Whether a thread runs the steps."""
        return self._working.locked()

    @property
    def waits_for(self) -> str:
        """What the step that is running waits for."""
        position = min(self._position, len(self._steps) - 1)
        return self._steps[position].what

    # The work

    def _run(self) -> None:
        with self._working:
            if not self.is_done:
                self._thread = threading.current_thread()
            self._work(False)

    def _work(self, here: bool) -> None:
        """Run what is left. `here`: in the thread of a caller, which Ctrl-C may interrupt; else nothing ends this."""
        if self.is_done:
            return
        self._worker = get_ident()
        try:
            while self._position < len(self._steps):
                step = self._steps[self._position]
                try:
                    step.run()
                except BaseException as error:
                    if here and not isinstance(error, Exception):
                        raise  # The next caller begins with this step.
                    self._failed(step, error)
                self._position += 1
        finally:
            self._worker = 0
        self.is_done = True
        if self.error is not None and not len(self.callers):
            log.error("%s", self.error)  # There is no caller whom it could be raised to.
        self.callers.wake()

    def _failed(self, step: ClosingStep, error: BaseException) -> None:
        if self.error is not None:
            log.error("while the bus closed, after another error: %s: %r", step.what, error)
        elif isinstance(error, BusError):
            self.error = error
        else:
            self.error = BusError(f"the bus closed with an error ({step.what}): {error!r}", "see the cause")
            self.error.__cause__ = error


def _closed_lock() -> LockType:
    """What a thread waits on: it acquires the lock when another thread opens it."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def _open(lock: LockType) -> None:
    try:
        lock.release()
    except RuntimeError:
        return  # It is open already.


def _wake_task(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(news.set)
    except RuntimeError:
        return  # The loop was closed, and its tasks are gone.
