"""Waiting for room on a channel whose drop_policy is `block`.

A publisher first joins those that wait, then tries if a place is free for it, and only then waits: so no place that
comes free in between is missed. It tries again when it is woken; see blocked.py for which publisher gets a place.
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
    """A thread that waits."""

    def __init__(self, size: int) -> None:
        super().__init__(size, is_prompt=True)
        self.freed = threading.Event()

    def wake(self) -> bool:
        self.freed.set()
        return True

    def can_run(self) -> bool:
        return True


class BlockedTask(BlockedPublisher):
    """A task that waits. Its event loop may be busy for long; one that was stopped or closed may never run it again."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(size, is_prompt=False)
        self.freed = asyncio.Event()
        self._loop = loop

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self.freed.set)
        except RuntimeError:
            return False
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


def post_when_room(exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None) -> int:
    """Block the thread until the messages were admitted; FULL at the time-out."""
    # No lock of our own is held while we post: the code that wakes us may hold the bus's.
    publisher = BlockedThread(len(messages))
    deadline_ns = None if timeout_s is None else exchange.monotonic_ns() + int(timeout_s * 1e9)
    try:
        exchange.block(channel, publisher)
        verdict = _next_try(exchange, channel, messages, publisher)
        while verdict == FULL and may_wait(channel, messages):
            left_s = None if deadline_ns is None else (deadline_ns - exchange.monotonic_ns()) / 1e9
            if (left_s is not None and left_s <= 0) or not publisher.freed.wait(left_s):
                return FULL
            publisher.freed.clear()
            verdict = _next_try(exchange, channel, messages, publisher)
        return verdict
    finally:
        channel.unblock(publisher)


async def post_when_room_async(
    exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None
) -> int:
    """The same without blocking the loop."""
    publisher = BlockedTask(len(messages), asyncio.get_running_loop())
    try:
        exchange.block(channel, publisher)
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
    """Try if a place was granted, also by this very call: for a publisher that has just joined, or was woken."""
    exchange.channel(channel.name)  # Raises if the bus was closed meanwhile.
    blocked = channel.blocked
    if not blocked.has_place(publisher):
        blocked.resume(publisher)
        if not blocked.has_place(publisher):
            return FULL
    verdict: int = exchange.post_many(channel, messages, True, publisher)
    if verdict == FULL:
        blocked.give_back(publisher)
        if channel.has_filter:
            # Another publisher's message may be for other groups, which have room.
            blocked.grant_after(publisher)
    return verdict
