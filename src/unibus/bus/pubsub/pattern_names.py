"""Names that look like wildcard patterns: `subscribe` reads them as patterns, and no new channel can have one.

`subscribe("orders.*", handler)` subscribes to a pattern (the rule is in core/topics/pattern.py). A channel with such a
name could only be subscribed to by mistake, so none is created: not by `create_channel`, a publish or a send, nor by
`create_topic` and `create_queue`, which share the name space of a store with channels.

Earlier versions created such channels. If a store has one, its name means that channel and not a pattern, and the
channel works as before. Dead-letter queues get their names from their channels and are exempt: rejecting one would
lose a message.
"""

from collections.abc import Callable, Mapping

from unibus.bus.pubsub.channel import Channel
from unibus.bus.settings import SubscribeOptions
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.topics.pattern import Pattern, is_wildcard
from unibus.errors import NameInvalid
from unibus.safe_log import SafeLogger
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")


def check_new_name(name: str, exists: Callable[[str], bool]) -> None:
    """Raise NameInvalid for a pattern, unless a channel or entity of that name exists."""
    if is_wildcard(name) and not is_sub_queue(name) and not exists(name):
        raise NameInvalid(
            f"{name!r:.80} is a wildcard pattern and cannot be the name of a new channel or entity",
            "use a name without wildcards, or subscribe() to the pattern; match='exact' is for existing channels",
        )


def check_new_entity(name: str, store: Store) -> None:
    """The same for a queue or topic: only the store is searched for an existing one."""
    check_new_name(name, lambda wanted: store.catalog.find(wanted) is not None)


class PatternNames:
    """The pattern names of one bus. `stored` is its store; `is_durable`: its channels are persistent by default."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels
        self._is_logged = False
        self.stored: Store | None = None
        self.is_durable = False

    def exists(self, name: str) -> bool:
        """Whether a channel or an entity of the store has the name. A store ignores case."""
        return name in self._channels or (self.stored is not None and self.stored.catalog.find(name) is not None)

    def check_new(self, name: str) -> None:
        check_new_name(name, self.exists)

    def read(self, target: str | Pattern, options: SubscribeOptions) -> str | Pattern:
        """Read the target of `subscribe`: a text that is a wildcard pattern becomes a Pattern."""
        if "match" in options or not isinstance(target, str) or not is_wildcard(target) or self.exists(target):
            return target
        pattern = Pattern.wildcard(target)
        if self.is_durable and not self._is_logged:
            self._is_logged = True
            log.warning(
                "a subscription to a pattern is not durable: %r misses messages that are published while this process "
                "is down; pass match='wildcard' to confirm that and silence this warning",
                target,
            )
        return pattern
