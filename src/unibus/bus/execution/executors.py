"""Chooses where handlers run, and ends them.

sync handler                                           worker pool (worker_pool.py)
async handler, subscribed on a running event loop      that loop (event_loops.py)
async handler, subscribed without a loop               the loop that the bus was entered on, else the running one,
                                                       else a loop in a thread of the bus's own (loop_thread.py)
"""

import asyncio
import threading
from collections.abc import Callable, Collection

from unibus.bus.error_texts import trace_text, traceback_of
from unibus.bus.execution.event_loops import LoopExecutor
from unibus.bus.execution.handlers import HandlerPlan
from unibus.bus.execution.loop_thread import LoopThread
from unibus.bus.execution.loop_watch import LoopWatch
from unibus.bus.execution.worker_pool import WorkerPool
from unibus.bus.pubsub.delivery import SlotRunner
from unibus.bus.pubsub.group import Consumer, Group, HandlerExecutor
from unibus.clock import Timers
from unibus.core.atomic import LOCK
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")


def report(error: BaseException) -> None:
    """Log an exception that no caller can catch, because it was raised in a thread of the bus.

    SystemExit and the like come from a handler: the failure log (failure_log.py) has shown the traceback.
    """
    line = "a handler raised %r in a thread of the bus; the thread continues"
    if issubclass(type(error), Exception):
        trace = traceback_of(error)
        log.error(line, error, exc_info=(type(error), error, trace), exc_text=trace_text(error, trace))
    else:
        log.error(line, error)


def _no_publishers() -> None:
    return


def _is_never(loop: asyncio.AbstractEventLoop) -> bool:
    return False


class HomeExecutor(HandlerExecutor):
    """For async handlers that were subscribed without a running loop: they run on the home loop of the bus."""

    def __init__(self, home: Callable[[], LoopExecutor], pool: WorkerPool) -> None:
        super().__init__()
        self._home = home
        self._pool = pool

    def launch(self, consumer: Consumer) -> bool:
        try:
            executor = self._home()
        except BaseException as error:  # The thread of our own loop could not be started, or Ctrl-C interrupted that.
            self._pool.put_off(consumer)
            if not isinstance(error, RuntimeError):
                raise
            self._pool.report_missing(error)
            return True
        if executor.loop.is_closed():
            # The bus's own loop is closed, so the bus is closed: no other loop can run the handler.
            consumer.group.give_up(consumer)
            return True
        return executor.launch(consumer)


class HandlerExecutors:
    """The executors of one bus. `home` is the loop that the bus was entered on (`async with bus`)."""

    def __init__(
        self, delivery: SlotRunner, worker_count: int, timers: Timers | None, monotonic_ns: Callable[[], int]
    ) -> None:
        self.pool = WorkerPool(delivery, worker_count, report)
        self.home: asyncio.AbstractEventLoop | None = None
        self.wake_publishers: Callable[[], None] = _no_publishers  # Lets all blocked publishers check their channel.
        self.adopts_loops = True  # False for SyncMessageBus: its callers block their loop, so it needs one of its own.
        # `home`, `_executors` and `_loop_thread` change under LOCK; other threads iterate over copies.
        self._delivery = delivery
        self._timers = timers  # For looks at blocked loops; None where time is virtual.
        self._monotonic_ns = monotonic_ns
        self._executors: dict[asyncio.AbstractEventLoop, LoopExecutor] = {}
        self._loop_thread: LoopThread | None = None

    def executor_for(self, plan: HandlerPlan) -> HandlerExecutor:
        if not plan.is_async:
            return self.pool
        loop = self._running_loop()
        return HomeExecutor(self._home_executor, self.pool) if loop is None else self._executor_on(loop)

    def end_slots(self, consumer: Consumer) -> "list[asyncio.Task[None]]":
        """Cancel the running handlers of an async consumer. Returns the tasks on the caller's loop, to wait for."""
        return self._on_each_loop(lambda executor: executor.cancel(consumer))

    def end_all_slots(
        self, spared: "list[asyncio.Task[None]]", ended: Callable[[asyncio.AbstractEventLoop], None]
    ) -> list[asyncio.AbstractEventLoop]:
        """Cancel all running async handlers, from any thread. Returns the loops that were notified.

        Each loop calls `ended` on its own thread when its slots have ended; a loop that does not run may never do so.
        """
        notified: list[asyncio.AbstractEventLoop] = []
        # Tasks may only be cancelled on their loop's thread, hence the call through the loop's queue. A loop that is
        # stopped and not closed keeps the call until it runs again; the closing thread does not wait for such a loop.
        for loop, executor in list(self._executors.items()):
            try:
                loop.call_soon_threadsafe(_end_slots, executor, spared, ended)
            except RuntimeError:
                executor.abandon()  # The loop is closed and resumes no task.
            else:
                notified.append(loop)
        return notified

    def _on_each_loop(self, action: "Callable[[LoopExecutor], list[asyncio.Task[None]]]") -> "list[asyncio.Task[None]]":
        tasks: list[asyncio.Task[None]] = []
        for executor in list(self._executors.values()):
            if executor.loop.is_closed():
                executor.abandon()
            elif executor.is_here():
                tasks += action(executor)
            else:
                try:
                    executor.loop.call_soon_threadsafe(action, executor)
                except RuntimeError:
                    executor.abandon()  # The loop was closed since the check above.
        return tasks

    def recover(self) -> None:
        """Before a wait for handlers: requeue messages of closed loops, and serve groups that found no thread."""
        # Neither a closed loop nor a missing thread reports that it can serve again. Without this a wait could never
        # end.
        self.abandon_closed_loops()
        self.pool.wake_unserved()

    def abandon_closed_loops(self) -> None:
        """Requeue the messages of closed loops, which report nothing themselves. May run `finally` of handlers."""
        for executor in list(self._executors.values()):
            if executor.loop.is_closed():
                executor.abandon()

    def can_run(self, group: Group, is_blocked: Callable[[asyncio.AbstractEventLoop], bool] = _is_never) -> bool:
        """Whether the group's messages can be handled now: by workers, or on a loop that runs and is not blocked."""
        return any(self._can_run(consumer.executor, is_blocked) for consumer in group.consumers)

    def _can_run(
        self, executor: HandlerExecutor | None, is_blocked: Callable[[asyncio.AbstractEventLoop], bool]
    ) -> bool:
        if executor is self.pool:
            return True
        loop = self.home if isinstance(executor, HomeExecutor) else None
        if isinstance(executor, LoopExecutor):
            loop = executor.loop
        if loop is None or is_blocked(loop):
            return False
        # The thread of our own loop may have been started a moment ago, and not run the loop yet.
        own = self._loop_thread is not None and self._loop_thread.loop is loop
        return loop.is_running() or (own and not loop.is_closed())

    def is_on_workers(self, group: Group) -> bool:
        """Whether its handlers run on worker threads, which finish their message even after the bus is garbage."""
        return all(consumer.executor is self.pool for consumer in group.consumers)

    def are_at_rest(self) -> bool:
        """Whether no handler is running on any loop, except the caller."""
        return all(executor.is_at_rest() for executor in list(self._executors.values()))

    def start(self, worker_count: int | None) -> None:
        if worker_count is not None:
            self.pool.size = worker_count
        # `paused` first: a worker that starts before it is reset would give up its slot again.
        self._delivery.paused = False
        self.pool.start()

    def pause(self, timeout_s: float | None, spared: Collection[threading.Thread] = ()) -> bool:
        """Deliver nothing more. False if a thread was still busy at the timeout; see WorkerPool.stop."""
        # Before the stop: slots end after their current message, and new wake-ups are given up. Loops need no stop;
        # their slots see `paused` when they take the next message.
        self._delivery.paused = True
        # A worker may run a handler that waits for a free place: it has to be woken, or the stop would wait for it.
        self.wake_publishers()
        return self.pool.stop(timeout_s, list(spared))

    def end_loop(
        self,
        timeout_s: float | None,
        slots: "Collection[asyncio.Task[None]]",
        threads: Collection[threading.Thread],
    ) -> None:
        """End the bus's own loop, if it has one; see LoopThread.stop."""
        if self._loop_thread is not None:
            self._loop_thread.stop(timeout_s, slots, threads)

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
        if not self.adopts_loops:
            return None
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None

    def _executor_on(self, loop: asyncio.AbstractEventLoop) -> LoopExecutor:
        with LOCK:
            if loop not in self._executors:
                # A program that calls asyncio.run for each job makes a new loop each time. Executors of closed loops
                # are removed here, so that they do not accumulate; one with slots left is kept until `abandon` has
                # requeued its messages.
                closed = [other for other in self._executors.values() if other.loop.is_closed() and other.is_empty()]
                for other in closed:
                    del self._executors[other.loop]
                own = self._loop_thread is not None and self._loop_thread.loop is loop
                watch = LoopWatch(loop, self._timers, self._monotonic_ns)
                self._executors[loop] = LoopExecutor(self._delivery, loop, watch, report, own)
            return self._executors[loop]

    def _home_executor(self) -> LoopExecutor:
        """The loop that the bus was entered on, else the running one, else a loop thread of its own."""
        # Under LOCK, because two first messages at the same time must not start two loop threads.
        with LOCK:
            if self.home is None or self.home.is_closed():
                self.home = self._running_loop() or self._own_loop()
            return self._executor_on(self.home)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop_thread is None:
            self._loop_thread = LoopThread()
        return self._loop_thread.loop


def _end_slots(
    executor: LoopExecutor, spared: "list[asyncio.Task[None]]", ended: Callable[[asyncio.AbstractEventLoop], None]
) -> None:
    """Cancel the slots on the loop's thread, and call `ended` when all of them have ended."""
    tasks = executor.cancel_all(spared)
    if tasks:
        asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: ended(executor.loop))
    else:
        ended(executor.loop)
