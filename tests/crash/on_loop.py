"""A store that is asked on an event loop, for threads that work on it as on any other.

Programs with a loop take another way through a store than programs with threads: their commits are made at the end of
a turn, in the loop's own thread, and their tasks go on together. This brings that way into workloads made of threads.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.pending import Pending


class OnLoop:
    """Every verb of the store, called by a task."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="on-loop", daemon=True).start()

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        return self._asking(found) if callable(found) else found

    def _asking(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        async def ask(*given: Any, **named: Any) -> Any:
            return verb(*given, **named)

        def asked(*given: Any, **named: Any) -> Any:
            answer = asyncio.run_coroutine_threadsafe(ask(*given, **named), self._loop).result()
            return Answer(answer, self._loop) if isinstance(answer, Pending) else answer

        return asked


class Answer:
    """A pending answer that is awaited on the loop."""

    def __init__(self, pending: Pending[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._pending = pending
        self._loop = loop

    def wait(self, timeout_s: float | None = None) -> Any:
        async def awaited() -> Any:
            return await self._pending

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(timeout_s)
