"""One bus for the whole process, for code that cannot get one as an argument: configure, get, shut down.

unibus itself never uses it.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Generator, Mapping

from unibus.bus.api.message_bus import MessageBus
from unibus.errors import BusError, ConfigInvalid, StoreUnavailable
from unibus.stores.seam.forked import renew_in_child

log = logging.getLogger("unibus")
_lock = threading.Lock()
renew_in_child(_lock)
_bus: MessageBus | None = None
_leaving: list[MessageBus] = []  # Buses in shutdown that are not closed yet.

_BACKENDS = ("in_memory", "memory", "redis")
_KNOWN = ("backend", "redis_url", "stream_prefix", "worker_count", "strict", "allow_degraded")


def configure_message_bus(bus: MessageBus | str | None = None) -> MessageBus:
    """Make this bus, or a new one for this URL, the bus of the process. Returns it; the previous one stays open."""
    global _bus
    # Outside of the lock: opening a store may take long, and `get_message_bus` of another thread must not wait for it.
    chosen = bus if isinstance(bus, MessageBus) else MessageBus(bus)
    with _lock:
        _bus = chosen
    return chosen


def get_message_bus() -> MessageBus:
    """The bus of the process; the first call makes one in memory if none is configured."""
    global _bus
    with _lock:
        # Inside of the lock, unlike above: a bus in memory opens nothing, and two threads must get the same one.
        if _bus is None:
            _bus = MessageBus()
        return _bus


def shutdown_message_bus() -> Awaitable[None]:
    """Close the bus of the process and forget it. Await the result on an event loop; without one, the bus is closed
    when this returns. The next call finishes a call that was interrupted.
    """
    global _bus
    with _lock:
        if _bus is not None:
            # Kept until it is closed: a caller whose close was cancelled or interrupted calls again, and finds the same
            # bus here.
            _leaving.append(_bus)
            _bus = None
        buses = list(_leaving)
    closing = _close(buses)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        # Without a loop the caller cannot await: close now. The result can still be awaited by code that runs on both.
        asyncio.run(closing)
        return NothingToAwait()
    return closing


def messaging_settings(settings: Mapping[str, object] | None) -> dict[str, object]:
    """The `messaging` block with its defaults; raises ConfigInvalid for unknown keys."""
    given = dict(settings or {})
    # The whole settings file of an application, or its `messaging` block alone.
    block = given.get("messaging", given)
    chosen = dict(block) if isinstance(block, Mapping) else given
    unknown = [name for name in chosen if name not in _KNOWN]
    if unknown:
        raise ConfigInvalid(f"messaging has no setting {unknown[0]!r}", f"the settings are {', '.join(_KNOWN)}")
    chosen.setdefault("backend", "in_memory")
    if chosen["backend"] not in _BACKENDS and "://" not in str(chosen["backend"]):
        raise ConfigInvalid(f"unknown backend {chosen['backend']!r}", f"use {', '.join(_BACKENDS)} or a URL")
    if chosen["backend"] == "redis":
        chosen.setdefault("redis_url", os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
        chosen.setdefault("stream_prefix", "atlas_bus")
    return chosen


def setup_message_bus(settings: Mapping[str, object] | None = None, logger: logging.Logger | None = None) -> MessageBus:
    """Build the bus that the settings describe and make it the bus of the process.

    Raises StoreUnavailable if the store cannot be opened; only `allow_degraded: true` falls back to memory, with a
    warning in the log.
    """
    chosen = messaging_settings(settings)
    logger = logger or log
    try:
        bus = _built(chosen)
    except StoreUnavailable as error:
        # A durable store is never replaced by memory silently: messages would be lost with the process.
        if not chosen.get("allow_degraded"):
            raise
        logger.warning("the store cannot be opened, messages are in memory only (allow_degraded): %s", error)
        bus = _built({**chosen, "backend": "in_memory"})
        bus.degraded = str(error)
    return configure_message_bus(bus)


def _built(chosen: Mapping[str, object]) -> MessageBus:
    url = chosen["redis_url"] if chosen["backend"] == "redis" else chosen["backend"]
    count = chosen.get("worker_count")
    # Left out and not passed as None: the constructor has the default.
    if isinstance(count, int):
        return MessageBus(url, worker_count=count, strict=bool(chosen.get("strict")))
    return MessageBus(url, strict=bool(chosen.get("strict")))


async def _close(buses: list[MessageBus]) -> None:
    for bus in buses:
        try:
            # One after the other. If one is cancelled or raises, the rest stays in `_leaving` for the next call.
            await bus.close()
        except BusError:
            _forget(bus)  # The bus is closed, although with an error.
            raise
        _forget(bus)


def _forget(bus: MessageBus) -> None:
    with _lock:
        if bus in _leaving:
            _leaving.remove(bus)


class NothingToAwait:
    """An awaitable whose work is done already."""

    def __await__(self) -> Generator[object, None, None]:
        yield from ()
