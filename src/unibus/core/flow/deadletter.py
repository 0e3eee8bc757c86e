"""What happens to a message that cannot be handled: why, where to, and the record that travels with it.

The decisions are pure functions, so that the in-process bus and the durable engine decide alike. Three rules:

- Deliveries are counted when they are made. A failure at the last allowed one is a dead letter, any other a retry.
- Every channel has a sub-queue for its dead letters; `dead_letter_channel` sends them elsewhere instead.
  A message that failed is always kept. One that only expired or was pushed out is kept if a channel was named.
- A dead letter is forwarded once. If it fails again it goes to the sub-queue of where it failed, and from a
  sub-queue nowhere: whatever the channels' settings say, no message can circle.

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
"""Up to here Azure's own words."""

QUOTA_EXCEEDED: Final = "QuotaExceededException"
ENTITY_DISABLED: Final = "MessagingEntityDisabledException"
MESSAGE_SIZE_EXCEEDED: Final = "MessageSizeExceededException"
"""Why the target of a forward refused a message: the names of the errors that Azure's clients know."""

FORWARD_TARGET_MISSING: Final = "ForwardTargetNotFound"
FILTER_EVALUATION_FAILED: Final = "FilterEvaluationException"
HANDLER_REJECTED: Final = "HandlerRejected"
PAYLOAD_MISMATCH: Final = "PayloadMismatch"
QUEUE_OVERFLOW: Final = "QueueOverflow"
"""Pushed out of a full queue by `drop_old`."""

KEPT_ONLY_WHEN_NAMED: Final = frozenset({TTL_EXPIRED, QUEUE_OVERFLOW})
"""Nothing went wrong with these messages, so they are kept only where somebody asked for it."""

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
"""Azure's bound for the reason and the description of a dead letter."""

TRACEBACK_CHARS_MAX: Final = 8_192
"""A quarter of what Azure allows for one property: room for the innermost frames, which are the ones that tell."""


class Verdict(enum.Enum):
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"


def after_failure(delivery_count: int, delivery_count_max: int, permanent: bool = False) -> Verdict:
    """What a failed delivery leads to. `delivery_count` includes the one that failed.

    A permanent failure (the payload does not fit, the handler rejected the message) is not tried again.
    """
    if permanent or delivery_count >= delivery_count_max:
        return Verdict.DEAD_LETTER
    return Verdict.RETRY


def sub_queue(channel: str) -> str:
    return f"{channel}/{SUB_QUEUE}"


def is_sub_queue(channel: str) -> bool:
    """Whether the name is that of a dead-letter sub-queue. Case does not matter, as in all names of entities."""
    return channel.casefold().endswith("/" + SUB_QUEUE.casefold())


def target(channel: str, dead_letter_channel: str, reason: str, dead_before: bool = False) -> str:
    """Where a dead letter of `channel` goes; "" means nowhere, and the caller counts it.

    `dead_letter_channel` is "" where none is set. `dead_before` says that the message already carries a record.
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
    """The record of a death. Texts are capped and can be written in every encoding; empty texts leave no header.

    `channel` and `group` tell where it failed, `attempts` how many deliveries it had, `now_ns` is wall time.
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
"""Why a message that arrived at an entity, or that it forwards, becomes a dead letter there at once."""

NOT_FORWARDED: Final = "not forwarded: "
"""In a description: why a dead letter stayed in its own dead-letter queue."""


def refusal_of(record: Mapping[str, object]) -> str:
    """Why an entity refused a message, in the store's own words; empty for one that died otherwise.

    For history, which has no words of users: their descriptions may have anything in them, and stay in the message.
    """
    reason, description = record.get(REASON_HEADER), str(record.get(DESCRIPTION_HEADER, ""))
    if reason in REFUSALS and record.get(ATTEMPTS_HEADER) == 0:
        return f"{reason}: {description}" if description else str(reason)
    before, found, why = description.rpartition(NOT_FORWARDED)
    is_ours = found and (not before or before.endswith("; "))  # As the store writes it, behind words of a receiver.
    return f"{found}{why}" if is_ours else ""


def without_record(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    """The headers of a message that gets a new life: all but the record of its death."""
    return {name: value for name, value in headers.items() if name not in _RECORD}


def ncb_payload(headers: Mapping[str, object], message: object) -> dict[str, object]:
    """The record in the shape that programs written for the Neural Cognitive Bus expect in its dead-letter channel."""
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
    """No longer than that, and of text that can be written."""
    return encodable(text if len(text) <= chars_max else text[: chars_max - 1] + "…")


def _tail(text: str, chars_max: int) -> str:
    """The end is kept: the innermost frame and the error stand there."""
    return encodable(text if len(text) <= chars_max else "…" + text[1 - chars_max :])


def encodable(text: str) -> str:
    """Text that every encoding can write, for words that nobody has chosen."""
    # Error texts quote their input, and half a surrogate pair in it must not make the dead letter unwritable.
    return text.encode("utf-8", "replace").decode("utf-8")
