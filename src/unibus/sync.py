"""The bus for synchronous programs, which have no event loop: `from unibus.sync import MessageBus`."""

from unibus.bus.api.sync_bus import SyncMessageBus as MessageBus

__all__ = ["MessageBus"]
