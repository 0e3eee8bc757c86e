"""Placeholder until the views are written."""

from unibus.core.message import Message


class BusMessage:
    def __init__(self, message: Message) -> None:
        self.message = message


class MessageMeta:
    pass


class MessageId:
    pass
