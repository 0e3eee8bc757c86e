"""Awaitables that are ready.

Left uncompiled on purpose: the interpreter hands the value of its own coroutines over without an exception, compiled
code has to raise and catch StopIteration, which costs several times as much. Their names are those that Python shows
when somebody forgets to await.
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
