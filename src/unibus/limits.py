"""The numbers that bound the system, each with what bounds it. Relations between them are asserted below."""

from typing import Final

PRIORITY_MAX: Final = 255
"""One byte, as the first design has it."""

CHANNEL_NAME_BYTES_MAX: Final = 260
"""Azure Service Bus allows 260 characters for a queue's path; a name must fit every endpoint."""

MESSAGE_ID_CHARS_MAX: Final = 128
"""Azure's bound for MessageId, SessionId and PartitionKey."""

BODY_BYTES_MAX: Final = 100 * 1024 * 1024
"""Azure's largest message (premium tier). In process only bytes and text are measured."""

HEADER_COUNT_MAX: Final = 1_000
HEADER_NAME_CHARS_MAX: Final = 32_767
"""Azure's bounds for application properties are 64 KB in all; these only stop runaway input."""

DECODE_DEPTH_MAX: Final = 64
"""Nesting of a decoded body: a bound that JSON documents in the wild stay under by far."""

QUEUE_SIZE_DEFAULT: Final = 1_000
"""Messages that wait on one channel (the first design's default). 0 means unbounded."""

IMPLICIT_CHANNELS_MAX: Final = 10_000
"""Channels that were made by a mere publish and have no subscriber of their own. The oldest half goes first."""

DEAD_LETTERS_KEPT_MAX: Final = 10_000
"""In process, per channel, where no dead_letter_channel was named; beyond it the oldest go, counted."""

DEAD_LETTER_RECOVERIES_MAX: Final = 3
"""How often a dead letter is retried before a person has to insist: what keeps dying must not circle."""

WORKER_COUNT_DEFAULT: Final = 4
WORKER_COUNT_MAX: Final = 1_024

RETRY_ATTEMPTS_DEFAULT: Final = 3
RETRY_DELAY_S_DEFAULT: Final = 0.1
RETRY_DELAY_S_MAX: Final = 60.0
RETRY_BACKOFF_DEFAULT: Final = 2.0
RETRY_JITTER_DEFAULT: Final = 0.1

RATE_LIMIT_BURST_FACTOR: Final = 2.0
"""A bucket holds two seconds of its rate unless a burst is given."""

RATE_PER_S_MAX: Final = 1_000_000.0
"""Of sends or receives of one entity: far above what one process can do."""

DEDUP_WINDOW_S_DEFAULT: Final = 600.0
DEDUP_WINDOW_S_MIN: Final = 20.0
DEDUP_WINDOW_S_MAX: Final = 7 * 24 * 3600.0
"""Azure's range for duplicate detection on durable entities; in-process windows may be shorter."""

DEDUP_ENTRIES_MAX: Final = 1_000_000
"""About 150 MB of ids. Beyond it the oldest are forgotten early, and that is counted."""

PREFIXES_PER_PEER_MAX: Final = 10_000
"""The fourth design assumes fewer than 10,000 topics; more from one peer is a mistake or an attack."""

LOCK_DURATION_S_DEFAULT: Final = 60.0
LOCK_DURATION_S_MAX: Final = 300.0
"""Azure's longest lock. A handler may take longer: its lock is renewed."""

DELIVERY_COUNT_MAX_DEFAULT: Final = 10
"""Azure's default: deliveries before a message becomes a dead letter."""

DURABLE_TTL_S_DEFAULT: Final = 14 * 24 * 3600.0
"""The second design's default for queues and subscriptions."""

ENTITY_SIZE_MB_DEFAULT: Final = 1_024
"""The second design's default, and Azure's smallest: what one entity may hold."""

SESSION_STATE_BYTES_MAX: Final = 256 * 1024
FORWARD_HOPS_MAX: Final = 4
"""Azure's bounds."""

QUEUES_MAX_DEFAULT: Final = 10_000
TOPICS_MAX_DEFAULT: Final = 10_000
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = 2_000
"""Azure's bounds for one namespace and one topic: what a store makes unless its URL says otherwise."""

BATCH_COMMANDS_MAX: Final = 10_000
"""Commands in one atomic batch: a bound on how long one commit can take. Azure allows 100 in a transaction."""

RESERVE_MB_DEFAULT: Final = 4
"""Space that a store on a disk keeps for the day when that is full (decision 0022)."""

MEMORY_BUDGET_MB_DEFAULT: Final = 256
"""Bodies of waiting messages that an embedded store keeps in memory; the rest stays on disk until it is received."""

HISTORY_AGE_S_DEFAULT: Final = 7 * 24 * 3600.0
HISTORY_BYTES_DEFAULT: Final = 1_000_000_000
"""How much of the past a store keeps."""

SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024
SNAPSHOT_BYTES_MIN: Final = 256 * 1024
JSON_SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Changes since the last snapshot of a store: what recovery may have to read, and history cannot lose yet. JSON is read
more slowly. Between these bounds it follows the limit of history."""

SNAPSHOT_AGE_S_MAX: Final = 3600.0
SNAPSHOT_AGE_S_MIN: Final = 60.0
"""Of the oldest change since the last snapshot. Nothing is trimmed more often than once a minute."""

SNAPSHOT_AT_CLOSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Messages that a store may hold for a snapshot at close to write all of them again: about a second."""

MEMORY_HISTORY_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""How much of the past a store in memory keeps: of bodies that were removed from their queues, mostly."""

QUERY_TIME_S_DEFAULT: Final = 10.0
QUERY_ROWS_DEFAULT: Final = 10_000
QUERY_ROWS_MAX: Final = 1_000_000
QUERY_MEMORY_MB_DEFAULT: Final = 256
"""What one SQL query may take. Sorting a million rows needs about 100 MB."""

ACCESS_RULES_MAX: Final = 12
ACCESS_NAME_CHARS_MAX: Final = 256
"""Azure's bounds: authorization rules of one entity or namespace, and the name of one."""

ACCESS_TOKEN_CHARS_MAX: Final = 4_096
"""The longest path there is, fully escaped, takes about 2,000; more is no token but an attempt at something."""

FILTER_CHARS_MAX: Final = 1_024
FILTER_STATEMENTS_MAX: Final = 32
"""Azure's bounds for the text of a filter or rule action, and for the statements of an action."""

RULE_NAME_CHARS_MAX: Final = 50
SUBSCRIPTION_NAME_CHARS_MAX: Final = 50
ENTITY_PATH_CHARS_MAX: Final = 260
USER_METADATA_CHARS_MAX: Final = 1_024
"""Azure's bounds: names, the path of a queue or topic, and the text that people may add to an entity."""

AUTO_DELETE_S_MIN: Final = 300.0
"""Azure's shortest time after which an entity that nobody uses is deleted."""

MESSAGE_SIZE_KB_MAX: Final = 102_400
"""Azure's largest bound for the messages of one entity: 100 MB, as BODY_BYTES_MAX."""

RULES_PER_SUBSCRIPTION_MAX: Final = 1_000
"""All of them are one setting, which is written when one of them changes."""

FILTER_DEPTH_MAX: Final = 32
"""Nesting of a filter: a bound on the stack that reading, printing and evaluating it take."""

FILTER_TEXT_CHARS_MAX: Final = 32_768
"""Azure's bound for one property. Statements that double a text would otherwise fill the memory."""

ATOM_BYTES_MAX: Final = 1024 * 1024
ATOM_DEPTH_MAX: Final = 32
ATOM_ELEMENTS_MAX: Final = 20_000
"""Bounds of one administration document. Azure's largest entity, 12 authorization rules and all, takes about 10 KB."""

assert LOCK_DURATION_S_DEFAULT <= LOCK_DURATION_S_MAX
assert SNAPSHOT_BYTES_MIN <= JSON_SNAPSHOT_BYTES_MAX <= SNAPSHOT_BYTES_MAX
assert SNAPSHOT_AGE_S_MIN <= SNAPSHOT_AGE_S_MAX
assert DEDUP_WINDOW_S_MIN <= DEDUP_WINDOW_S_DEFAULT <= DEDUP_WINDOW_S_MAX
assert RETRY_DELAY_S_DEFAULT <= RETRY_DELAY_S_MAX
