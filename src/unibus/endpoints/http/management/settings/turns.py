"""Serialises changes of settings: each reads settings and writes them again, so two must not overlap."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from unibus.bus.api.broker import Broker

T = TypeVar("T")


class Turns:
    """A lock for the changes of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._one: Final = asyncio.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a change alone, in a thread, because it waits for the disk."""
        async with self._one:
            return await asyncio.to_thread(call)
