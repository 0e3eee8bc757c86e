"""Makes the copy of a failed message for its dead-letter channel: the same message, with the record of the failure.

Used where messages are in memory (channels and backends). A store dead-letters by a change of its own state instead.
"""

from unibus.bus.error_texts import error_text, failure_text
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties
from unibus.core.flow.deadletter import dead_letter_headers, without_record
from unibus.safe_log import type_name


def dead_letter(
    message: Message, place: str, reason: str, error: BaseException | None, group: str, now_ns: int
) -> Message:
    """A copy of the message for the dead-letter channel `place`: same id and body, no expiry, no reply address."""
    copy = message.copy()
    copy.channel = place
    # A dead-lettered message waits for an operator, however long that takes. Its handlers there begin to count their
    # attempts from the start.
    copy.expires_ns = 0
    copy.delivery_count = 0
    # A copy: the message may still be in other groups, which share the properties object.
    properties = MessageProperties() if message.properties is None else message.properties.copy()
    # A handler of the dead-letter channel must not answer the requester of the original message.
    properties.reply_to = None
    kind = "" if error is None else type_name(error)
    trace = "" if error is None else failure_text(error)
    record = dead_letter_headers(
        reason, error_text(error), kind, message.delivery_count, message.channel, group, now_ns, trace
    )
    # The record of an earlier failure is replaced: the headers describe the last one.
    properties.headers = {**without_record(message.headers), **record}
    copy.properties = properties
    return copy
