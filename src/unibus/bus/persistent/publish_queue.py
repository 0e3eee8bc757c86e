"""Waiting for room on a persistent channel whose drop_policy is `block`: a line, first come, first served.

In memory a publisher waits itself (room.py), and what it publishes is admitted by the way. Here a publish gives the
answer of a store, which need not be waited for. So the line does the waiting: whoever settles a message lets the first
of the line try again, in its own thread. No lock is held meanwhile.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from unibus.bus.pubsub.channel import Channel
from unibus.bus.timers import Timers
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, BusError, QueueFull, StoreFailed, StoreFull
from unibus.stores.seam.pending import CommitResult, Pending

log = logging.getLogger("unibus")
T = TypeVar("T")
U = TypeVar("U")

LOOK_AGAIN_NS: Final = 1_000_000_000
"""A line is told of every settlement of its own process. Room that comes otherwise, when messages expire or a group is
deleted, is found so often."""


def queue_full(target: Channel, messages: list[Message]) -> QueueFull:
    return QueueFull(
        f"channel {target.name!r} has a group with {target.stored_max} unsettled messages, its bound",
        "slow down, raise max_queue_size, add workers, end a group that nobody needs, or choose drop_policy 'block'",
        messages[0] if len(messages) == 1 else messages,
    )


class BlockedPublish:
    """A publish that stands in line. `admit` tries to store it; None says that there is no room yet."""

    def __init__(self, messages: list[Message], admit: Callable[[], Pending[list[object]] | None]) -> None:
        self.messages = messages
        self.admit = admit
        self.outcome = CommitResult(None)
        self.answer: Pending[list[object]] = Pending([], self.outcome)
        self.is_wanted = True  # False when it left the line while it was being tried.
        self.is_asked_for = False

    def stored(self, pending: Pending[list[object]]) -> None:
        failed = pending.error is not None
        self.outcome.decide((lambda: cast(BaseException, pending.error)) if failed else None)


class PublishQueue:
    """Those who wait for room on one channel: first come, first served. It belongs to no thread and no loop."""

    def __init__(self, target: Channel, timers: Timers) -> None:
        self._target = target
        self._timers = timers
        self._lock = threading.Lock()
        self._places: deque[BlockedPublish] = deque()
        self._calls = 0  # To look whether there is room, since somebody began to.
        self._looks_again = False
        self._is_over = False  # Nobody makes room any more.

    def is_waiting(self) -> bool:
        return bool(self._places) or self._calls > 0

    def join(self, place: BlockedPublish, timeout_s: float | None) -> None:
        with self._lock:
            self._places.append(place)
        if timeout_s is not None:
            self._timers.after(round(timeout_s * 1e9), partial(self.refuse, place))
        self._look_again_later()
        self.advance()  # What was settled since it was refused has told nobody.

    def refuse(self, place: BlockedPublish) -> None:
        """Let it go with QueueFull, at its time-out. One that is stored, or has left, is left alone."""
        if self.leave(place):
            self._refused(place, queue_full(self._target, place.messages))

    def leave(self, place: BlockedPublish) -> bool:
        """Stand in line no longer. False if it has left already."""
        with self._lock:
            if place not in self._places:
                place.is_wanted = False  # If it is being tried right now, and in vain, that will see it.
                return False
            self._places.remove(place)
        self.advance()  # Those behind it may want less room.
        return True

    def _refused(self, place: BlockedPublish, error: BaseException) -> None:
        if isinstance(error, BusError):
            self._target.metrics.count_refusal(error, len(place.messages))
        if not place.is_asked_for:
            log.warning("nobody waits for a publish that was refused: %s", error)
        place.outcome.decide(lambda: error)

    def advance(self) -> None:
        """Let those in front go as long as there is room. What comes while somebody is at it is not forgotten."""
        with self._lock:
            if not self._places and not self._calls:
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
            while self._first_went():
                pass
            with self._lock:
                if seen == self._calls:
                    self._calls = 0
                    return
                seen = self._calls

    def _first_went(self) -> bool:
        with self._lock:
            if not self._places:
                return False
            place = self._places.popleft()
        try:
            pending = place.admit()
        except StoreFull:
            pending = None  # No room in the store is no room in the channel: it is looked for again.
        except Exception as error:
            self._refused(place, error)
            return True
        except BaseException:
            self._refused(place, self._interrupted())
            raise
        if pending is not None:
            pending.on_done(place.stored)
            return True
        with self._lock:
            if place.is_wanted and not self._is_over and self._may_wait(place):
                self._places.appendleft(place)
                return False
        self._refused(place, self._closed() if self._is_over else queue_full(self._target, place.messages))
        return True

    def _may_wait(self, place: BlockedPublish) -> bool:
        """Whether it may be admitted in time: the settings of the channel may have changed since it came."""
        bound = self._target.stored_max
        return self._target.waits and (bound == 0 or len(place.messages) <= bound)

    def _look_again_later(self) -> None:
        if not self._looks_again:
            self._looks_again = True
            self._timers.after(LOOK_AGAIN_NS, self._look_again)

    def _look_again(self) -> None:
        self._looks_again = False
        self.advance()
        if self._places:
            self._look_again_later()

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            places = list(self._places)
            self._places.clear()
        for place in places:
            self._refused(place, self._closed())

    def _interrupted(self) -> StoreFailed:
        return StoreFailed(
            f"a publish to {self._target.name!r} was interrupted: it may be stored, or not", "publish it again"
        )

    def _closed(self) -> BusClosed:
        return BusClosed(
            f"the bus was closed; nothing was published to {self._target.name!r}", "publish before close()"
        )


class BlockedResult(Generic[T]):
    """The answer to a publish that waits for room, for loops and for threads. Who is cancelled leaves the line."""

    def __init__(self, line: PublishQueue, place: BlockedPublish) -> None:
        self._line = line
        self._place = place

    def map(self, view: Callable[[T], U]) -> "BlockedResult[U]":
        self._place.answer.map(cast("Callable[[list[object]], object]", view))
        return cast("BlockedResult[U]", self)

    def on_done(self, call: "Callable[[Pending[list[object]]], None]") -> None:
        self._place.answer.on_done(call)

    def __await__(self) -> Generator[Any, None, T]:
        self._place.is_asked_for = True
        try:
            return cast(T, (yield from self._place.answer.__await__()))
        except asyncio.CancelledError:
            self._line.leave(self._place)
            raise

    def wait(self, timeout_s: float | None = None) -> T:
        """Block this thread, unless an event loop runs in it: there no room is QueueFull."""
        self._place.is_asked_for = True
        if asyncio._get_running_loop() is not None:
            self._line.refuse(self._place)
        try:
            return cast(T, self._place.answer.wait(timeout_s))
        except KeyboardInterrupt:
            self._line.leave(self._place)
            raise
