"""The bus for synchronous programs: `from unibus.sync import MessageBus`."""

from unibus.bus.api.sync_bus import SyncMessageBus as MessageBus

__all__ = ["MessageBus"]
