"""The names that Azure Service Bus uses for our settings: for the emulator's file and for the administration API."""

from typing import Final

TIMES: Final = frozenset({"lock_duration", "default_ttl", "dedup_window", "auto_delete_on_idle"})
"""Settings that are durations: ISO 8601 in Azure, seconds in unibus."""

PROPERTIES: Final[dict[str, str]] = {
    "AutoDeleteOnIdle": "auto_delete_on_idle",
    "DeadLetteringOnFilterEvaluationExceptions": "dead_letter_on_filter_error",
    "DeadLetteringOnMessageExpiration": "dead_letter_on_expiration",
    "DefaultMessageTimeToLive": "default_ttl",
    "DuplicateDetectionHistoryTimeWindow": "dedup_window",
    "EnableBatchedOperations": "enable_batched_operations",
    "EnableExpress": "enable_express",
    "EnablePartitioning": "enable_partitioning",
    "ForwardDeadLetteredMessagesTo": "forward_dead_letters_to",
    "ForwardTo": "forward_to",
    "LockDuration": "lock_duration",
    "MaxDeliveryCount": "max_delivery_count",
    "MaxMessageSizeInKilobytes": "max_message_size_kb",
    "MaxSizeInMegabytes": "max_size_mb",
    "RequiresDuplicateDetection": "duplicate_detection",
    "RequiresSession": "requires_session",
    "Status": "status",
    "SupportOrdering": "support_ordering",
    "UserMetadata": "user_metadata",
}

STATUSES: Final[dict[str, str]] = {
    "Active": "active",
    "Disabled": "disabled",
    "SendDisabled": "send_disabled",
    "ReceiveDisabled": "receive_disabled",
}

CORRELATION: Final[dict[str, str]] = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
"""System properties of a correlation filter."""
