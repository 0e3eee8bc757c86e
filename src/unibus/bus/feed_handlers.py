"""What a slot calls for a message of a durable subscription, in place of the user's handler. It settles the message.

Left uncompiled, while the feed itself is compiled: a compiled coroutine hands its result over by raising, which costs
more than all that is done here (see CONTRIBUTING, "What mypyc taught us").
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from unibus.bus.aftermath import UNANSWERED
from unibus.bus.delivery import call
from unibus.bus.feeds import Feed
from unibus.bus.group import Consumer
from unibus.core.message import Message


def feed_handler(feed: Feed, inner: Consumer, is_async: bool) -> Callable[..., object]:
    """`inner` has the user's own handler."""
    return _async_handler(feed, inner) if is_async else _sync_handler(feed, inner)


def _sync_handler(feed: Feed, inner: Consumer) -> Callable[[Message], object]:
    def handle(message: Message) -> object:
        claimed = feed.admit(message)
        if claimed is None:
            return UNANSWERED
        try:
            result = call(inner, message)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            feed.failed(inner, claimed, message, error)
            return UNANSWERED
        return feed.returned(claimed, message, result)

    return handle


def _async_handler(feed: Feed, inner: Consumer) -> Callable[[Message], Awaitable[object]]:
    async def handle(message: Message) -> object:
        claimed = feed.admit(message)
        if claimed is None:
            return UNANSWERED
        task = asyncio.current_task()
        assert task is not None
        if not feed.begin(claimed, message, task):
            return UNANSWERED
        try:
            result = await cast("Awaitable[object]", call(inner, message))
        except asyncio.CancelledError as error:
            if not task.cancelling():
                feed.failed(inner, claimed, message, error)  # The handler's own doing.
            elif feed.takes_back(claimed, message):
                feed.end(claimed, task)
                if task.cancelling():
                    # More than the lost lock: the slot has to end. It is cancelled where it waits next.
                    task.uncancel()
                    task.cancel()
            else:
                message.expires_ns = 0
                raise  # The slot ends, and gives the message back to its queue.
            return UNANSWERED
        except (Exception, SystemExit) as error:
            feed.failed(inner, claimed, message, error)
            return UNANSWERED
        finally:
            feed.end(claimed, task)
        return feed.returned(claimed, message, result)

    return handle
