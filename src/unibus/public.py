"""The public names of the package, which `unibus` exports. No other module of the package imports this one."""

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.process_bus import (
    configure_message_bus,
    get_message_bus,
    setup_message_bus,
    shutdown_message_bus,
)
from unibus.bus.cloudevents.events import (
    from_cloudevent,
    from_cloudevent_binary,
    to_cloudevent,
    to_cloudevent_binary,
)
from unibus.bus.compat.backends import InMemoryQueueBackend, MessageBackend, RedisStreamBackend
from unibus.bus.compat.persistence import SqlitePersistence
from unibus.bus.dead_letters.dead_letter_manager import DeadLetterManager, SyncDeadLetterManager
from unibus.bus.dead_letters.dead_message import DeadMessage
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult, RecoveryResult
from unibus.bus.dead_letters.rules import RecoveryAction, RecoveryRule
from unibus.bus.entities.entities import Entities, SyncEntities
from unibus.bus.health import HealthStatus
from unibus.bus.history.trace import MessageTrace
from unibus.bus.otel.tracing import instrument
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.pubsub.subscription import Subscription
from unibus.bus.queues.received import Received, SyncReceived
from unibus.bus.queues.receivers import SessionReceiver, SyncSessionReceiver
from unibus.bus.queues.transactions import Transaction
from unibus.bus.settings import BusConfig, ChannelConfig
from unibus.core.codec.serializer import MessageSerializer, create_serializer
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Payload, SerializationFormat, Serialized
from unibus.core.envelope.priority import Priority
from unibus.core.envelope.views import BusMessage, MessageId, MessageMeta
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from unibus.core.lifecycle.commands import SendResult
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.rules import Rule
from unibus.core.topics.pattern import Pattern
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
from unibus.stores.query.result import QueryResult
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import EntityInfo, StoreHealth

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
    "MessageSerializer",
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
    "create_serializer",
    "from_cloudevent",
    "from_cloudevent_binary",
    "get_message_bus",
    "instrument",
    "setup_message_bus",
    "shutdown_message_bus",
    "to_cloudevent",
    "to_cloudevent_binary",
]
