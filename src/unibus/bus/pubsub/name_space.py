"""One name space for channels in memory and for the queues and topics of a store: a name belongs to one of them.

    the name belongs to        send                      subscribe, create_channel    create_queue, receive
    a persistent channel       its handlers get it       as always                    EntityExists: it is a topic
    a channel in memory        EntityExists              as always                    EntityExists
    a queue or a topic         stores it                 EntityExists                 as always

A persistent channel is a topic of the store, so the store itself keeps the first row. A channel in memory is unknown to
the store: without the check `send` would make a queue of the same name, and the handlers would wait for a message that
is stored where none of them looks.

A channel counts from its first subscriber on, or once it was created; a mere publish claims no name. Dead-letter
queues are never refused: that would lose a message.
"""

from collections.abc import Callable, Mapping

from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import is_internal
from unibus.core.lifecycle.state.entity import KIND_NAMES, TOPIC
from unibus.errors import EntityExists
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import Store


class NameSpace:
    """The names of one bus. All but the channels is set when the bus gets a store."""

    def __init__(self, channels: Mapping[str, Channel], folded: Mapping[str, str]) -> None:
        self._channels = channels
        self._folded = folded  # Names as they are written, by the same in lower case.
        self.store: Store | None = None
        self.is_persistent: Callable[[str], bool] = _never
        self.claimed: Callable[[], None] = _nothing  # Called when a channel takes a name: those of queues may be free.

    def check_channel(self, name: str) -> None:
        """For a channel in memory that gets a subscriber, or is created."""
        self.claimed()
        if self.store is None or is_internal(name) or self.is_persistent(name):
            return
        found = self.store.catalog.find(name)
        if found is not None:
            kind = KIND_NAMES[found.kind]
            hint = "receive from it, or choose another name"
            if found.kind == TOPIC and self.store.durability != Durability.D0:
                hint = f"create_channel({name!r}, persistent=True) first, or choose another name"
            raise EntityExists(f"{name!r} is a {kind} of the store, and this channel would be in memory", hint)

    def check_entity(self, name: str) -> None:
        """For a queue or topic that is created, by its own call or by the first send or receive."""
        channel = self._channels.get(self._folded.get(name.casefold(), name))
        if channel is None or not (channel.declared or channel.groups):
            return
        if not is_internal(channel.name) and not self.is_persistent(channel.name):
            raise EntityExists(
                f"{name!r} is a channel in memory: its handlers do not get what a queue of that name stores",
                "publish to it, or choose another name; on a bus with a store, send reaches the handlers of a channel",
            )


def _never(name: str) -> bool:
    return False


def _nothing() -> None:
    return None
