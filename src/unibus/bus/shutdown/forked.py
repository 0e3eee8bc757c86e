"""What the hub of a bus becomes in a child of the process that made it.

Every operation of a bus goes through its exchange, which is closed then, or through its hub. So the hub of a child has
no parts any more: whatever is asked of it raises BusForked. Closing does nothing.
"""

from typing import NoReturn

from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.registry import Registry
from unibus.bus.shutdown.steps import Shutdown
from unibus.stores.seam.forked import keep_for_ever, opened_by


class ForkedRuntime:
    """Has the exchange and the registry, which refuse by themselves, and a shutdown that is over. No other part."""

    exchange: Exchange
    registry: Registry
    shutdown: Shutdown
    pid: int

    def __getattr__(self, name: str) -> NoReturn:
        raise opened_by(self.pid)


def become_forked(runtime: object, exchange: Exchange, registry: Registry, shutdown: Shutdown, pid: int) -> None:
    """Every reference to the hub is one to a ForkedHub from now on. Its parts are never freed: see `keep_for_ever`."""
    parts = vars(runtime)
    keep_for_ever(dict(parts))
    parts.clear()
    parts.update(exchange=exchange, registry=registry, shutdown=shutdown, pid=pid)
    object.__setattr__(runtime, "__class__", ForkedRuntime)


def refuse(pid: int) -> NoReturn:
    raise opened_by(pid)
