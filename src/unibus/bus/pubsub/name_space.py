"""One name space for channels in memory and the queues and topics of a store: a name belongs to one of them.

    the name is                send                      subscribe, create_channel    create_queue, receive
    a persistent channel       delivered to handlers     allowed                      EntityExists: it is a topic
    a channel in memory        EntityExists              allowed                      EntityExists
    a queue or a topic         stored                    EntityExists                 allowed

A persistent channel is a topic of the store, so the store itself enforces the first row. The store does not know
channels in memory: without this check `send` would create a queue of the same name, and the message would be stored
where no handler reads it.

A channel claims its name with create_channel or with its first subscriber; a mere publish claims no name. Dead-letter
queues are exempt: rejecting one would lose a message.
"""

from collections.abc import Callable, Mapping
from typing import Final

from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import is_internal
from unibus.core.lifecycle.state.entity import KIND_NAMES, QUEUE, TOPIC
from unibus.errors import EntityExists
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import Store

RECEIVE: Final = "receive() from it, or choose another name for the channel"


class NameSpace:
    """The name space of one bus. `store` and `is_persistent` are set when the bus gets a store."""

    def __init__(self, channels: Mapping[str, Channel], folded: Mapping[str, str]) -> None:
        self._channels = channels
        self._folded = folded  # Case-folded name -> name as written.
        self.store: Store | None = None
        self.is_persistent: Callable[[str], bool] = _never
        # Called when a channel claims a name: Queues then forgets which names it has checked.
        self.claimed: Callable[[], None] = _do_nothing

    def check_channel(self, name: str) -> None:
        """Raise EntityExists if a channel in memory would hide a queue or topic. At subscribe and create_channel."""
        self.claimed()
        if self.store is None or is_internal(name) or self.is_persistent(name):
            return
        found = self.store.catalog.find(name)
        if found is not None:
            kind = KIND_NAMES[found.kind]
            hint = RECEIVE
            if found.kind == TOPIC and self.store.durability != Durability.D0:
                hint = f"call create_channel({name!r}, persistent=True) first, or choose another name"
            raise EntityExists(f"{name!r} is a {kind} of the store; a channel in memory cannot have its name", hint)

    def check_persistent(self, name: str) -> None:
        """Raise EntityExists if a persistent channel, which is a topic, would have the name of a queue."""
        if self.is_queue(name):
            raise EntityExists(f"{name!r} is a queue of the store; a persistent channel cannot have its name", RECEIVE)

    def is_queue(self, name: str) -> bool:
        found = None if self.store is None else self.store.catalog.find(name)
        return found is not None and found.kind == QUEUE

    def check_entity(self, name: str) -> None:
        """Raise EntityExists if a new queue or topic has the name of a channel in memory."""
        # Compared case-folded: the names of a store ignore case, so `Orders` and `orders` are one entity.
        channel = self._channels.get(self._folded.get(name.casefold(), name))
        if channel is None or not (channel.declared or channel.groups):
            return
        if not is_internal(channel.name) and not self.is_persistent(channel.name):
            raise EntityExists(
                f"{name!r} is a channel in memory: its handlers would not get the messages of a queue of that name",
                "publish() to the channel, or choose another name; send() reaches handlers of persistent channels only",
            )


def _never(name: str) -> bool:
    return False


def _do_nothing() -> None:
    return None
