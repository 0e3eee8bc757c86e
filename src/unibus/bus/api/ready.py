"""Coroutines with a result that is ready: what an async `publish` returns after it has admitted the message.

Not compiled on purpose: the interpreter passes the result of its own coroutines without an exception; compiled code has
to raise and catch StopIteration, which costs several times as much. Their names appear in Python's warning about a
coroutine that was never awaited, so they are those of the methods.
"""

import asyncio
from collections.abc import Awaitable

from unibus.bus.compat.backends import MessageBackend
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage


async def publish(message: Message) -> Message:
    return message


async def publish_after_others(message: Message) -> Message:
    await asyncio.sleep(0)
    return message


async def publish_many(messages: list[Message]) -> list[Message]:
    await asyncio.sleep(0)
    return messages


async def request(answer: Awaitable[object]) -> object:
    return await answer


async def published_by(backend: MessageBackend, message: Message) -> Message:
    await backend.publish(BusMessage(message))
    return message
