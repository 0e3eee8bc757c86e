"""Sends a list of messages for operators and the command line: all or none, and creates their queue on request."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from unibus.bus.management.messages.documents import OutgoingMessage, body_and_fields, whole_message
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.bus.management.threads import encode_in_thread
from unibus.bus.names import checked_name
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import SendResult
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import EntityNotFound
from unibus.stores.seam.durability import Durability

if TYPE_CHECKING:
    from unibus.bus.api.broker import Broker, Pending
    from unibus.bus.queues.operations import Queues


class SendRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All messages are stored, or none. `durability` null means the default of the store."""

    messages: Annotated[list[OutgoingMessage], Meta(min_length=1, max_length=PAGE_MAX)]
    durability: Literal["D1", "D2"] | None = None


class SentMessage(msgspec.Struct, frozen=True):
    """As SendResult: for a duplicate nothing is stored, and `sequence` is 0."""

    entity: str
    sequence: int
    id: str
    duplicate: bool
    durability: str


async def send(broker: "Broker", entity: str, request: SendRequest, creates: bool) -> list[SentMessage]:
    """Send through the broker, so that rate limits, listeners in this process and tracing apply.

    With `creates` a missing queue is created with the messages, as a bus that is not strict does.
    """
    # Another request may create it meanwhile: `_send_to_new` then uses that queue.
    is_new = creates and _is_missing(broker, entity)
    name = checked_name(entity) if is_new else broker.find(entity).name
    size = sum(_size(given) for given in request.messages)
    messages = await encode_in_thread(
        size, len(request.messages), lambda: [_message(broker, name, given, is_new) for given in request.messages]
    )
    durability = None if request.durability is None else Durability.of(request.durability)
    if not is_new:
        return [sent_record(each) for each in await broker.send_many(name, messages, durability)]
    results = await _send_to_new(broker.queues, name, messages, durability)
    return [sent_record(each) for each in results if isinstance(each, SendResult)]


def _send_to_new(
    queues: "Queues", name: str, messages: list[Message], durability: Durability | None
) -> "Pending[list[object]]":
    """Create the queue in the batch of its first messages. A queue that was created meanwhile is used unchanged."""

    def store(given: list[Message]) -> "Pending[list[object]]":
        commands = [queues.command(message, None, {}) for message in given]
        for command in commands:
            command.creates = QUEUE
        return queues.store.apply(commands, durability)

    return store(messages) if queues.watcher is None else queues.watcher.watch_send(name, messages, store)


def _message(broker: "Broker", name: str, given: OutgoingMessage, is_new: bool) -> Message:
    whole = whole_message(given)
    if whole is None:
        return broker.messages(name, [body_and_fields(given)], is_new)[0]
    # The channel of a document is where it was; the request decides where it is sent.
    whole.channel = name
    return whole


def _size(given: OutgoingMessage) -> int:
    parts = (given.document, given.body, given.headers)
    return sum(len(memoryview(part)) for part in parts if isinstance(part, Raw))


def _is_missing(broker: "Broker", entity: str) -> bool:
    try:
        broker.find(entity)
    except EntityNotFound:
        return True
    return False


def sent_record(result: SendResult) -> SentMessage:
    return SentMessage(result.entity, int(result.sequence), result.id, result.duplicate, result.durability)
