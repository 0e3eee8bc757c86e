# mypyc: compiled
"""Converts a Message into the command that stores it, and a stored message into the Message that a receiver gets."""

from typing import Final

import msgspec
from mypy_extensions import i64

from unibus.core.codec.codec import decode, encode, encode_quick
from unibus.core.codec.encoding import exact_message
from unibus.core.codec.wire import tagged
from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.fields import LONE_SURROGATE_HINT, checked_headers
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef
from unibus.core.lifecycle.state.overrides import apply_overrides
from unibus.core.lifecycle.state.states import LOCKED
from unibus.errors import DAMAGED_HINT, HeaderInvalid, MessageTooLarge, StoreDamaged, UsageError
from unibus.limits import BODY_BYTES_MAX, MESSAGE_ID_CHARS_MAX

_pack: Final = msgspec.msgpack.Encoder().encode


def send_of(message: Message, entity: str) -> Send:
    """The command that stores a message. Raises for a message that no store could store."""
    # Encoded before the store's lock is taken: the decision only stores the bytes.
    data = encode_quick(message)
    if data is None:
        message = exact_message(message)  # The journal also writes some of its texts in fields of their own.
        data = encode(message)
    size: i64 = len(data)
    if size > BODY_BYTES_MAX:
        raise MessageTooLarge(
            f"the message for {entity!r} has {size} bytes, at most {BODY_BYTES_MAX} are allowed",
            "send a reference to the data",
        )
    message_id = message.id
    if len(message_id) > MESSAGE_ID_CHARS_MAX:
        raise UsageError(f"the message id has {len(message_id)} characters, at most {MESSAGE_ID_CHARS_MAX} are allowed")
    properties = message.properties
    if properties is None:
        plain = Send(entity, MessageRef(message_id, size), data, message.priority)
        plain.message = message
        return plain
    _check_session(properties.session_id)
    who = MessageRef(message_id, size, properties.session_id, properties.correlation_id, message.trace_id)
    command = Send(entity, who, data, message.priority)
    command.message = message
    command.ttl_ns = properties.ttl_ns
    command.visible_ns = properties.scheduled_at_ns
    command.dedup_key = properties.dedup_key
    return command


def _check_session(session_id: str | None) -> None:
    if session_id is not None and not 1 <= len(session_id) <= MESSAGE_ID_CHARS_MAX:
        raise UsageError(f"the session_id must have 1 to {MESSAGE_ID_CHARS_MAX} characters, it has {len(session_id)}")


def message_of(claimed: Claimed) -> Message:
    """The sent message, with its sequence, its delivery count, and the header overrides of earlier settlements."""
    data = claimed.data
    if data is None:
        raise StoreDamaged(f"the data of {claimed.entity!r} #{claimed.sequence} could not be read", DAMAGED_HINT)
    message = decode(data)
    message.sequence = claimed.sequence
    message.delivery_count = claimed.delivery_count
    message.expires_ns = claimed.expires_ns
    apply_overrides(message, claimed.overlay)
    return message


def peeked_message_of(claimed: Claimed) -> Message:
    """The same for a message that was peeked, with the end of the lock that a receiver has on it."""
    message = message_of(claimed)
    if claimed.state == LOCKED:
        show_lock(message, claimed.until_ns)
    return message


def show_lock(message: Message, until_ns: int) -> None:
    """Set `locked_until` of a message that was just decoded."""
    if message.properties is None:
        message.properties = MessageProperties()
    message.properties.locked_until_ns = until_ns


def overrides_of(properties: dict[str, HeaderValue] | None) -> HeaderOverrides | None:
    """The headers with which a settlement overrides those of the message."""
    if not properties:
        return None
    overlay = {exact_text(name): tagged(value, True) for name, value in checked_headers(properties).items()}
    try:
        _pack(overlay)
    except (TypeError, ValueError, OverflowError) as error:
        raise HeaderInvalid(f"a header cannot be written: {error!s:.200}", LONE_SURROGATE_HINT) from error
    return overlay
