"""The names in administration documents: namespaces, and the elements of each description in Azure's order.

Azure's deserializer skips an element that is out of order, and so do clients built like it: so writing keeps this
order. Parsing accepts any order.
"""

from typing import Final

ATOM: Final = "http://www.w3.org/2005/Atom"
SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
"""The namespace of the type `guid`, which XML Schema does not have."""

QUEUE: Final = "QueueDescription"
TOPIC: Final = "TopicDescription"
SUBSCRIPTION: Final = "SubscriptionDescription"
RULE: Final = "RuleDescription"
NAMESPACE: Final = "NamespaceInfo"

AUTHORIZATION_RULES: Final = "AuthorizationRules"
COUNT_DETAILS: Final = "CountDetails"
DEFAULT_RULE: Final = "DefaultRuleDescription"

ELEMENTS: Final[dict[str, tuple[str, ...]]] = {
    QUEUE: (
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        AUTHORIZATION_RULES,
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        COUNT_DETAILS,
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableExpress",
        "ForwardTo",
        "UserMetadata",
        "ForwardDeadLetteredMessagesTo",
        "MaxMessageSizeInKilobytes",
    ),
    TOPIC: (
        "DefaultMessageTimeToLive",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnableBatchedOperations",
        "SizeInBytes",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        AUTHORIZATION_RULES,
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        COUNT_DETAILS,
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableSubscriptionPartitioning",
        "EnableExpress",
        "UserMetadata",
        "MaxMessageSizeInKilobytes",
    ),
    SUBSCRIPTION: (
        "LockDuration",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DeadLetteringOnFilterEvaluationExceptions",
        "MessageCount",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "Status",
        "ForwardTo",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        COUNT_DETAILS,
        "ForwardDeadLetteredMessagesTo",
        "AutoDeleteOnIdle",
        "EntityAvailabilityStatus",
        "UserMetadata",
        DEFAULT_RULE,
    ),
    NAMESPACE: (
        "Alias",
        "CreatedTime",
        "MessagingSKU",
        "MessagingUnits",
        "ModifiedTime",
        "Name",
        "NamespaceType",
    ),
}

ALIASES: Final[dict[str, str]] = {"EnableDeadLetteringOnMessageExpiration": "DeadLetteringOnMessageExpiration"}
"""Other names that clients use for an element. They are parsed, never written."""

COUNT_ELEMENTS: Final = (
    "ActiveMessageCount",
    "DeadLetterMessageCount",
    "ScheduledMessageCount",
    "TransferDeadLetterMessageCount",
    "TransferMessageCount",
)

CORRELATION_FIELDS: Final = (
    "CorrelationId",
    "MessageId",
    "To",
    "ReplyTo",
    "Label",
    "SessionId",
    "ReplyToSessionId",
    "ContentType",
)

SQL_FILTER: Final = "SqlFilter"
TRUE_FILTER: Final = "TrueFilter"
FALSE_FILTER: Final = "FalseFilter"
CORRELATION_FILTER: Final = "CorrelationFilter"
FILTERS: Final = (SQL_FILTER, TRUE_FILTER, FALSE_FILTER, CORRELATION_FILTER)

SQL_ACTION: Final = "SqlRuleAction"
EMPTY_ACTION: Final = "EmptyRuleAction"

COMPATIBILITY_LEVEL: Final = "20"
"""The only version of the filter language."""

KEY_VALUE: Final = "KeyValueOfstringanyType"
