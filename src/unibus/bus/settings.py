"""What can be set, checked once where it is set: channels, subscriptions, the bus."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypedDict

from unibus.bus.names import checked_name
from unibus.core.envelope.fields import seconds_ns
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.errors import ConfigInvalid
from unibus.limits import QUEUE_SIZE_DEFAULT, WORKER_COUNT_DEFAULT, WORKER_COUNT_MAX
from unibus.near_names import hint_for_name

DROP_NEW: Final = "drop_new"
DROP_OLD: Final = "drop_old"
BLOCK: Final = "block"


class DropPolicy(NamedTuple):
    """What happens to a publish when a reliable group has no free place."""

    evicts: bool
    """The oldest of the least urgent messages is evicted, and dead-lettered where a channel is named for that."""
    waits: bool
    """The publisher waits for a free place. Where neither holds, the publish is refused with QueueFull."""
    is_for_stores: bool
    """Persistent channels can have it: a store evicts nothing that it has acknowledged."""


DROP_POLICIES: Final = {
    DROP_NEW: DropPolicy(evicts=False, waits=False, is_for_stores=True),
    DROP_OLD: DropPolicy(evicts=True, waits=False, is_for_stores=False),
    BLOCK: DropPolicy(evicts=False, waits=True, is_for_stores=True),
}
"""One row for each value of `drop_policy`."""


class UnaskedSize(int):
    """A bound that nobody has asked for. It holds for what waits in memory; what a store keeps may wait as it likes."""


@dataclass(frozen=True)
class ChannelConfig:
    """How a channel treats its messages.

    `drop_policy` decides what happens to a publish when a reliable group has `max_queue_size` messages waiting
    (0 = unbounded): `drop_new` refuses it with QueueFull, `drop_old` evicts the oldest of the least urgent, `block`
    waits for room, at most `block_timeout` seconds. `ttl` is in seconds. `dedup_window` (seconds) drops repeated ids
    and dedup keys. `persistent` keeps the channel's messages in the bus's store, and each group's place in them; None
    means: if the bus stands on a durable URL. Such a channel is unbounded unless a size is given.
    """

    max_queue_size: int = UnaskedSize(QUEUE_SIZE_DEFAULT)
    drop_policy: str = DROP_NEW
    rate_limit_per_sec: float | None = None
    rate_limit_burst: float | None = None
    ttl: float | None = None
    default_priority: int = Priority.NORMAL
    dead_letter_channel: str | None = None
    persistent: bool | None = None
    dedup_window: float | None = None
    block_timeout: float | None = None

    def __post_init__(self) -> None:
        size = self.max_queue_size
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ConfigInvalid(f"max_queue_size {size!r} is not a whole number of 0 or more", "0 means unbounded")
        if self.drop_policy not in DROP_POLICIES:
            raise ConfigInvalid(f"unknown drop_policy {self.drop_policy!r}", f"use one of {', '.join(DROP_POLICIES)}")
        if self.rate_limit_burst is not None and self.rate_limit_per_sec is None:
            raise ConfigInvalid("rate_limit_burst without rate_limit_per_sec", "give the rate too")
        checked_priority(self.default_priority)
        if self.dead_letter_channel is not None:
            checked_name(self.dead_letter_channel)
        for name in ("ttl", "dedup_window", "block_timeout"):
            if getattr(self, name) is not None:
                seconds_ns(name, getattr(self, name))


# What queues of other libraries call these settings.
_MEANT: Final = {"max_size": "max_queue_size", "maxsize": "max_queue_size", "durable": "persistent"}


def channel_config(config: ChannelConfig | None, options: dict[str, object]) -> ChannelConfig:
    """A config from an object, from keywords, or from both: keywords win. None means "the default"."""
    known = {field.name for field in fields(ChannelConfig)}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ConfigInvalid(f"a channel has no setting {unknown[0]!r}", hint_for_name(unknown[0], known, meant=_MEANT))
    given = {} if config is None else {name: getattr(config, name) for name in known}
    given.update({name: value for name, value in options.items() if value is not None})
    return ChannelConfig(**given)


@dataclass(frozen=True)
class BusConfig:
    """`strict`: publish and subscribe refuse channels that nobody created. `idempotency_ttl` (seconds) turns on
    duplicate detection by message id for every channel."""

    worker_count: int = WORKER_COUNT_DEFAULT
    strict: bool = False
    idempotency_ttl: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.worker_count, int) or not 1 <= self.worker_count <= WORKER_COUNT_MAX:
            raise ConfigInvalid(f"worker_count {self.worker_count!r} is not a number from 1 to {WORKER_COUNT_MAX}")
        if self.idempotency_ttl is not None:
            seconds_ns("idempotency_ttl", self.idempotency_ttl)


class SubscribeOptions(TypedDict, total=False):
    """The rarer options of `subscribe`.

    `group`: subscribers with the same group compete; default is the handler's own name. `filter`: called with the
    message at publish, in the publisher's thread. `match`: what the channel argument is; without it a name with a
    wildcard is a pattern, any other exact (pattern_names.py). `dispatch="inline"` runs a sync handler in the
    publisher's thread. `overflow="drop_oldest"` makes the subscriber lossy with a queue of its own of `queue_size`.
    `requeue="back"` sends a failed message to the end of its level instead of back to its place.
    On a persistent channel: `start` is where a new group begins ("end", "beginning", a sequence, a datetime), and
    `idempotent=True` remembers with each acknowledgement that this message was handled, for as long as a message
    may live there: one that is sent again under its id is not handled again. Where the process ends between the
    handler and the acknowledgement, the handler is called again.
    """

    group: str | None
    filter: Callable[[Message], object] | None
    match: Literal["exact", "prefix", "wildcard"]
    dispatch: Literal["pool", "inline"]
    overflow: Literal["drop_oldest"] | None
    queue_size: int
    retry_backoff: float
    retry_jitter: float
    requeue: Literal["front", "back"]
    start: str | int | datetime | None
    idempotent: bool
