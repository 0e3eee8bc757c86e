"""One message bus for Python. This module only gathers the public names; nothing inside imports it."""

from unibus.bus.backends import InMemoryQueueBackend, MessageBackend, RedisStreamBackend
from unibus.bus.message_bus import MessageBus
from unibus.bus.process_bus import (
    configure_message_bus,
    get_message_bus,
    setup_message_bus,
    shutdown_message_bus,
)
from unibus.bus.settings import BusConfig, ChannelConfig
from unibus.bus.subscription import Subscription
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
    MessageTooLarge,
    PayloadMismatch,
    PublishError,
    QueueFull,
    RateLimited,
    RequestFailed,
    RequestTimeout,
    SerializationFailed,
)

__version__ = "0.1.0"

__all__ = [
    "BusClosed",
    "BusConfig",
    "BusError",
    "BusMessage",
    "ChannelConfig",
    "ChannelExists",
    "ChannelNotFound",
    "InMemoryQueueBackend",
    "Message",
    "MessageBackend",
    "MessageBus",
    "MessageId",
    "MessageMeta",
    "MessageTooLarge",
    "Pattern",
    "Payload",
    "PayloadMismatch",
    "Priority",
    "PublishError",
    "QueueFull",
    "RateLimited",
    "RedisStreamBackend",
    "RequestFailed",
    "RequestTimeout",
    "SerializationFailed",
    "SerializationFormat",
    "Serialized",
    "Subscription",
    "configure_message_bus",
    "get_message_bus",
    "setup_message_bus",
    "shutdown_message_bus",
]
