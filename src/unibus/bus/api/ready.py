"""The coroutines that methods of the async bus return: with a result that is ready, or with one of a thread.

Not compiled on purpose: the interpreter passes the result of its own coroutines without an exception; compiled code has
to raise and catch StopIteration, which costs several times as much. Their names appear in Python's warning about a
coroutine that was never awaited, so they are those of the methods.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from unibus.bus.compat.backends import MessageBackend
from unibus.bus.history import archive
from unibus.bus.history.trace import MessageTrace
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.stores.seam.store import Store

if TYPE_CHECKING:
    from unibus.stores.query.result import QueryResult
    from unibus.stores.query.run_query import Query


async def publish(message: Message) -> Message:
    return message


async def publish_after_others(message: Message) -> Message:
    # One turn of the loop: the handlers of this loop run before the publisher continues.
    await asyncio.sleep(0)
    return message


async def publish_many(messages: list[Message]) -> list[Message]:
    await asyncio.sleep(0)
    return messages


async def published_by(backend: MessageBackend, message: Message) -> Message:
    await backend.publish(BusMessage(message))
    return message


# These do nothing before they are awaited, so it matters that Python's warning names the method. `begin` makes the
# coroutine that does the work: made by the caller it would be a second one that was never awaited.


async def request(begin: Callable[[], Awaitable[object]]) -> object:
    return await begin()


async def purge(begin: Callable[[], Awaitable[int]]) -> int:
    return await begin()


async def drain(begin: Callable[[], Awaitable[bool]]) -> bool:
    return await begin()


async def stop(begin: Callable[[], Awaitable[bool]]) -> bool:
    return await begin()


async def close(begin: Callable[[], Awaitable[None]]) -> None:
    await begin()


async def query_messages(query: "Query") -> "QueryResult":
    # All below read from disk or wait for the store: in a thread, so that the loop serves others meanwhile.
    return await query.run_aside()


async def trace_message(store: Store, message_id: object) -> MessageTrace:
    return await asyncio.to_thread(archive.trace, store, message_id)


async def prune_before(store: Store, before: object, channel: str | None) -> int:
    return await asyncio.to_thread(archive.prune, store, before, channel)


async def delete_message(store: Store, message_id: object) -> int:
    return await asyncio.to_thread(archive.delete, store, message_id)
