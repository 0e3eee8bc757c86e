"""Awaitables that are ready.

Left uncompiled on purpose: the interpreter hands the value of its own coroutines over without an exception, compiled
code has to raise and catch StopIteration, which costs several times as much.
"""

import asyncio

from unibus.bus.backends import MessageBackend
from unibus.core.message import Message
from unibus.core.views import BusMessage


async def given(message: Message) -> Message:
    return message


async def given_after_others(message: Message) -> Message:
    await asyncio.sleep(0)
    return message


async def given_all(messages: list[Message]) -> list[Message]:
    await asyncio.sleep(0)
    return messages


async def published_by(backend: MessageBackend, message: Message) -> Message:
    await backend.publish(BusMessage(message))
    return message
