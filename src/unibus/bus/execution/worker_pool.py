# mypyc: compiled
"""The worker pool: a few threads that run the slots of sync handlers.

    launch ──▶ _ready (claimed slots) ──▶ worker thread: SlotRunner.run ──▶ idle: parked on its own lock
                                              ▲
               overseer: adds a thread while work waits and every worker is stuck

A thread without work parks on a lock of its own; `launch` releases one such lock. Nothing polls.

A blocking handler occupies its thread, and enough of them would stop all other handlers. So the pool grows beyond its
size when work has waited for `PATIENCE_S` and every thread is stuck; the extra threads end when there is no more work.

The system may refuse to start a thread. A publish does not fail for that, because its message is admitted: the work
waits for the running threads. If no thread runs, the slot becomes idle again and its group is remembered. The next
thread that starts serves those groups; each publish to one of them, each `drain` and `close` tries to start one.
"""

import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable
from functools import partial
from typing import Final, cast, final

from mypy_extensions import i64

from unibus.bus.pubsub.delivery import SlotRunner
from unibus.bus.pubsub.group import Consumer, Group, HandlerExecutor, wake, wake_all
from unibus.core.atomic import LOCK, atomic
from unibus.core.flow.queue import Ring
from unibus.safe_log import SafeLogger
from unibus.threads import DaemonThread

log = SafeLogger("unibus")

PATIENCE_S: Final = 0.05
"""How long work waits before the pool grows: long for a quick handler, short for a stuck one."""


@final
class WorkerPool(HandlerExecutor):
    """Starts threads on demand, up to `size`, and more while all of them are stuck."""

    def __init__(self, delivery: SlotRunner, size: int, report: Callable[[BaseException], None]) -> None:
        # `_ready` and `_parked` change in atomic methods, which pair each slot with a thread in one step, or under
        # LOCK. `threads`, `_alive`, `_overseer` and `_unserved` change under LOCK. `stopped` is a flag that every
        # thread re-reads.
        self.size: i64 = size
        self.threads: i64 = 0
        self.stopped = False
        self._delivery = delivery
        self._report = report
        self._ready = Ring()
        self._parked: list[LockType] = []
        self._served: i64 = 0  # Grows whenever a thread takes work: the overseer sees progress by it.
        self._alive: list[threading.Thread] = []
        self._overseer: LockType | None = None  # The lock that the overseer parks on; None: it does not run.
        self._overseer_parked = False
        self._unserved: list[Group] = []  # Groups whose work found no thread.
        self._is_short = False  # The last thread could not be started, and that was logged.

    def launch(self, consumer: Consumer) -> bool:
        if self.stopped:
            return self._give_up(consumer)
        # The slot is in `_ready` before anything else. Whichever thread takes next finds it, even if no thread can be
        # started now.
        lock = self._enqueue(consumer)
        if lock is not None:
            lock.release()
        elif self.threads < self.size:
            self._start_worker_or_postpone()
        elif self._overseer_parked or self._overseer is None:
            self._call_overseer()
        # After the enqueue, so that every order of launch and stop ends with an empty `_ready`: either the stop empties
        # it, or this check does.
        self._check_stop()
        return True

    def start(self) -> None:
        """Work again after a stop. The caller wakes the groups with a backlog."""
        self.stopped = False

    def stop(self, timeout_s: float | None, spared: list[threading.Thread]) -> bool:
        """Let every thread end after its current message. False if one was still busy at the timeout (it is a daemon).

        Does not wait for the calling thread, nor for `spared` ones, which wait for the caller (deadlock).
        """
        self.release()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        me = threading.current_thread()
        # Iterates over the list that exists now: `_start` replaces the list and never changes it in place.
        for thread in self._alive:
            if thread is not me and thread not in spared:
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        with LOCK:
            self._alive = [thread for thread in self._alive if thread.is_alive()]
            return all([thread is me or thread in spared for thread in self._alive])

    def release(self) -> None:
        """Let the threads end without waiting for them. Messages that no handler has seen stay in their queues."""
        # Set before the parked threads are woken: each of them checks it before it looks for work.
        self.stopped = True
        with LOCK:
            parked = self._parked
            self._parked = []
            # Not decremented by each thread that ends: after a later start() new threads are counted from 0, and those
            # that are still busy with an old message must not lower that count.
            self.threads = 0
        for lock in parked:
            lock.release()
        self._give_up_ready()
        self._dismiss_overseer()

    def _check_stop(self) -> None:
        """After a slot was put into `_ready`: a stop in between may have emptied `_ready` before that."""
        if self.stopped:
            self._give_up_ready()

    def _give_up(self, consumer: Consumer) -> bool:
        """The pool is stopped: the messages wait for start(). False if start() came meanwhile: it saw the slot claimed
        and woke none, so the caller has to."""
        consumer.group.give_up(consumer)
        return self.stopped

    def _give_up_ready(self) -> None:
        for consumer in self._take_ready():
            if not self._give_up(consumer):
                wake(consumer.group)

    def _enqueue(self, consumer: Consumer) -> LockType | None:
        self._ready.push(consumer)
        return self._parked.pop() if self._parked else None

    def _take(self, lock: LockType) -> Consumer | None:
        """The next consumer to run; None after the thread was added to the parked ones.

        Atomic: a launch either finds the thread parked and wakes it, or the thread finds the work.
        """
        if self._ready.size:
            self._served += 1
            item = self._ready.pop()
            assert isinstance(item, Consumer)
            return item
        if not self.stopped:
            self._parked.append(lock)
        return None

    def _take_ready(self) -> list[Consumer]:
        with LOCK:
            return [cast(Consumer, self._ready.pop()) for _ in range(self._ready.size)]

    def _start_worker(self) -> bool:
        """Start a thread, which also serves the groups that found none before. False if it could not be started."""
        with LOCK:
            if self.stopped:
                return True
            # Counted before the start, in the same locked step as the check, so that two launches do not exceed `size`.
            # `_alive` shows afterwards whether the thread runs; if not, the count is taken back.
            thread = DaemonThread(self._work, f"unibus-worker-{self.threads + 1}")
            self.threads += 1
            try:
                self._start(thread)
            finally:
                if thread not in self._alive:
                    self.threads -= 1
            if thread not in self._alive:
                return False
        self.wake_unserved()
        return True

    def _start_worker_or_postpone(self) -> None:
        """Start a thread for ready work. If that fails, a running thread does the work later; without any it waits."""
        is_started = False
        try:
            is_started = self._start_worker()
        finally:  # Also when Ctrl-C interrupts the start.
            if not is_started and self.threads:
                self._call_overseer()  # It tries again while all running threads are stuck.
            elif not is_started:
                for consumer in self._take_ready():
                    self.put_off(consumer)

    def _start(self, thread: DaemonThread) -> None:
        """Start the thread and list it in `_alive`, also after Ctrl-C, if it runs: `stop` joins exactly those."""
        # Listed before start(): Ctrl-C may interrupt start() after the thread has begun to run, and a running thread
        # that is not listed would never be joined. `withdraw` decides which of the two happened (unibus/threads.py).
        alive: list[threading.Thread] = [other for other in self._alive if other.is_alive()]
        self._alive = [*alive, thread]
        try:
            thread.start()
            self._is_short = False
        except BaseException as error:
            if thread.withdraw():
                self._alive = alive
            if not isinstance(error, RuntimeError):
                raise
            self.report_missing(error)

    def report_missing(self, error: RuntimeError) -> None:
        """Log that no thread could be started: once, until one was started again."""
        if not self._is_short:
            self._is_short = True
            log.error("no worker thread could be started, messages wait until one can: %s", error)

    def put_off(self, consumer: Consumer) -> None:
        """A claimed slot found no thread: make it idle, so that the next publish to its group tries again."""
        consumer.group.give_up(consumer)
        # Given up first: a publish may already try again. The entry in `_unserved` then only causes one wake-up too
        # many.
        with LOCK:
            if consumer.group not in self._unserved:
                self._unserved.append(consumer.group)

    def wake_unserved(self) -> None:
        """Wake the groups whose work found no thread."""
        if self._unserved:
            with LOCK:
                unserved = self._unserved
                self._unserved = []
            for group in unserved:
                wake_all(group)

    def _work(self) -> None:
        # Acquired once, so that the next acquire blocks until `launch` releases it. A raw lock is the cheapest way to
        # park one particular thread; a condition would wake through a queue of its own.
        lock = allocate_lock()
        lock.acquire()
        while not self.stopped:
            consumer = self._take(lock)
            if consumer is not None:
                self._run(consumer)
            elif self.stopped or (self.threads > self.size and self._leave(lock)):
                return
            else:
                lock.acquire()

    def _run(self, consumer: Consumer) -> None:
        try:
            again = self._delivery.run(consumer)
        except BaseException as error:
            # A handler raised SystemExit or the like: the message was settled, the thread continues.
            self._report(error)
            again = True
        # Back to the end of `_ready` after its quantum: slots of other consumers get their turn. False: the pool was
        # stopped and started again meanwhile, and the start found this slot claimed, so its group is woken here.
        if again and not self.launch(consumer):
            wake(consumer.group)

    def _leave(self, lock: LockType) -> bool:
        """An extra thread ends, unless a launch has just given it work."""
        # Not in the list: a launch has popped the lock a moment ago and relies on this thread. It stays.
        if lock in self._parked:
            self._parked.remove(lock)
            self.threads -= 1
            return True
        return False

    # The overseer: one thread that is awake only while work waits and all workers are busy.

    def _call_overseer(self) -> None:
        with LOCK:
            # The lock is also the identity of the overseer: one that was dismissed sees another lock, or None, and
            # ends, even if a new overseer was started meanwhile.
            if self._overseer is None and not self.stopped:
                lock = allocate_lock()
                lock.acquire()
                self._overseer = lock
                thread = DaemonThread(partial(self._oversee, lock), "unibus-overseer")
                try:
                    self._start(thread)
                finally:
                    if thread not in self._alive:
                        self._overseer = None
            elif self._overseer is not None and self._overseer_parked:
                self._overseer_parked = False
                self._overseer.release()

    def _dismiss_overseer(self) -> None:
        with LOCK:
            if self._overseer is not None:
                lock = self._overseer
                self._overseer = None
                self._overseer_parked = False
                if lock.locked():
                    lock.release()  # Ends both its parking and its PATIENCE_S wait; it then sees the dismissal.

    def _oversee(self, lock: LockType) -> None:
        while self._overseer is lock:
            if self._ready.size == 0:
                if self._park_overseer(lock):
                    lock.acquire()
                continue
            # No progress within PATIENCE_S although work waits and no thread is parked: every worker is stuck in a
            # handler. A queue that is merely long shows progress and adds no thread.
            served = self._served
            lock.acquire(True, PATIENCE_S)
            if self._overseer is lock and self._served == served and self._ready.size and not self._parked:
                self._start_worker()

    def _park_overseer(self, lock: LockType) -> bool:
        # The check and the flag in one step: a launch that enqueues after the check sees the flag and wakes the
        # overseer.
        with LOCK:
            self._overseer_parked = self._overseer is lock and self._ready.size == 0
            return self._overseer_parked


atomic(WorkerPool, "_enqueue", "_take", "_leave")
