"""One change of settings after the other: what reads settings and writes them again must not overlap with its like."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from unibus.bus.api.broker import Broker

T = TypeVar("T")


class Turns:
    """Of one server and its broker."""

    def __init__(self, broker: Broker) -> None:
        self._one: Final = asyncio.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """In a thread: it waits for the disk."""
        async with self._one:
            return await asyncio.to_thread(call)
