# mypyc: compiled
"""Where a message of a durable subscription is dead-lettered, for the line that is logged about it."""

from unibus.bus.execution.failure_log import command_for_channel, command_for_store
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.display import without_secrets
from unibus.stores.seam.store import Store


def find_dead_letter(store: Store, entity: str, message: Message) -> "tuple[str, str]":
    """The queue that a message is dead-lettered in, and the command that shows it there."""
    found = store.catalog.find(entity)
    forwarded = "" if found is None else found.settings.forward_dead_letters_to
    target = store.catalog.find(forwarded) if forwarded else None
    if target is None or target.kind != QUEUE:
        forwarded = ""  # A topic takes it only while a group listens there; until then it stays in its own queue.
    if not store.url.startswith("memory:"):
        command = command_for_store(without_secrets(store.url), message.id)
    else:
        command = f"bus.peek({forwarded!r})" if forwarded else command_for_channel(message.channel)
    return forwarded or sub_queue(entity), command
