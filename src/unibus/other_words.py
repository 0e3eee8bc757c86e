"""The words of other message systems for our keywords: `countdown`, `eta`, `expiration`, `max_messages`.

A word is seldom spelt like the name here, so comparing letters does not find it. A row has our name and the words for
it. One word may be in several rows (`limit`), because a hint names only keywords that the call has: `meant_among` picks
the rows of those. Among the names of one call a word means one of them: the first row wins.
"""

from collections.abc import Iterable
from typing import Final

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    # Fields of a message, and what `send` takes beside them
    "payload": ("body", "data", "message", "content", "value", "args", "kwargs"),
    "priority": ("prio", "urgency", "importance"),
    "delay": ("countdown", "delay_s", "delay_seconds", "delay_ms", "defer_by", "in_seconds", "x_delay"),
    "scheduled_at": (
        "eta", "at", "run_at", "deliver_at", "schedule_at", "enqueue_at", "not_before", "when",
        "scheduled_enqueue_time", "scheduled_enqueue_time_utc",
    ),
    "ttl": ("expiration", "expires", "expires_in", "expire", "expiry", "time_to_live", "max_age", "lifetime"),
    "message_id": ("id", "msg_id", "task_id", "job_id", "uuid"),
    "dedup_key": (
        "deduplication_id", "message_deduplication_id", "deduplication_key", "idempotency_key", "unique_key", "nonce",
    ),
    "headers": ("application_properties", "user_properties", "attributes", "message_attributes", "meta", "tags"),
    "correlation_id": ("correlation", "request_id"),
    "reply_to": ("reply_queue", "response_channel", "answer_to"),
    "session_id": ("session", "message_group_id", "group_id"),
    "partition_key": ("partition", "key", "ordering_key", "shard"),
    # Receiving and closing
    "count": ("limit", "max_count", "max_message_count", "max_messages", "n", "number", "prefetch", "size"),
    "timeout": ("wait", "max_wait_time", "max_wait", "block", "deadline", "timeout_s", "time_limit", "wait_time"),
    "mode": ("receive_mode", "settlement", "ack", "auto_ack", "no_ack"),
    "drain_timeout": ("timeout", "grace", "grace_period", "wait"),
    "after": ("start", "offset", "since", "from_sequence"),
    "time_limit": ("timeout",),
    "rows_max": ("limit", "max_rows"),
    # A bus
    "store": ("url", "path", "file", "dsn", "database", "uri"),
    "worker_count": ("workers", "max_workers", "threads", "concurrency"),
    # Settings of a queue or subscription
    "default_ttl": (
        "ttl", "expiration", "expires", "time_to_live", "message_ttl", "default_message_time_to_live", "retention",
    ),
    "lock_duration": ("visibility_timeout", "ack_deadline", "ack_wait", "lock_timeout", "lease"),
    "max_delivery_count": ("max_deliver", "max_deliveries", "max_attempts", "max_retries", "max_receive_count"),
    "max_count": ("max_length", "max_messages", "max_len", "maxlen", "limit"),
    "auto_delete_on_idle": ("auto_delete", "idle_timeout", "inactive_threshold"),
    "requires_session": ("sessions", "fifo", "ordered"),
    "forward_dead_letters_to": ("dead_letter_queue", "dlq", "dead_letter_exchange", "dead_letter_topic"),
    # Options of `subscribe`. The module is the second argument of the form subscribe(channel, module, handler).
    "handler": ("callback", "callable", "func", "function", "fn", "listener", "module", "module_name"),
    "retry_attempts": ("retries", "retry", "retry_count", "max_retries", "max_attempts", "tries", "max_tries"),
    "retry_delay": ("backoff_seconds", "retry_after", "retry_interval", "countdown", "retry_backoff_seconds"),
    "concurrency": ("workers", "worker_count", "max_workers", "threads", "parallel", "parallelism", "prefetch"),
    "group": ("consumer_group", "consumer", "queue", "queue_group", "subscription", "name", "group_id", "durable"),
    "match": ("pattern", "wildcard", "prefix", "regex", "glob"),
    "filter": ("predicate", "condition", "where", "selector"),
    "queue_size": ("max_size", "maxsize", "max_queue_size", "buffer_size"),
    "start": ("offset", "position", "from_beginning", "start_at"),
    # Settings of a channel
    "max_queue_size": ("max_size", "maxsize", "queue_size", "buffer_size", "capacity"),
    "persistent": ("durable",),
}  # fmt: skip


def meant_among(known: Iterable[str]) -> dict[str, str]:
    """The words of other systems for these names: word -> our name."""
    names = set(known)
    meant: dict[str, str] = {}
    for ours, words in _WORDS.items():
        if ours in names:
            for word in words:
                meant.setdefault(word, ours)
    return meant
