"""Runs work outside of the event loop: encoding many messages, waiting for a store, reading from disk.

A server has one loop for all its clients, and nothing may block it for more than a few milliseconds.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

from unibus.bus.pubsub.loop_call import notify_loop

T = TypeVar("T")

INLINE_BYTES: Final = 128 * 1024
INLINE_COUNT: Final = 50
"""Messages within both limits are encoded on the loop, in about a millisecond; more of them in a thread."""


async def encode_in_thread(size_bytes: int, count: int, call: Callable[[], T]) -> T:
    """Run `call` on the loop for a few small messages, in a thread for many or large ones."""
    if size_bytes <= INLINE_BYTES and count <= INLINE_COUNT:
        return call()
    return await asyncio.to_thread(call)


def begin_in_thread(name: str, call: Callable[[], T]) -> "asyncio.Future[T]":
    """Start work that may take long in its own thread. The threads of `asyncio.to_thread` are few, and for short work.

    A caller that abandons the future must end the work itself: a thread cannot be cancelled.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        # The caller has gone. The result of the thread is dropped.
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        # Everything, SystemExit too: without an answer the caller would wait for ever.
        except BaseException as raised:
            error = raised
        notify_loop(loop, partial(finish, result, error))

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
