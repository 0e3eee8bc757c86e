"""The order of a list of dead-lettered messages: by one of their properties, without reading a body."""

from collections.abc import Callable
from typing import Final, NamedTuple

from unibus.bus.dead_letters.record import RECOVERY_HEADER, dead_lettered_ns, number_in, record_of, source_in, text_in
from unibus.core.flow.deadletter import ATTEMPTS_HEADER, REASON_HEADER
from unibus.errors import UsageError
from unibus.stores.seam.message_record import MessageRecord

Key = Callable[[MessageRecord], int | str]

_KEYS: Final[dict[str, Key]] = {
    "failure_timestamp": dead_lettered_ns,
    "failure_reason": lambda entry: text_in(record_of(entry), REASON_HEADER),
    "attempts": lambda entry: number_in(record_of(entry), ATTEMPTS_HEADER),
    "retry_count": lambda entry: number_in(record_of(entry), ATTEMPTS_HEADER),  # One less, so the same order.
    "recovery_attempts": lambda entry: number_in(record_of(entry), RECOVERY_HEADER),
    "source": lambda entry: source_in(record_of(entry)),
    "entity": lambda entry: entry.entity,
    "id": lambda entry: entry.who.message_id,
    "size": lambda entry: entry.who.size,
}
"""Sort keys by the names of the attributes of DeadMessage."""


class DeadLetterOrder(NamedTuple):
    key: Key
    is_descending: bool


def order_of(given: object, after: object) -> DeadLetterOrder | None:
    """The order for `order_by`; None for the default, the oldest failure first. A leading `-` reverses it."""
    if given is None or given == "failure_timestamp":
        return None
    name = given.removeprefix("-") if isinstance(given, str) else ""
    if name not in _KEYS:
        raise UsageError(
            f"order_by must be one of {', '.join(_KEYS)}, got {given!r:.60}", "a leading - reverses the order"
        )
    if after is not None:
        raise UsageError("after and order_by cannot be combined", "pages are in the order of failure_timestamp")
    return DeadLetterOrder(_KEYS[name], str(given).startswith("-"))
