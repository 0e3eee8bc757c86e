"""Dead-lettering: when a message is dead-lettered, where it goes, and the headers that record why.

The decisions are pure functions, so that channels in memory and durable queues decide alike. Three rules:

- A delivery is counted when it is made. If the last allowed delivery fails, the message is dead-lettered; if an earlier
  one fails, it is redelivered.
- Every channel has a dead-letter queue; `dead_letter_channel` names another target instead. A message that failed is
  always kept. One that only expired or was evicted is kept only if a `dead_letter_channel` is set.
- A dead-lettered message is forwarded once. If it fails again, it goes to the dead-letter queue of the channel where it
  failed, and from a dead-letter queue it goes nowhere. So no message can loop, whatever the settings say.

The record is a set of headers. Reason and description have the names that Azure's clients read.
"""

import enum
from collections.abc import Mapping
from typing import Final

from unibus.core.envelope.message_properties import HeaderValue

MAX_DELIVERY_COUNT_EXCEEDED: Final = "MaxDeliveryCountExceeded"
TTL_EXPIRED: Final = "TTLExpiredException"
HEADER_SIZE_EXCEEDED: Final = "HeaderSizeExceeded"
MAX_TRANSFER_HOP_COUNT_EXCEEDED: Final = "MaxTransferHopCountExceeded"
SESSION_ID_IS_NULL: Final = "Session ID is null"
"""These five are Azure's reasons."""

QUOTA_EXCEEDED: Final = "QuotaExceededException"
ENTITY_DISABLED: Final = "MessagingEntityDisabledException"
MESSAGE_SIZE_EXCEEDED: Final = "MessageSizeExceededException"
"""Why the target of a forward rejected a message: the names of errors that Azure's clients know."""

FORWARD_TARGET_MISSING: Final = "ForwardTargetNotFound"
FILTER_EVALUATION_FAILED: Final = "FilterEvaluationException"
HANDLER_REJECTED: Final = "HandlerRejected"
PAYLOAD_MISMATCH: Final = "PayloadMismatch"
QUEUE_OVERFLOW: Final = "QueueOverflow"
"""Evicted from a full queue by `drop_old`."""

KEPT_ONLY_WHEN_NAMED: Final = frozenset({TTL_EXPIRED, QUEUE_OVERFLOW})
"""These messages did not fail, so they are kept only if a `dead_letter_channel` is set."""

SUB_QUEUE: Final = "$DeadLetterQueue"

REASON_HEADER: Final = "DeadLetterReason"
DESCRIPTION_HEADER: Final = "DeadLetterErrorDescription"
SOURCE_HEADER: Final = "DeadLetterSource"
GROUP_HEADER: Final = "DeadLetterGroup"
ERROR_TYPE_HEADER: Final = "DeadLetterErrorType"
ATTEMPTS_HEADER: Final = "DeadLetterAttempts"
TIME_HEADER: Final = "DeadLetterTimeNs"
TRACEBACK_HEADER: Final = "DeadLetterTraceback"

DESCRIPTION_CHARS_MAX: Final = 4_096
"""Azure's limit for the reason and the description of a dead-lettered message."""

TRACEBACK_CHARS_MAX: Final = 8_192
"""A quarter of what Azure allows for one property: enough for the innermost frames, which show the cause."""


class Verdict(enum.Enum):
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"


def after_failure(delivery_count: int, delivery_count_max: int, permanent: bool = False) -> Verdict:
    """What follows a failed delivery. `delivery_count` includes the one that failed.

    A permanent failure (the payload has the wrong type, the handler rejected the message) is not retried.
    """
    if permanent or delivery_count >= delivery_count_max:
        return Verdict.DEAD_LETTER
    return Verdict.RETRY


def sub_queue(channel: str) -> str:
    return f"{channel}/{SUB_QUEUE}"


def is_sub_queue(channel: str) -> bool:
    """Whether this is the name of a dead-letter queue. Case is ignored, as in all names of entities."""
    return channel.casefold().endswith("/" + SUB_QUEUE.casefold())


def target(channel: str, dead_letter_channel: str, reason: str, dead_before: bool = False) -> str:
    """Where a dead-lettered message of `channel` goes; "" means that it is not kept, and the caller counts it.

    `dead_letter_channel` is "" if none is set. `dead_before`: the message was dead-lettered before, and has a record.
    """
    if is_sub_queue(channel):
        return ""
    if not dead_letter_channel:
        return "" if reason in KEPT_ONLY_WHEN_NAMED else sub_queue(channel)
    if dead_before or dead_letter_channel.casefold() == channel.casefold():
        return sub_queue(channel)
    return dead_letter_channel


def was_dead_lettered(headers: Mapping[str, object]) -> bool:
    return REASON_HEADER in headers


def dead_letter_headers(
    reason: str,
    description: str,
    error_type: str,
    attempts: int,
    channel: str,
    group: str,
    now_ns: int,
    traceback: str = "",
) -> dict[str, str | int]:
    """The headers that record why a message was dead-lettered. Texts are truncated and can be written in every
    encoding; an empty text has no header.

    `channel` and `group` are where it failed, `attempts` is the number of its deliveries, `now_ns` is wall time.
    """
    record: dict[str, str | int] = {
        REASON_HEADER: capped(reason, DESCRIPTION_CHARS_MAX),
        SOURCE_HEADER: channel,
        ATTEMPTS_HEADER: attempts,
        TIME_HEADER: now_ns,
    }
    texts = {
        DESCRIPTION_HEADER: capped(description, DESCRIPTION_CHARS_MAX),
        ERROR_TYPE_HEADER: capped(error_type, DESCRIPTION_CHARS_MAX),
        GROUP_HEADER: group,
        TRACEBACK_HEADER: _tail(traceback, TRACEBACK_CHARS_MAX),
    }
    record.update({name: text for name, text in texts.items() if text})
    return record


REFUSALS: Final = frozenset(
    {
        ENTITY_DISABLED,
        FILTER_EVALUATION_FAILED,
        FORWARD_TARGET_MISSING,
        MAX_TRANSFER_HOP_COUNT_EXCEEDED,
        MESSAGE_SIZE_EXCEEDED,
        QUOTA_EXCEEDED,
        SESSION_ID_IS_NULL,
    }
)
"""Why an entity dead-letters a message at once: when it arrives, or when it cannot be forwarded."""

NOT_FORWARDED: Final = "not forwarded: "
"""In a description: why a dead-lettered message stayed in the dead-letter queue of its own entity."""


def refusal_of(record: Mapping[str, object]) -> str:
    """Why an entity rejected a message, in the text of the store; "" for a message that was dead-lettered otherwise.

    For history, which never contains texts of users: a description may contain anything, and stays in the message.
    """
    reason, description = record.get(REASON_HEADER), str(record.get(DESCRIPTION_HEADER, ""))
    if reason in REFUSALS and record.get(ATTEMPTS_HEADER) == 0:
        return f"{reason}: {description}" if description else str(reason)
    before, found, why = description.rpartition(NOT_FORWARDED)
    # The store appends its text to the description of a receiver, after "; ".
    is_from_store = found and (not before or before.endswith("; "))
    return f"{found}{why}" if is_from_store else ""


def without_record(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    """The headers of a message that is sent again: all but the record of why it was dead-lettered."""
    return {name: value for name, value in headers.items() if name not in _RECORD}


def ncb_payload(headers: Mapping[str, object], message: object) -> dict[str, object]:
    """The record in the form that programs for the Neural Cognitive Bus expect in a dead-letter channel."""
    return {
        "origin_channel": headers.get(SOURCE_HEADER, ""),
        "subscriber": headers.get(GROUP_HEADER, ""),
        "error_type": headers.get(ERROR_TYPE_HEADER, ""),
        "error": headers.get(DESCRIPTION_HEADER, ""),
        "traceback": headers.get(TRACEBACK_HEADER, ""),
        "message": message,
    }


_RECORD: Final = frozenset(
    {
        REASON_HEADER,
        DESCRIPTION_HEADER,
        SOURCE_HEADER,
        GROUP_HEADER,
        ERROR_TYPE_HEADER,
        ATTEMPTS_HEADER,
        TIME_HEADER,
        TRACEBACK_HEADER,
    }
)


def capped(text: str, chars_max: int) -> str:
    """The text, truncated to so many characters, and encodable."""
    return encodable(text if len(text) <= chars_max else text[: chars_max - 1] + "…")


def _tail(text: str, chars_max: int) -> str:
    """The end of the text, encodable: a traceback ends with the innermost frame and the error."""
    return encodable(text if len(text) <= chars_max else "…" + text[1 - chars_max :])


def encodable(text: str) -> str:
    """Text that every encoding can write, for text that comes from an exception."""
    # Error texts quote their input; a lone surrogate in it must not prevent storing the dead-lettered message.
    return text.encode("utf-8", "replace").decode("utf-8")
