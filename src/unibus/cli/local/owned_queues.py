"""Opens the queues of a store that this process owns until the command ends.

A whole bus is opened only where one is needed: `?capture=DIR` in a URL starts a capture beside the bus.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unibus.bus.queues.operations import Queues


@contextlib.contextmanager
def queues_of(url: str, strict: bool) -> "Iterator[Queues]":
    """Raises what opening a bus on the URL raises. `strict`: a missing queue is an error, else a send creates it."""
    from unibus.capture.child import capture_folder

    if capture_folder(url) is None:
        from unibus.bus.queues.opening import open_queues

        with open_queues(url, strict) as queues:
            yield queues
    else:
        from unibus.bus.api.sync_bus import SyncMessageBus

        with SyncMessageBus(url, strict=strict) as bus:
            yield bus._runtime.queues()
