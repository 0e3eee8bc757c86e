"""Exports a store in use as a stream: the lines of `bus/history/export`, a snapshot of one moment.

The last line marks the export as complete. A truncated stream lacks it, and an import refuses such a file.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import closing
from typing import Final

from unibus.bus.api.broker import Broker
from unibus.bus.history.export import Exporting, source_of
from unibus.bus.management.pipes import Pipe, Put
from unibus.errors import RateLimited
from unibus.stores.seam.store import Store

AT_ONCE_MAX: Final = 2
"""Each running export holds a read transaction, or a copy of the messages in memory."""


class Exports:
    """The exports of one server."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._running = 0

    async def stream(self, names: Collection[str]) -> AsyncGenerator[bytes, None]:
        """The lines, in pieces. EntityNotFound for an unknown name, before the first piece."""
        if self._running >= AT_ONCE_MAX:
            raise RateLimited(f"too many exports: {AT_ONCE_MAX} are running", "retry when one of them has ended", 5.0)
        pipe, store = Pipe(), self._broker.store
        thread = pipe.begin("unibus-export", lambda put: _produce(store, names, put))
        # Counted once the thread runs, whose end counts down. There is no await since the check above.
        self._running += 1
        thread.add_done_callback(self._release)
        try:
            # Waits for the first piece: an unknown name is an error of the request, and not a response that breaks off.
            return await pipe.stream()
        except BaseException:
            # The caller has no stream to close: the producer ends at its next piece.
            pipe.close()
            raise

    def _release(self, thread: object) -> None:
        self._running -= 1


def _produce(store: Store, names: Collection[str], put: Put) -> None:
    with closing(source_of(store)) as source:
        Exporting(source, put, lambda done, total: None).run(names)
