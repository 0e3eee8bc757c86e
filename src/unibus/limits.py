"""The limits and defaults of the system, each with the reason for its value.

A limit is a constant here, never a number in the code, so that this file answers "how much of X is possible". The
relations between limits are asserted at the end. Names carry the unit and end with MAX, MIN or DEFAULT.
"""

from typing import Final

PRIORITY_MAX: Final = 255
"""One byte."""

CHANNEL_NAME_BYTES_MAX: Final = 260
"""Azure Service Bus allows 260 characters for the path of a queue; a name must be valid at every endpoint."""

MESSAGE_ID_CHARS_MAX: Final = 128
"""Azure's limit for MessageId, SessionId and PartitionKey."""

BODY_BYTES_MAX: Final = 100 * 1024 * 1024
"""Azure's largest message (premium tier). In memory only bytes and text are measured."""

HEADER_COUNT_MAX: Final = 1_000
HEADER_NAME_CHARS_MAX: Final = 32_767
"""Azure limits all application properties together to 64 KB; these two only reject absurd input."""

DECODE_DEPTH_MAX: Final = 64
"""Nesting of a decoded body. JSON documents in practice are far below it; the parser's stack must be bounded."""

QUEUE_SIZE_DEFAULT: Final = 1_000
"""The backlog of one channel. 0 means unbounded."""

BLOCK_TIMEOUT_S_DEFAULT: Final = 30.0
"""How long a publisher waits on a full channel that was not created by create_channel. Longer than a slow handler
takes for one message, and short enough that a program which is stuck reports it."""

IMPLICIT_CHANNELS_MAX: Final = 10_000
"""Channels that a publish created and that have no subscriber. Beyond it the older half is deleted."""

DEAD_LETTERS_KEPT_MAX: Final = 10_000
"""In memory, for one channel without a dead_letter_channel. Beyond it the oldest are evicted, and counted."""

DEAD_LETTER_RECOVERIES_MAX: Final = 3
"""Retries of one dead-lettered message before only an explicit override retries it again: no endless loop."""

WORKER_COUNT_DEFAULT: Final = 4
WORKER_COUNT_MAX: Final = 1_024

RETRY_ATTEMPTS_DEFAULT: Final = 3
RETRY_DELAY_S_DEFAULT: Final = 0.1
RETRY_DELAY_S_MAX: Final = 60.0
RETRY_BACKOFF_DEFAULT: Final = 2.0
RETRY_JITTER_DEFAULT: Final = 0.1

RATE_LIMIT_BURST_FACTOR: Final = 2.0
"""A token bucket holds two seconds of its rate unless a burst is given."""

RATE_PER_S_MAX: Final = 1_000_000.0
"""For the send or receive rate of one entity: far above what one process can do."""

DEDUP_WINDOW_S_DEFAULT: Final = 600.0
DEDUP_WINDOW_S_MIN: Final = 20.0
DEDUP_WINDOW_S_MAX: Final = 7 * 24 * 3600.0
"""Azure's range for duplicate detection on durable entities; windows in memory may be shorter."""

DEDUP_ENTRIES_MAX: Final = 1_000_000
"""About 150 MB of ids. Beyond it the oldest ids are evicted early, and that is counted."""

PREFIXES_PER_PEER_MAX: Final = 10_000
"""A system has fewer than 10,000 topics; more prefixes from one peer are a mistake or an attack."""

LOCK_DURATION_S_DEFAULT: Final = 60.0
LOCK_DURATION_S_MAX: Final = 300.0
"""Azure's longest lock. A handler may take longer: the bus renews its lock."""

DELIVERY_COUNT_MAX_DEFAULT: Final = 10
"""Azure's default: deliveries before a message is dead-lettered."""

DURABLE_TTL_S_DEFAULT: Final = 14 * 24 * 3600.0
"""Time to live of a message in a queue or subscription that sets none: two weeks."""

ENTITY_SIZE_MB_DEFAULT: Final = 1_024
"""What one entity may hold. Azure's smallest size."""

SESSION_STATE_BYTES_MAX: Final = 256 * 1024
FORWARD_HOPS_MAX: Final = 4
"""Azure's limits."""

QUEUES_MAX_DEFAULT: Final = 10_000
TOPICS_MAX_DEFAULT: Final = 10_000
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = 2_000
"""Azure's limits for one namespace and one topic; the URL of a store may set others."""

BATCH_COMMANDS_MAX: Final = 10_000
"""Commands in one atomic batch: limits how long one commit can take. Azure allows 100 in a transaction."""

BATCH_ID_KEPT_S: Final = 600.0
"""How long a store remembers the id of a batch with its results: longer than a client repeats a call whose answer was
lost, and as long as the default dedup window."""

BATCH_RESULTS_KEPT_MAX: Final = 200_000
"""Results of batches with an id that a store remembers, about 60 MB. Beyond it the oldest batches are forgotten early,
and copies of them are refused. A single batch always fits."""

BATCH_ID_CHARS_MAX: Final = MESSAGE_ID_CHARS_MAX
"""As the id of a message: a caller draws both from the same source."""

RESERVE_MB_DEFAULT: Final = 4
"""Disk space that a store reserves, so that messages can still be settled when the disk is full (decision 0022)."""

MEMORY_BUDGET_MB_DEFAULT: Final = 256
"""Bodies in the backlog that an embedded store keeps in memory; the others stay on disk until they are received."""

HISTORY_AGE_S_DEFAULT: Final = 7 * 24 * 3600.0
HISTORY_BYTES_DEFAULT: Final = 1_000_000_000
"""How much history a store keeps."""

SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024
SNAPSHOT_BYTES_MIN: Final = 256 * 1024
JSON_SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of changes since the last snapshot of a store: what recovery has to replay, and what cannot be pruned from
history yet. JSON is replayed more slowly. Between these limits the value follows the size limit of the history."""

SNAPSHOT_AGE_S_MAX: Final = 3600.0
SNAPSHOT_AGE_S_MIN: Final = 60.0
"""Age of the oldest change since the last snapshot. History is pruned at most once a minute."""

SNAPSHOT_AT_CLOSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Up to this many bytes of messages, closing a store writes all of them into a snapshot: about a second of work."""

MEMORY_HISTORY_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""How much history a store in memory keeps: mostly the bodies of messages that left their queues."""

QUERY_TIME_S_DEFAULT: Final = 10.0
QUERY_ROWS_DEFAULT: Final = 10_000
QUERY_ROWS_MAX: Final = 1_000_000
QUERY_MEMORY_MB_DEFAULT: Final = 256
"""What one SQL query may use. Sorting a million rows needs about 100 MB."""

ACCESS_RULES_MAX: Final = 12
ACCESS_NAME_CHARS_MAX: Final = 256
"""Azure's limits: authorization rules of one entity or namespace, and the name of one."""

ACCESS_TOKEN_CHARS_MAX: Final = 4_096
"""The longest path, fully escaped, takes about 2,000; anything longer than this is not a token."""

FILTER_CHARS_MAX: Final = 1_024
FILTER_STATEMENTS_MAX: Final = 32
"""Azure's limits for the text of a filter or rule action, and for the statements of an action."""

RULE_NAME_CHARS_MAX: Final = 50
SUBSCRIPTION_NAME_CHARS_MAX: Final = 50
ENTITY_PATH_CHARS_MAX: Final = 260
USER_METADATA_CHARS_MAX: Final = 1_024
"""Azure's limits: names, the path of a queue or topic, and the free text of an entity."""

AUTO_DELETE_S_MIN: Final = 300.0
"""Azure's shortest idle time after which an unused entity is deleted."""

MESSAGE_SIZE_KB_MAX: Final = 102_400
"""Azure's largest message size limit of one entity: 100 MB, as BODY_BYTES_MAX."""

RULES_PER_SUBSCRIPTION_MAX: Final = 1_000
"""All rules of a subscription are one setting, which is written as a whole when one of them changes."""

FILTER_DEPTH_MAX: Final = 32
"""Nesting of a filter: limits the stack that parsing, printing and evaluating it need."""

FILTER_TEXT_CHARS_MAX: Final = 32_768
"""Azure's limit for one property. Without it, statements that double a text would fill the memory."""

ATOM_BYTES_MAX: Final = 1024 * 1024
ATOM_DEPTH_MAX: Final = 32
ATOM_ELEMENTS_MAX: Final = 20_000
"""Limits of one administration document. Azure's largest entity, with 12 authorization rules, takes about 10 KB."""

assert LOCK_DURATION_S_DEFAULT <= LOCK_DURATION_S_MAX
assert SNAPSHOT_BYTES_MIN <= JSON_SNAPSHOT_BYTES_MAX <= SNAPSHOT_BYTES_MAX
assert SNAPSHOT_AGE_S_MIN <= SNAPSHOT_AGE_S_MAX
assert DEDUP_WINDOW_S_MIN <= DEDUP_WINDOW_S_DEFAULT <= DEDUP_WINDOW_S_MAX
assert BATCH_COMMANDS_MAX <= BATCH_RESULTS_KEPT_MAX
assert RETRY_DELAY_S_DEFAULT <= RETRY_DELAY_S_MAX
