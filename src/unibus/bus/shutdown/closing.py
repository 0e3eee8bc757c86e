"""Closing a bus: runs a list of steps once, for any number of callers.

    close()           ──┐
    close()           ──┼──▶ Closing ──▶ its thread: step 1 ▶ step 2 ▶ … ▶ the last step
    garbage collected ──┘       ▲                                               │
                                └── each caller waits, and is woken at the end ─┘

The steps run in a thread of their own, and callers only wait. So the end of a wait (a cancelled task, a timeout around
it, Ctrl-C) does not interrupt the work: the thread continues, and the next `close()` waits for the same end. No step is
ever interrupted in the middle, in particular no write. If no thread can be started (the interpreter is about to end)
the caller runs the steps itself; the position is kept, so the next caller repeats the step that was interrupted.

A step that raises does not prevent the later ones: the file must be closed in any case. The first error is raised in
all waiting callers at the end.

Locks: Ctrl-C may interrupt a caller between any two bytecodes. So the state that callers share with the thread is
guarded by C locks only, whose `with` is not interruptible half-way; conditions and events of `threading` are.
"""

import asyncio
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
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

LOOK_S: Final = 1.0
"""How often a waiting thread checks by itself. A caller checks for Ctrl-C: one that comes a moment before the wait does
not interrupt it, and on Windows none does. A step checks for what is not reported: a loop that is closed or stopped."""


class ClosingStep(NamedTuple):
    """One step of closing. `what` names for a log line what it waits for."""

    what: str
    run: Callable[[], None]


class Caller:
    """One waiting call of `close()`. If a handler has called it, no step may wait for that handler: deadlock."""

    def __init__(self, wake: Callable[[], None], thread: threading.Thread | None, is_raised_to: bool = True) -> None:
        # Read in the thread or task that calls close(): the closing thread has no such context.
        consumer = INSIDE.get()
        self.wake = wake
        self.is_raised_to = is_raised_to  # An error of a step is raised in it. False: it only waits for the end.
        self.group: Group | None = None if consumer is None else consumer.group
        self.slot: asyncio.Task[None] | None = SLOT.get()
        self.thread = thread  # The blocked thread; None for a task, whose loop continues.
        self.loop = None if thread is None else asyncio._get_running_loop()  # The loop that the thread blocks.


class Callers:
    """The callers that wait in `close()` now, or waited until the bus was closed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # Reentrant: the cycle collector may finalize the bus while it is held.
        self._all: list[Caller] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, caller: Caller) -> None:
        with self._lock:
            self._all = [*self._all, caller]

    def remove(self, caller: Caller) -> None:
        with self._lock:
            self._all = [other for other in self._all if other is not caller]

    def is_error_raised(self) -> bool:
        """Whether an error of a step is raised in a caller; else it has to be logged."""
        return any(caller.is_raised_to for caller in self._all)

    def has(self, caller: Caller) -> bool:
        return caller in self._all

    def wake(self) -> None:
        # Without the lock: `_all` is replaced and never changed in place, and a wake-up may call into an event loop.
        for caller in self._all:
            caller.wake()

    def groups(self) -> list[Group]:
        """Groups of handlers that wait in `close()`: they cannot become idle before it returns."""
        return [caller.group for caller in self._all if caller.group is not None]

    def slots(self) -> "list[asyncio.Task[None]]":
        """The tasks of such handlers."""
        return [caller.slot for caller in self._all if caller.slot is not None]

    def threads(self) -> list[threading.Thread]:
        """The threads that are blocked in `close()`."""
        return [caller.thread for caller in self._all if caller.thread is not None]

    def is_blocked(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a caller blocks the thread of this loop: it runs nothing before `close()` returns."""
        return any(caller.loop is loop for caller in self._all)


class Closing:
    """Runs the steps, and wakes the callers at their end. Each caller first calls `refuse`, which stops publishing."""

    def __init__(self, steps: Sequence[ClosingStep], refuse: Callable[[], None]) -> None:
        self.is_done = False
        self.error: BusError | None = None  # The first error of a step.
        self.is_released = False  # The bus is garbage: no step waits for anything.
        self._steps = list(steps)
        self._refuse = refuse
        # `_position` and `error` belong to the thread that holds `_working`. `_end_s` only decreases, under `_lock`.
        # `is_done` is set once, after the last step, and read without a lock.
        self._position = 0
        self._end_s = math.inf
        self._lock = threading.RLock()  # Reentrant, for the same reason as in Callers.
        self._working = allocate_lock()  # Held by the thread that runs the steps.
        self._worker = 0  # Its thread id.
        self._thread: threading.Thread | None = None
        self.callers = Callers()
        self._news: SimpleQueue[None] = SimpleQueue()

    # Callers

    def close(self, timeout_s: float | None) -> None:
        """Block this thread until the bus is closed. The steps stop waiting `timeout_s` from now at the latest."""
        news = _closed_lock()
        caller = Caller(partial(_open, news), threading.current_thread())
        # Register, then look, then wait: the end of the work between the look and the wait has released `news` already.
        try:
            self._join(caller, timeout_s)
            while not self.is_done:
                # In the loop: if the caller that ran the steps in its own thread was interrupted, another one has to
                # continue them.
                self._start()
                news.acquire(True, LOOK_S)
        finally:
            self._leave(caller)
        self._finish(caller)

    async def close_async(self, timeout_s: float | None) -> None:
        """The same for a task: it awaits and does not block the event loop."""
        if self._is_over():
            return  # Also in a forked child, where asyncio has no running loop.
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        caller = Caller(partial(_wake_task, loop, news), None)
        try:
            self._join(caller, timeout_s)
            while not self.is_done:
                self._start()
                # A cancellation ends this wait only. The closing thread continues, and the next close() waits for the
                # same end.
                await news.wait()
                news.clear()
        finally:
            self._leave(caller)
        self._finish(caller)

    def _is_over(self) -> bool:
        return self.is_done

    def release(self, timeout_s: float) -> None:
        """The bus is garbage: run the steps without waiting in them. Waits at most `timeout_s` for their end.

        The cycle collector calls this at any point of any code: this thread may hold the locks that the steps need.
        So the steps run in another thread, and this one must not wait for ever.
        """
        self.is_released = True
        # The collector runs in the closing thread itself: it is already at work, and must not wait for itself.
        if self._worker == get_ident():
            return
        self._ask(0.0)
        self._start()
        self.wait(timeout_s)

    def finish_here(self) -> None:
        """Run the remaining steps in this thread, unless another one runs them. For the exit of the interpreter."""
        self._refuse()
        if not self._working.locked():
            self._run_here()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the end without requesting it. False at the timeout."""
        ended = _closed_lock()
        caller = Caller(partial(_open, ended), None, is_raised_to=False)
        self.callers.add(caller)
        try:
            if not self.is_done:
                ended.acquire(True, -1 if timeout_s is None else timeout_s)
            return self.is_done
        finally:
            self._leave(caller)

    def shorten(self, timeout_s: float) -> None:
        """Let no step wait longer than `timeout_s` from now."""
        with self._lock:
            self._end_s = min(self._end_s, time.monotonic() + timeout_s)
        self.wake()

    def _join(self, caller: Caller, timeout_s: float | None) -> None:
        """Request the close and register the caller for the wake-up; nothing if the bus is closed already."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        if not self.is_done:  # Check before taking a lock: in a forked child (is_done) a lock may be held for ever.
            self.callers.add(caller)
            self._ask(end_s)

    def _ask(self, end_s: float) -> None:
        """Stop accepting messages, and let no step wait beyond `end_s`."""
        with self._lock:
            self._end_s = min(self._end_s, end_s)
        self._refuse()
        self.wake()

    def _start(self) -> None:
        """Start a thread for the steps, unless one runs them."""
        if self._working.locked():
            return
        # Two callers may get here at once. The second thread waits for the first, and finds no step left.
        # A new thread and not a parked one: a bus is closed once. Daemon, so that a hanging store cannot keep the
        # process.
        try:
            threading.Thread(target=self._run, name="unibus-close", daemon=True).start()
        except RuntimeError:
            # No thread can be started: the interpreter exits, or the system has reached its limit.
            self._run_here()

    def _run_here(self) -> None:
        try:
            with self._working:
                self._work(True)
        finally:
            if not self.is_done:
                self.callers.wake()  # Interrupted by Ctrl-C: another caller continues the steps.

    def _leave(self, caller: Caller) -> None:
        """Unregister a caller that stops waiting. One that waited to the end stays registered: a handler that has
        closed its own bus may finish, and is not cancelled."""
        if not self.is_done:
            self.callers.remove(caller)

    def _finish(self, caller: Caller) -> None:
        """The bus is closed: raise the error, if any. Joins the last thread first, so that a caller that lists the
        threads of the process now finds none of the bus."""
        if not self.callers.has(caller):
            return  # The bus was closed before this call.
        thread = self._thread
        if thread is not None:
            thread.join(LEAST_S)
        if self.error is not None:
            raise self.error

    # For the steps

    def left_s(self) -> float | None:
        """How long a step may wait; None: no limit. At least LEAST_S, in which threads without work can end."""
        if self.is_released:
            return 0.0
        end_s = self._end_s
        return None if end_s == math.inf else max(LEAST_S, end_s - time.monotonic())

    def is_out_of_time(self) -> bool:
        """Whether the timeout of a caller is over, or the bus is garbage."""
        return self.is_released or time.monotonic() >= self._end_s

    def wait_for(self, is_reached: Callable[[], bool], timeout_s: float = math.inf) -> bool:
        """Wait until the condition is true. False at the timeout, or at that of a caller.

        The code that changes the condition has to call `wake`.
        """
        began_s = time.monotonic()
        while not is_reached():
            left_s = max(min(self._end_s, began_s + timeout_s), began_s + LEAST_S) - time.monotonic()
            if left_s <= 0 or self.is_released:
                return False
            try:
                self._news.get(True, min(left_s, LOOK_S))
                # A queue and not an event: `put` of a SimpleQueue is safe in a finalizer and in a signal handler, `set`
                # of an event takes a lock that the interrupted code may hold.
                while not self._news.empty():
                    self._news.get_nowait()  # One check is enough for all wake-ups so far.
            except Empty:
                continue
        return True

    def wake(self) -> None:
        """Something has changed: a waiting step checks again. From any thread."""
        self._news.put(None)

    def is_at_work(self) -> bool:
        """Whether a thread is running the steps."""
        return self._working.locked()

    @property
    def waits_for(self) -> str:
        """What the current step waits for, for a log line."""
        position = min(self._position, len(self._steps) - 1)
        return self._steps[position].what

    # The work

    def _run(self) -> None:
        with self._working:
            if not self.is_done:
                self._thread = threading.current_thread()
            self._work(False)

    def _work(self, here: bool) -> None:
        """Run the remaining steps. `here`: in the thread of a caller, which Ctrl-C may interrupt."""
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
                        raise  # The position is unchanged: the next caller repeats this step.
                    self._failed(step, error)
                # After the step: an interrupted step is repeated, and each step is idempotent. A step that failed is
                # not repeated.
                self._position += 1
        finally:
            self._worker = 0
        # Before `is_done`: the interpreter may exit as soon as a caller sees the end. A caller that joins after this
        # check also gets the error raised; reported twice is better than never.
        if self.error is not None and not self.callers.is_error_raised():
            log.error("%s", self.error)
        # Before the callers are woken: each of them checks it.
        self.is_done = True
        self.callers.wake()

    def _failed(self, step: ClosingStep, error: BaseException) -> None:
        if self.error is not None:
            log.error("another error while the bus closed (%s): %r", step.what, error)
        elif isinstance(error, BusError):
            self.error = error
        else:
            self.error = BusError(
                f"the bus closed, but closing {step.what} failed: {error!r}", "the cause has the traceback"
            )
            self.error.__cause__ = error


def _closed_lock() -> LockType:
    """A held lock to wait on: `acquire` returns when another thread releases it."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def _open(lock: LockType) -> None:
    try:
        lock.release()
    except RuntimeError:
        return  # It is released already.


def _wake_task(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(news.set)
    except RuntimeError:
        return  # The loop is closed: none of its tasks waits any more.
