"""Backpressure on a persistent channel with drop_policy `block`: blocked publishes, first come, first served.

    publish ──no free place──▶ PublishQueue ──▶ BlockedResult, which the caller may await or not
                                   │ a message is settled: `advance` tries the first blocked publish
                                   ▼
                               store.apply ──durable──▶ the BlockedResult is resolved

In memory a blocked publisher waits itself and then posts (pubsub/backpressure.py). Here a publish returns the answer of
a store, which the caller may ignore. So the queue waits in its place: the thread that settles a message stores the
first blocked publish. No lock is held while it does.

A handler that waits for the result is in the wait graph (pubsub/wait_graph.py), as on a channel in memory: where it
would wait for itself, its publish is refused at once. A handler that ignores the result does not wait.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from unibus.bus.pubsub.backpressure import cyclic
from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import FullReason
from unibus.bus.pubsub.group import Group
from unibus.bus.pubsub.wait_graph import WaitGraph
from unibus.bus.timers import Timers
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, BusError, QueueFull, StoreFailed, StoreFull
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import CommitResult, Pending

log = SafeLogger("unibus")
T = TypeVar("T")
U = TypeVar("U")

LOOK_AGAIN_NS: Final = 1_000_000_000
"""A queue is notified of every settlement in its own process. Places that become free otherwise (messages expire, a
group is deleted) are found by this poll."""


_TOO_MANY: Final = FullReason(
    "", "publish more slowly, add workers, delete unused groups, raise max_queue_size, or use drop_policy 'block'"
)


def queue_full(target: Channel, messages: list[Message], reason: FullReason = _TOO_MANY) -> QueueFull:
    return QueueFull(
        f"channel {target.name!r} is full: a group has {target.stored_max} unsettled messages (max_queue_size)"
        f"{reason.what}",
        reason.hint,
        messages[0] if len(messages) == 1 else messages,
    )


class BlockedPublish:
    """A publish that waits for a free place. `admit` tries to store it, and returns None while the channel is full."""

    def __init__(self, messages: list[Message], admit: Callable[[], Pending[list[object]] | None]) -> None:
        self.messages = messages
        self.admit = admit
        self.outcome = CommitResult(None)
        self.answer: Pending[list[object]] = Pending([], self.outcome)
        self.is_wanted = True  # False if the caller gave up while `admit` was running.
        self.is_asked_for = False  # A caller awaits the result: an error reaches it and need not be logged.
        self.group: Group | None = None  # The group of the handler that waits for the result.

    def stored(self, pending: Pending[list[object]]) -> None:
        failed = pending.error is not None
        self.outcome.decide((lambda: cast(BaseException, pending.error)) if failed else None)


class PublishQueue:
    """The blocked publishes of one channel, first come, first served. May be used from any thread and event loop."""

    def __init__(self, target: Channel, timers: Timers, graph: WaitGraph) -> None:
        self._target = target
        self._timers = timers
        self._graph = graph
        # Protects `_waiting`, `_calls` and `_is_over`. Released before `admit`, which stores and may call user code,
        # and before an outcome is decided, which wakes tasks.
        self._lock = threading.Lock()
        self._waiting: deque[BlockedPublish] = deque()
        self._calls = 0  # Calls of `advance` since one of them began to work; 0: none works.
        self._looks_again = False
        self._is_over = False  # The bus is closed: no place will become free.

    def is_waiting(self) -> bool:
        """Whether publishes are blocked, or being tried: a new publish has to queue behind them."""
        return bool(self._waiting) or self._calls > 0

    def join(self, blocked: BlockedPublish, timeout_s: float | None) -> None:
        with self._lock:
            self._waiting.append(blocked)
        if timeout_s is not None:
            self._timers.after(round(timeout_s * 1e9), partial(self.refuse, blocked))
        self._look_again_later()
        self.advance()  # A message may have been settled between the failed admission and the append above.

    def refuse(self, blocked: BlockedPublish, reason: FullReason = _TOO_MANY) -> None:
        """Fail a blocked publish with QueueFull, at its timeout. No effect if it was stored or has left."""
        if self.leave(blocked):
            self._refused(blocked, queue_full(self._target, blocked.messages, reason))

    def begin_wait(self, blocked: BlockedPublish) -> None:
        """The caller is about to wait for the result. Refuse the publish if the caller would wait for itself."""
        blocked.is_asked_for = True
        blocked.group = self._graph.current_group()
        if blocked.group is not None:
            cycle = self._graph.enter(blocked.group, blocked, self._target)
            if cycle:
                self.refuse(blocked, cyclic(cycle))

    def end_wait(self, blocked: BlockedPublish) -> None:
        if blocked.group is not None:
            self._graph.leave(blocked.group, blocked)

    def leave(self, blocked: BlockedPublish) -> bool:
        """Remove a blocked publish. False if it is not in the queue any more."""
        with self._lock:
            # Admitted, refused, or popped by a thread that tries it right now. A publish that is being stored cannot be
            # undone: its caller was cancelled and does not learn the result, as with any write that has begun.
            if blocked not in self._waiting:
                blocked.is_wanted = False  # If another thread is trying it in vain right now, that does not requeue it.
                return False
            self._waiting.remove(blocked)
        self.advance()  # A smaller batch behind it may fit.
        return True

    def _refused(self, blocked: BlockedPublish, error: BaseException) -> None:
        if isinstance(error, BusError):
            self._target.metrics.count_refusal(error, len(blocked.messages))
        if not blocked.is_asked_for:
            log.warning("a publish that was not awaited has failed: %s", error)
        blocked.outcome.decide(lambda: error)

    def advance(self) -> None:
        """Store the first publishes while they fit.

        Only one thread works at a time; a call meanwhile is counted in `_calls` and makes that thread try again, so no
        place that becomes free is missed.
        """
        with self._lock:
            if not self._waiting and not self._calls:
                return
            self._calls += 1
            if self._calls > 1:
                return
        try:
            self._advance()
        except BaseException:
            with self._lock:
                self._calls = 0  # Interrupted by Ctrl-C: the next call looks again.
            raise

    def _advance(self) -> None:
        seen = 1
        while True:
            while self._admit_first():
                pass
            with self._lock:
                if seen == self._calls:
                    self._calls = 0
                    return
                seen = self._calls

    def _admit_first(self) -> bool:
        """Try the first publish. False if the queue is empty or the channel is still full."""
        with self._lock:
            if not self._waiting:
                return False
            # Taken out while it is tried, so that only this thread decides it. `is_waiting` still returns True, by
            # `_calls`: no new publish overtakes it meanwhile.
            blocked = self._waiting.popleft()
        try:
            pending = blocked.admit()
        except StoreFull:
            pending = None  # A full store counts as a full channel: it is tried again later.
        except Exception as error:
            self._refused(blocked, error)
            return True
        except BaseException:
            # Ctrl-C in the thread that settles, which is not the publisher's. Whether `apply` was reached is unknown,
            # so the publisher gets an error that says so, instead of waiting for ever.
            self._refused(blocked, self._interrupted())
            raise
        if pending is not None:
            pending.on_done(blocked.stored)
            return True
        with self._lock:
            # Back to the front, unless its caller left or the bus closed during the try: neither could find it in the
            # queue.
            if blocked.is_wanted and not self._is_over and self._may_wait(blocked):
                self._waiting.appendleft(blocked)
                return False
        self._refused(blocked, self._closed() if self._is_over else queue_full(self._target, blocked.messages))
        return True

    def _may_wait(self, blocked: BlockedPublish) -> bool:
        """Whether it may be admitted in time: the settings of the channel may have changed since it came."""
        bound = self._target.stored_max
        return self._target.waits and (bound == 0 or len(blocked.messages) <= bound)

    def _look_again_later(self) -> None:
        if not self._looks_again:
            self._looks_again = True
            self._timers.after(LOOK_AGAIN_NS, self._look_again)

    def _look_again(self) -> None:
        # Before the look: a publish that joins after it sets a new timer itself. Two timers at once are harmless.
        self._looks_again = False
        self.advance()
        # A request or a new subscription may have closed a cycle around a handler that waits already.
        for blocked in list(self._waiting):
            cycle = [] if blocked.group is None else self._graph.cycle(blocked.group, self._target)
            if cycle:
                self.refuse(blocked, cyclic(cycle))
        if self._waiting:
            self._look_again_later()

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            waiting = list(self._waiting)
            self._waiting.clear()
        # A publish that a thread tries right now is not in the list: `_admit_first` sees `_is_over` and refuses it.
        for blocked in waiting:
            self._refused(blocked, self._closed())

    def _interrupted(self) -> StoreFailed:
        return StoreFailed(
            f"a publish to {self._target.name!r} was interrupted: it may be stored, or not", "publish it again"
        )

    def _closed(self) -> BusClosed:
        return BusClosed(
            f"the bus was closed: nothing was published to {self._target.name!r}", "publish before close()"
        )


class BlockedResult(Generic[T]):
    """The result of a blocked publish, for tasks and threads. A cancelled waiter removes its publish from the queue."""

    def __init__(self, queue: PublishQueue, blocked: BlockedPublish) -> None:
        self._queue = queue
        self._blocked = blocked

    def map(self, view: Callable[[T], U]) -> "BlockedResult[U]":
        self._blocked.answer.map(cast("Callable[[list[object]], object]", view))
        return cast("BlockedResult[U]", self)

    def on_done(self, call: "Callable[[Pending[list[object]]], None]") -> None:
        self._blocked.answer.on_done(call)

    def __await__(self) -> Generator[Any, None, T]:
        self._queue.begin_wait(self._blocked)
        try:
            return cast(T, (yield from self._blocked.answer.__await__()))
        except asyncio.CancelledError:
            # A cancelled caller expects that nothing more happens: remove the publish, if it is not stored yet.
            self._queue.leave(self._blocked)
            raise
        finally:
            self._queue.end_wait(self._blocked)

    def wait(self, timeout_s: float | None = None) -> T:
        """Block this thread until the publish is durable. If an event loop runs in it, raises QueueFull instead."""
        try:
            self._queue.begin_wait(self._blocked)
            # Blocking the loop could block the very handlers that free a place.
            if asyncio._get_running_loop() is not None:
                self._queue.refuse(self._blocked)
            return cast(T, self._blocked.answer.wait(timeout_s))
        except KeyboardInterrupt:
            self._queue.leave(self._blocked)
            raise
        finally:
            self._queue.end_wait(self._blocked)
