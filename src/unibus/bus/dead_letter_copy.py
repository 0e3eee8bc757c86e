"""Writing a dead letter: the message as it was, with the record of why it died."""

import traceback

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties
from unibus.core.flow.deadletter import dead_letter_headers, without_record


def dead_letter(
    message: Message, place: str, reason: str, error: BaseException | None, group: str, now_ns: int
) -> Message:
    """A copy of the message for the dead-letter channel: same id and body, never expiring, answering nobody."""
    letter = message.copy()
    letter.channel = place
    letter.expires_ns = 0
    letter.delivery_count = 0
    properties = MessageProperties() if message.properties is None else message.properties.copy()
    properties.reply_to = None
    kind = "" if error is None else type(error).__name__
    trace = "" if error is None else "".join(traceback.format_exception(error))
    record = dead_letter_headers(
        reason, error_text(error), kind, message.delivery_count, message.channel, group, now_ns, trace
    )
    properties.headers = {**without_record(message.headers), **record}
    letter.properties = properties
    return letter


def error_text(error: BaseException | None) -> str:
    if error is None:
        return ""
    try:
        return str(error)
    except Exception as broken:
        # The message matters more than the words about it.
        return f"(no text: {type(broken).__name__})"


def described(error: BaseException | None) -> str:
    return "nothing was raised" if error is None else f"{type(error).__name__}: {error_text(error)}"
