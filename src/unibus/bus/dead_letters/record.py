# mypyc: compiled
"""The record of a death, as it is read from a message that waits.

It is part of the overlay of a stored message, so that thousands of dead-lettered messages are judged without reading
a body. What is read here is read once for each of them: hence compiled.
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
from unibus.core.lifecycle.state.entity import StoredMessage

RECOVERY_HEADER: Final = "DeadLetterRecoveryAttempts"
"""How often somebody brought it back. Not part of the record: it is kept through another death."""

LAST_ERROR_HEADER: Final = "LastError"
"""What a block that raised wrote on the message when it gave it back (received.py)."""

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


def record_of(entry: StoredMessage) -> HeaderOverrides:
    return _NOTHING if entry.overlay is None else entry.overlay


def text_in(overlay: HeaderOverrides, name: str) -> str:
    value = overlay.get(name)
    return value if isinstance(value, str) else ""


def number_in(overlay: HeaderOverrides, name: str) -> int:
    value = overlay.get(name)
    return value if isinstance(value, int) else 0


def is_dead(entry: StoredMessage) -> bool:
    """Whether the message carries the record of a death: also one that was forwarded to a queue of its own."""
    return entry.overlay is not None and REASON_HEADER in entry.overlay


def died_ns(entry: StoredMessage) -> int:
    return number_in(record_of(entry), TIME_HEADER) or int(entry.enqueued_ns)


def error_in(overlay: HeaderOverrides) -> str:
    """What went wrong, in the words of the error: its type and text, or what was written when it was given back."""
    kind, text = text_in(overlay, ERROR_TYPE_HEADER), text_in(overlay, DESCRIPTION_HEADER)
    if kind:
        return f"{kind}: {text}" if text else kind
    return text_in(overlay, LAST_ERROR_HEADER) or text


def owner_of(place: str) -> str:
    """The queue or subscription whose dead-letter queue that is; a queue that is none stands for itself."""
    return place.rpartition("/")[0] if is_sub_queue(place) else place


def source_in(overlay: HeaderOverrides) -> str:
    """The queue or subscription where it died. Earlier versions wrote the dead-letter queue where it died twice."""
    return owner_of(text_in(overlay, SOURCE_HEADER))


def second_life(entry: StoredMessage, keep_record: bool = False) -> HeaderOverrides:
    """The overlay of a message that is brought back: without the record, and with one recovery more."""
    overlay = record_of(entry)
    kept = overlay if keep_record else {name: value for name, value in overlay.items() if name not in RECORD}
    return {**kept, RECOVERY_HEADER: number_in(overlay, RECOVERY_HEADER) + 1}
