"""Backpressure: a publisher waits on a full channel whose drop_policy is `block`.

    block (register) ──▶ try ──admitted──▶ unblock, return
                          ▲ │ FULL
                    woken │ ▼
                          wait until the timeout ──▶ unblock, return FULL

A publisher registers first, then tries, and only then waits. In another order a place that becomes free between the
try and the registration would wake no publisher, and this one could wait for ever. blocked.py decides which publisher
gets a free place.
"""

import asyncio
import threading
from functools import partial
from typing import Final

from unibus.bus.pubsub.blocked import BlockedPublisher
from unibus.bus.pubsub.channel import FULL, Channel
from unibus.bus.pubsub.exchange import Exchange
from unibus.clock import Timers
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message

LOOK_AGAIN_NS: Final = 1_000_000_000
"""How often a place is looked for that no side reports: messages expire, or a loop stops with a place for its task."""


class BlockedThread(BlockedPublisher):
    """A blocked thread."""

    def __init__(self, size: int) -> None:
        super().__init__(size, is_prompt=True)
        self.freed = threading.Event()

    def wake(self) -> bool:
        self.freed.set()
        return True

    def can_run(self) -> bool:
        return True


class BlockedTask(BlockedPublisher):
    """A blocked task. Its event loop may be busy for long; a stopped or closed loop may never run the task again."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(size, is_prompt=False)
        self.freed = asyncio.Event()
        self._loop = loop

    def wake(self) -> bool:
        # A closed loop raises, a stopped one accepts the call and may never run it. Both mean: do not count on this
        # task.
        try:
            self._loop.call_soon_threadsafe(self.freed.set)
        except RuntimeError:
            return False  # The loop is closed.
        return self.can_run()

    def can_run(self) -> bool:
        return self._loop.is_running()


class RepeatedLooks:
    """Looks at the blocked publishers of a channel every second, as long as one waits."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def begin(self, channel: Channel) -> None:
        with LOCK:
            if channel.is_looked_at:
                return
            channel.is_looked_at = True
        self._timers.after(LOOK_AGAIN_NS, partial(self._look, channel))

    def _look(self, channel: Channel) -> None:
        channel.is_looked_at = False  # Before the count: a publisher that comes after this sets a timer itself.
        if channel.blocked.count:
            channel.blocked.look_again()
            self.begin(channel)


def post_blocking(exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None) -> int:
    """Block the thread until the channel has admitted all messages; returns FULL at the timeout."""
    # Hold no lock of our own while posting: the thread that wakes this one may hold the lock of the bus (deadlock).
    publisher = BlockedThread(len(messages))
    deadline_ns = None if timeout_s is None else exchange.monotonic_ns() + int(timeout_s * 1e9)
    # `block` is inside the try: Ctrl-C just after the registration must not leave a publisher in the queue that never
    # tries, because the places reserved for it would be lost to all others.
    try:
        exchange.block(channel, publisher)
        verdict = _next_try(exchange, channel, messages, publisher)
        while verdict == FULL and may_wait(channel, messages):
            left_s = None if deadline_ns is None else (deadline_ns - exchange.monotonic_ns()) / 1e9
            if (left_s is not None and left_s <= 0) or not publisher.freed.wait(left_s):
                return FULL
            # Clear before the try, not after: a wake-up during the try then ends the next wait at once, and is not
            # erased.
            publisher.freed.clear()
            verdict = _next_try(exchange, channel, messages, publisher)
        return verdict
    finally:
        channel.unblock(publisher)


async def post_blocking_async(
    exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None
) -> int:
    """The same for a task: it awaits and does not block the event loop."""
    publisher = BlockedTask(len(messages), asyncio.get_running_loop())
    try:
        exchange.block(channel, publisher)
        # A timeout or a cancellation can only arrive at an await, and the try has none: the batch is either admitted,
        # and the verdict returned, or nothing was published. The `finally` passes an unused granted place to the next
        # publisher.
        async with asyncio.timeout(timeout_s):
            verdict = _next_try(exchange, channel, messages, publisher)
            while verdict == FULL and may_wait(channel, messages):
                await publisher.freed.wait()
                publisher.freed.clear()
                verdict = _next_try(exchange, channel, messages, publisher)
            return verdict
    except TimeoutError:
        return FULL
    finally:
        channel.unblock(publisher)


def may_wait(channel: Channel, messages: list[Message]) -> bool:
    """Whether they may get a place in time. Asked before each wait: the settings of a channel may change meanwhile."""
    fits = channel.max_size == 0 or len(messages) <= channel.max_size
    return fits and channel.waits


def _next_try(exchange: Exchange, channel: Channel, messages: list[Message], publisher: BlockedPublisher) -> int:
    """Post if the publisher has a granted place, or gets one from this call. FULL: it has to wait.

    Called by a publisher that has just registered, or was woken.
    """
    exchange.channel(channel.name)  # Raises BusClosed if the bus was closed meanwhile.
    blocked = channel.blocked
    if not blocked.has_place(publisher):
        blocked.resume(publisher)
        if not blocked.has_place(publisher):
            return FULL
    verdict: int = exchange.post_many(channel, messages, True, publisher)
    if verdict == FULL:
        blocked.wait_again(publisher)
        if channel.has_filter:
            # The messages of the next publisher may go to other groups, which may have free places.
            blocked.grant_after(publisher)
    return verdict
