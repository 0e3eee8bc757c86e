"""Waiting for room on a channel whose drop_policy is `block`.

A publisher first joins those that wait, then tries if it is the first of them, and only then waits: so no room that
comes in between is missed. It tries again when it is woken; see blocked.py for who wakes it.
"""

import asyncio
import threading

from unibus.bus.blocked import BlockedPublisher
from unibus.bus.channel import FULL, Channel
from unibus.bus.exchange import Exchange
from unibus.core.message import Message


class BlockedThread(BlockedPublisher):
    """A thread that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.freed = threading.Event()

    def wake(self) -> bool:
        self.freed.set()
        return True

    def can_run(self) -> bool:
        return True


class BlockedTask(BlockedPublisher):
    """A task that waits. One whose event loop was stopped or closed may never run again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
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


def post_when_room(exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None) -> int:
    """Block the thread until the messages were admitted; FULL at the time-out."""
    # No lock of our own is held while we post: the code that wakes us may hold the bus's.
    publisher = BlockedThread()
    deadline_ns = None if timeout_s is None else exchange.monotonic_ns() + int(timeout_s * 1e9)
    try:
        exchange.block(channel, publisher)
        verdict = _first_try(exchange, channel, messages, publisher)
        while verdict == FULL:
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
    publisher = BlockedTask(asyncio.get_running_loop())
    try:
        exchange.block(channel, publisher)
        async with asyncio.timeout(timeout_s):
            verdict = _first_try(exchange, channel, messages, publisher)
            while verdict == FULL:
                await publisher.freed.wait()
                publisher.freed.clear()
                verdict = _next_try(exchange, channel, messages, publisher)
            return verdict
    except TimeoutError:
        return FULL
    finally:
        channel.unblock(publisher)


def _first_try(exchange: Exchange, channel: Channel, messages: list[Message], publisher: BlockedPublisher) -> int:
    """Room may have come before the publisher joined. Behind others it is theirs, and they pass on what is left."""
    return _try(exchange, channel, messages, publisher) if channel.blocked.is_first(publisher) else FULL


def _next_try(exchange: Exchange, channel: Channel, messages: list[Message], publisher: BlockedPublisher) -> int:
    exchange.channel(channel.name)  # Raises if the bus was closed meanwhile.
    return _try(exchange, channel, messages, publisher)


def _try(exchange: Exchange, channel: Channel, messages: list[Message], publisher: BlockedPublisher) -> int:
    verdict: int = exchange.post_many(channel, messages, True)
    if verdict == FULL and channel.has_filter:
        # Another publisher's message may be for other groups, which have room.
        channel.blocked.wake_after(publisher)
    return verdict
