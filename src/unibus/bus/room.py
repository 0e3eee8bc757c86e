"""Waiting for room on a channel whose drop_policy is `block`.

A waiter first asks to be told, then tries once more, and only then waits: so no room that comes in between is missed.
"""

import asyncio
import threading

from unibus.bus.channel import FULL, Channel
from unibus.bus.exchange import Exchange
from unibus.bus.loop_call import notify_loop
from unibus.core.message import Message


def post_when_room(exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None) -> int:
    """Block the thread until the messages were admitted; FULL at the time-out."""
    # No lock of our own is held while we post: whoever calls back may hold the bus's.
    freed = threading.Event()
    free = freed.set
    deadline_ns = None if timeout_s is None else exchange.monotonic_ns() + int(timeout_s * 1e9)
    try:
        while True:
            freed.clear()
            exchange.wait_for_room(channel, free)
            verdict = exchange.post_many(channel, messages)
            if verdict != FULL:
                return verdict
            left_s = None if deadline_ns is None else (deadline_ns - exchange.monotonic_ns()) / 1e9
            if (left_s is not None and left_s <= 0) or not freed.wait(left_s):
                return FULL
            exchange.channel(channel.name)  # Raises if the bus was closed meanwhile.
    finally:
        channel.stop_waiting(free)


async def post_when_room_async(
    exchange: Exchange, channel: Channel, messages: list[Message], timeout_s: float | None
) -> int:
    """The same without blocking the loop."""
    loop = asyncio.get_running_loop()
    freed = asyncio.Event()

    def free() -> None:
        notify_loop(loop, freed.set)

    try:
        async with asyncio.timeout(timeout_s):
            while True:
                freed.clear()
                exchange.wait_for_room(channel, free)
                verdict = exchange.post_many(channel, messages)
                if verdict != FULL:
                    return verdict
                await freed.wait()
                exchange.channel(channel.name)  # Raises if the bus was closed meanwhile.
    except TimeoutError:
        return FULL
    finally:
        channel.stop_waiting(free)
