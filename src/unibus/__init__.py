"""One message bus for Python. This module only gathers the public names; nothing inside imports it."""

from unibus.bus.backends import InMemoryQueueBackend, MessageBackend, RedisStreamBackend
from unibus.bus.health import HealthStatus
from unibus.bus.message_bus import MessageBus
from unibus.bus.process_bus import (
    configure_message_bus,
    get_message_bus,
    setup_message_bus,
    shutdown_message_bus,
)
from unibus.bus.received import Received, SyncReceived
from unibus.bus.receivers import SessionReceiver, SyncSessionReceiver
from unibus.bus.settings import BusConfig, ChannelConfig
from unibus.bus.subscription import Subscription
from unibus.bus.transactions import Transaction
from unibus.core.life.commands import SendResult
from unibus.core.life.events import Event
from unibus.core.message import Message
from unibus.core.pattern import Pattern
from unibus.core.payload import Payload, SerializationFormat, Serialized
from unibus.core.priority import Priority
from unibus.core.views import BusMessage, MessageId, MessageMeta
from unibus.errors import (
    BusClosed,
    BusError,
    ChannelExists,
    ChannelNotFound,
    EntityExists,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    PayloadMismatch,
    PublishError,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    RequestFailed,
    RequestTimeout,
    SerializationFailed,
    SessionLocked,
    SessionLockLost,
    SessionNotAllowed,
    SessionNotFound,
    SessionRequired,
    StoreBusy,
    StoreDamaged,
    StoreFailed,
    StoreUnavailable,
    StoreVersion,
    TransactionInvalid,
)
from unibus.stores.durability import Durability
from unibus.stores.store import EntityInfo, StoreHealth

__version__ = "0.1.0"

__all__ = [
    "BusClosed",
    "BusConfig",
    "BusError",
    "BusMessage",
    "ChannelConfig",
    "ChannelExists",
    "ChannelNotFound",
    "Durability",
    "EntityExists",
    "EntityInfo",
    "EntityNotFound",
    "Event",
    "HealthStatus",
    "InMemoryQueueBackend",
    "LockLost",
    "Message",
    "MessageBackend",
    "MessageBus",
    "MessageId",
    "MessageMeta",
    "MessageNotFound",
    "MessageTooLarge",
    "Pattern",
    "Payload",
    "PayloadMismatch",
    "Priority",
    "PublishError",
    "QueueFull",
    "QuotaExceeded",
    "RateLimited",
    "Received",
    "RedisStreamBackend",
    "RequestFailed",
    "RequestTimeout",
    "SendResult",
    "SerializationFailed",
    "SerializationFormat",
    "Serialized",
    "SessionLockLost",
    "SessionLocked",
    "SessionNotAllowed",
    "SessionNotFound",
    "SessionReceiver",
    "SessionRequired",
    "StoreBusy",
    "StoreDamaged",
    "StoreFailed",
    "StoreHealth",
    "StoreUnavailable",
    "StoreVersion",
    "Subscription",
    "SyncReceived",
    "SyncSessionReceiver",
    "Transaction",
    "TransactionInvalid",
    "configure_message_bus",
    "get_message_bus",
    "setup_message_bus",
    "shutdown_message_bus",
]
