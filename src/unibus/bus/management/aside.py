"""Work beside the event loop: encoding messages, and whatever waits for a store or reads from a disk.

A server has one loop for all its clients, and nothing may hold it for more than a few milliseconds.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

INLINE_BYTES: Final = 128 * 1024
INLINE_COUNT: Final = 50
"""Messages up to both are encoded on the loop in about a millisecond; more of them in a thread."""


async def encoded_aside(size_bytes: int, count: int, call: Callable[[], T]) -> T:
    """Call it here for a few small messages, in a thread for many or large ones."""
    if size_bytes <= INLINE_BYTES and count <= INLINE_COUNT:
        return call()
    return await asyncio.to_thread(call)
