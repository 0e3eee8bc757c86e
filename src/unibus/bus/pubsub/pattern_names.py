"""Names that read as wildcard patterns: what `subscribe` makes of them, and that no new channel gets one.

`subscribe("orders.*", handler)` is a subscription to a pattern (core/topics/pattern.py has the rule). A channel of that
name could be subscribed to by mistake only, so none is created: not by `create_channel`, by a publish or a send, nor by
`create_topic` and `create_queue`, which share the name space of a store with channels.

Earlier versions created them. A store that has one keeps it: the name is that channel then, not a pattern, and
everything that the channel could do goes on to work. Dead-letter queues get their names from their channels and are
never refused: that would lose a message.
"""

import logging
from collections.abc import Callable, Mapping

from unibus.bus.pubsub.channel import Channel
from unibus.bus.settings import SubscribeOptions
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.topics.pattern import Pattern, is_wildcard
from unibus.errors import NameInvalid
from unibus.stores.seam.store import Store

log = logging.getLogger("unibus")


def check_new_name(name: str, exists: Callable[[str], bool]) -> None:
    """NameInvalid for a pattern, unless a channel or entity of that name exists."""
    if is_wildcard(name) and not is_sub_queue(name) and not exists(name):
        raise NameInvalid(
            f"{name!r:.80} is a pattern, and no new channel can have its name",
            "subscribe to it, or use another name; match='exact' is for channels that a store already has",
        )


def check_new_entity(name: str, store: Store) -> None:
    """The same for a name that only the store may have."""
    check_new_name(name, lambda wanted: store.catalog.find(wanted) is not None)


class PatternNames:
    """The names of one bus. `stored` becomes its store, `is_durable` whether channels are persistent by default."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels
        self._is_logged = False
        self.stored: Store | None = None
        self.is_durable = False

    def exists(self, name: str) -> bool:
        """Whether a channel or an entity of the store has the name. Case does not matter in a store."""
        return name in self._channels or (self.stored is not None and self.stored.catalog.find(name) is not None)

    def check_new(self, name: str) -> None:
        check_new_name(name, self.exists)

    def read(self, target: str | Pattern, options: SubscribeOptions) -> str | Pattern:
        """What `subscribe` is asked for: a Pattern in place of a text that is one."""
        if "match" in options or not isinstance(target, str) or not is_wildcard(target) or self.exists(target):
            return target
        pattern = Pattern.wildcard(target)
        if self.is_durable and not self._is_logged:
            self._is_logged = True
            log.warning(
                "subscriptions to patterns are not stored: what is published while this process is down does not "
                "reach %r; pass match='wildcard' if that is intended",
                target,
            )
        return pattern
