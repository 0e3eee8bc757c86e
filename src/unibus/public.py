"""The public names, which are those of `unibus` itself. Nothing inside imports this module."""

from unibus.bus.backends import InMemoryQueueBackend, MessageBackend, RedisStreamBackend
from unibus.bus.cloudevents import (
    from_cloudevent,
    from_cloudevent_binary,
    to_cloudevent,
    to_cloudevent_binary,
)
from unibus.bus.dead_letters.faces import DeadLetterManager, SyncDeadLetterManager
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.letter import DeadMessage
from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult, RecoveryResult
from unibus.bus.dead_letters.rules import RecoveryAction, RecoveryRule
from unibus.bus.entities import Entities, SyncEntities
from unibus.bus.health import HealthStatus
from unibus.bus.message_bus import MessageBus
from unibus.bus.persistence import SqlitePersistence
from unibus.bus.process_bus import (
    configure_message_bus,
    get_message_bus,
    setup_message_bus,
    shutdown_message_bus,
)
from unibus.bus.received import Received, SyncReceived
from unibus.bus.receivers import SessionReceiver, SyncSessionReceiver
from unibus.bus.relay_route import Relayed
from unibus.bus.settings import BusConfig, ChannelConfig
from unibus.bus.subscription import Subscription
from unibus.bus.trace import MessageTrace
from unibus.bus.tracing import instrument
from unibus.bus.transactions import Transaction
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from unibus.core.life.commands import SendResult
from unibus.core.life.events import Event
from unibus.core.life.rules import Rule
from unibus.core.message import Message
from unibus.core.pattern import Pattern
from unibus.core.payload import Payload, SerializationFormat, Serialized
from unibus.core.priority import Priority
from unibus.core.views import BusMessage, MessageId, MessageMeta
from unibus.errors import (
    BusClosed,
    BusError,
    BusForked,
    ChannelExists,
    ChannelNotFound,
    CloudEventInvalid,
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    EvaluationError,
    ExtraMissing,
    FilterInvalid,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    PayloadMismatch,
    PositionMoved,
    PublishError,
    QueryInvalid,
    QueryStopped,
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
    StoreFull,
    StoreUnavailable,
    StoreVersion,
    TransactionInvalid,
)
from unibus.stores.durability import Durability
from unibus.stores.query.result import QueryResult
from unibus.stores.store import EntityInfo, StoreHealth

__all__ = [
    "BusClosed",
    "BusConfig",
    "BusError",
    "BusForked",
    "BusMessage",
    "ChannelConfig",
    "ChannelExists",
    "ChannelNotFound",
    "CloudEventInvalid",
    "CorrelationFilter",
    "DeadGroup",
    "DeadLetterFilter",
    "DeadLetterManager",
    "DeadMessage",
    "Durability",
    "Entities",
    "EntityDisabled",
    "EntityExists",
    "EntityInfo",
    "EntityNotFound",
    "EvaluationError",
    "Event",
    "ExtraMissing",
    "FalseFilter",
    "FilterInvalid",
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
    "MessageTrace",
    "Pattern",
    "Payload",
    "PayloadMismatch",
    "PositionMoved",
    "Priority",
    "ProcessingResult",
    "PublishError",
    "QueryInvalid",
    "QueryResult",
    "QueryStopped",
    "QueueFull",
    "QuotaExceeded",
    "RateLimited",
    "Received",
    "RecoveryAction",
    "RecoveryResult",
    "RecoveryRule",
    "RedisStreamBackend",
    "Relayed",
    "RequestFailed",
    "RequestTimeout",
    "Rule",
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
    "SqlFilter",
    "SqlRuleAction",
    "SqlitePersistence",
    "StoreBusy",
    "StoreDamaged",
    "StoreFailed",
    "StoreFull",
    "StoreHealth",
    "StoreUnavailable",
    "StoreVersion",
    "Subscription",
    "SyncDeadLetterManager",
    "SyncEntities",
    "SyncReceived",
    "SyncSessionReceiver",
    "Transaction",
    "TransactionInvalid",
    "TrueFilter",
    "configure_message_bus",
    "from_cloudevent",
    "from_cloudevent_binary",
    "get_message_bus",
    "instrument",
    "setup_message_bus",
    "shutdown_message_bus",
    "to_cloudevent",
    "to_cloudevent_binary",
]
