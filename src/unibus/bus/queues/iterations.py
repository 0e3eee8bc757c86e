"""What `receive` returns: an iteration over messages that explains itself to code of the other API.

    async for message in bus.receive(…)     __aiter__ gives the generator itself: a loop has no step more than it
    for message in bus.receive(…)           UsageError: write `async for`
    await bus.receive(…)                    UsageError: write `async for`, or receive_batch for a list

A generator cannot have these methods, and Python's own TypeError names a class of the interpreter. See other_api.py.
"""

from collections.abc import AsyncGenerator, Generator

from unibus.bus.other_api import AWAITED, refuse
from unibus.bus.queues.received import Received, SyncReceived


class ReceivedMessages:
    """The messages of one `receive` of the async bus. Ends when none arrives in time."""

    __slots__ = ("_messages",)

    def __init__(self, messages: AsyncGenerator[Received]) -> None:
        self._messages = messages

    def __aiter__(self) -> AsyncGenerator[Received]:
        return self._messages

    async def __anext__(self) -> Received:
        return await anext(self._messages)

    async def aclose(self) -> None:
        """End the iteration; messages that were received stay locked until they are settled."""
        await self._messages.aclose()


class SyncReceivedMessages:
    """The messages of one `receive` of the sync bus."""

    __slots__ = ("_messages",)

    def __init__(self, messages: Generator[SyncReceived]) -> None:
        self._messages = messages

    def __iter__(self) -> Generator[SyncReceived]:
        return self._messages

    def __next__(self) -> SyncReceived:
        return next(self._messages)

    def close(self) -> None:
        """End the iteration; messages that were received stay locked until they are settled."""
        self._messages.close()


refuse(
    ReceivedMessages,
    ("__iter__", "__next__", "__getitem__"),
    "receive() of the async bus is no list: `for` cannot read it",
    "write `async for message in bus.receive(…):`; without async use unibus.sync.MessageBus",
)
refuse(
    ReceivedMessages,
    AWAITED,
    "receive() gives one message after the other, and is not awaited",
    "write `async for message in bus.receive(…):`, or `await bus.receive_batch(…)` for a list",
)
refuse(
    SyncReceivedMessages,
    (*AWAITED, "__aiter__", "__anext__"),
    "receive() of unibus.sync.MessageBus is the one without async: `async for` and `await` cannot read it",
    "write `for message in bus.receive(…):`; in async code use unibus.MessageBus",
)
refuse(
    SyncReceivedMessages,
    ("__getitem__",),
    "receive() gives one message after the other, and is no list",
    "write `for message in bus.receive(…):`, or `bus.receive_batch(…)` for a list",
)
