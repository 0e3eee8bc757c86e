# mypyc: compiled
"""Reads the record of a failure: the headers that dead-lettering adds to a message.

The record is part of the overlay of a stored message (headers kept beside the body), so a filter checks thousands of
dead-lettered messages without reading a body. Compiled, because it runs for each message.
"""

from typing import Final

from unibus.core.flow.deadletter import (
    ATTEMPTS_HEADER,
    DESCRIPTION_HEADER,
    ERROR_TYPE_HEADER,
    GROUP_HEADER,
    REASON_HEADER,
    SOURCE_HEADER,
    TIME_HEADER,
    TRACEBACK_HEADER,
    is_sub_queue,
)
from unibus.core.lifecycle.state.changes import HeaderOverrides
from unibus.stores.seam.message_record import MessageRecord

RECOVERY_HEADER: Final = "DeadLetterRecoveryAttempts"
"""How often the message was recovered. It is not part of the record, so the count survives the next failure."""

LAST_ERROR_HEADER: Final = "LastError"
"""The error of a receiver's block, written when the exception abandoned the message (received.py)."""

RECORD: Final = frozenset(
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
_NOTHING: Final[HeaderOverrides] = {}


def record_of(entry: MessageRecord) -> HeaderOverrides:
    return _NOTHING if entry.overlay is None else entry.overlay


def text_in(overlay: HeaderOverrides, name: str) -> str:
    value = overlay.get(name)
    return value if isinstance(value, str) else ""


def number_in(overlay: HeaderOverrides, name: str) -> int:
    value = overlay.get(name)
    return value if isinstance(value, int) else 0


def has_record(entry: MessageRecord) -> bool:
    """Whether the message has the record of a failure: also true after it was forwarded to another queue."""
    return entry.overlay is not None and REASON_HEADER in entry.overlay


def dead_lettered_ns(entry: MessageRecord) -> int:
    """When the message was dead-lettered; without a record, when it was enqueued."""
    return number_in(record_of(entry), TIME_HEADER) or entry.enqueued_ns


def error_in(overlay: HeaderOverrides) -> str:
    """The type and text of the error; else the last error of an abandoned delivery; else the description."""
    kind, text = text_in(overlay, ERROR_TYPE_HEADER), text_in(overlay, DESCRIPTION_HEADER)
    if kind:
        return f"{kind}: {text}" if text else kind
    return text_in(overlay, LAST_ERROR_HEADER) or text


def owner_of(place: str) -> str:
    """The queue or subscription that a dead-letter queue belongs to; any other entity is its own owner."""
    return place.rpartition("/")[0] if is_sub_queue(place) else place


def source_in(overlay: HeaderOverrides) -> str:
    """The queue or subscription where the message failed.

    Earlier versions wrote the name of the dead-letter queue for a message that failed there a second time, so the
    owner of that name is taken.
    """
    return owner_of(text_in(overlay, SOURCE_HEADER))


def recovered_overlay(entry: MessageRecord, keep_record: bool = False) -> HeaderOverrides:
    """The overlay of the message after a recovery: without the record, and with one recovery more."""
    # The record is removed, because the next failure writes a new one, and `has_record` would find a recovered message
    # that waits in an ordinary queue.
    overlay = record_of(entry)
    kept = overlay if keep_record else {name: value for name, value in overlay.items() if name not in RECORD}
    return {**kept, RECOVERY_HEADER: number_in(overlay, RECOVERY_HEADER) + 1}
