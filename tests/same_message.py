"""Equality of two messages in every field: what a lossless encoding has to preserve.

`Message` itself compares by identity, because production code never compares two envelopes field by field.
"""

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties


def same_message(one: Message, other: Message) -> bool:
    """Equal in every field and in the body. No properties and empty properties are equal."""
    return _fixed_fields(one) == _fixed_fields(other) and _properties(one) == _properties(other)


def _fixed_fields(message: Message) -> tuple[object, ...]:
    place = (message.sequence, message.expires_ns, message.delivery_count)
    return (message.id, message.channel, message.body, message.priority, message.timestamp_ns, place)


def _properties(message: Message) -> tuple[object, ...]:
    return (MessageProperties() if message.properties is None else message.properties).as_tuple()
