"""The runtime of a bus in a forked child of the process that opened it: every operation raises BusForked.

A child must not use the bus of its parent: it has no threads of it, its locks may be held for ever, and two processes
would write to one store. Every operation goes through the exchange, which is closed in the child, or through the
BusRuntime. So the runtime of the child loses all other parts. close() does nothing.
"""

from typing import NoReturn

from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.registry import Registry
from unibus.bus.shutdown.steps import Shutdown
from unibus.stores.seam.forked import keep_for_ever, opened_by


class ForkedRuntime:
    """Has the exchange and the registry, which raise BusForked themselves, and a finished shutdown. No other part."""

    exchange: Exchange
    registry: Registry
    shutdown: Shutdown
    pid: int

    def describe(self) -> str:
        """For the repr of the bus."""
        return f"of process {self.pid}, not usable in this forked child"

    def __getattr__(self, name: str) -> NoReturn:
        raise opened_by(self.pid)


def become_forked(runtime: object, exchange: Exchange, registry: Registry, shutdown: Shutdown, pid: int) -> None:
    """Turn the runtime into a ForkedRuntime, for all references to it. Its parts are never freed (`keep_for_ever`):
    their finalizers would act on threads and files of the parent."""
    # In place, because the API objects of the user refer to this runtime. No lock is taken: a thread of the parent may
    # have held it at the fork.
    parts = vars(runtime)
    keep_for_ever(dict(parts))
    parts.clear()
    parts.update(exchange=exchange, registry=registry, shutdown=shutdown, pid=pid)
    object.__setattr__(runtime, "__class__", ForkedRuntime)


def refuse(pid: int) -> NoReturn:
    raise opened_by(pid)
