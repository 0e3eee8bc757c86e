# mypyc: compiled
"""Applies header overrides, which settlements and dead-lettering set, to the headers of a message."""

from unibus.core.codec.wire import untagged
from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.lifecycle.state.changes import HeaderOverrides


def apply_overrides(message: Message, overlay: HeaderOverrides | None) -> None:
    if overlay is None:
        return
    properties = MessageProperties() if message.properties is None else message.properties
    headers: dict[str, HeaderValue] = dict(properties.headers)
    headers.update(checked_headers({name: untagged(value) for name, value in overlay.items()}))
    properties.headers = headers
    message.properties = properties
