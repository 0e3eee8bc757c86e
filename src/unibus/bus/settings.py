"""The settings of channels, of subscriptions and of the bus.

Each is checked once, when the settings object is made: code that reads it may rely on the values. A wrong value raises
ConfigInvalid and changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypedDict

from unibus.bus.names import checked_name
from unibus.core.envelope.fields import seconds_ns
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.display import given_fields
from unibus.errors import ConfigInvalid
from unibus.limits import QUEUE_SIZE_DEFAULT, WORKER_COUNT_DEFAULT, WORKER_COUNT_MAX
from unibus.near_names import hint_for_name
from unibus.other_words import meant_among

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
    """The default bound of a queue, as opposed to one that the user gave.

    It bounds the backlog in memory only: a persistent channel, whose backlog is on disk, is unbounded by default.
    """


@dataclass(frozen=True)
class ChannelConfig:
    """How a channel treats its messages.

    `drop_policy` decides what a publish does when a reliable group has a backlog of `max_queue_size` messages
    (0 = unbounded): `drop_new` raises QueueFull, `drop_old` evicts the oldest message of the lowest priority, `block`
    waits for a free place in the queue, at most `block_timeout` seconds. `ttl` is in seconds. `dedup_window` (seconds)
    drops messages whose id or dedup key was seen before. `persistent` keeps the channel's messages, and the position
    of each group, in the store of the bus; None means: persistent if the bus has a durable URL. A persistent channel
    is unbounded unless a size is given.
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
        if not isinstance(self.drop_policy, str) or self.drop_policy not in DROP_POLICIES:
            raise ConfigInvalid(f"unknown drop_policy {self.drop_policy!r}", f"use one of {', '.join(DROP_POLICIES)}")
        if self.rate_limit_burst is not None and self.rate_limit_per_sec is None:
            raise ConfigInvalid("rate_limit_burst needs rate_limit_per_sec", "give the rate too")
        # Called for their checks: the config keeps the values as they were given.
        checked_priority(self.default_priority)
        if self.dead_letter_channel is not None:
            checked_name(self.dead_letter_channel)
        for name in ("ttl", "dedup_window", "block_timeout"):
            if getattr(self, name) is not None:
                seconds_ns(name, getattr(self, name))

    def __repr__(self) -> str:
        return given_fields(self)


def channel_config(config: ChannelConfig | None, options: dict[str, object]) -> ChannelConfig:
    """A config from an object, from keywords, or from both: keywords win. A keyword of None is ignored."""
    known = {field.name for field in fields(ChannelConfig)}
    unknown = [name for name in options if name not in known]
    if unknown:
        hint = hint_for_name(unknown[0], known, meant=meant_among(known))
        raise ConfigInvalid(f"a channel has no setting {unknown[0]!r}", hint)
    # Through the constructor again, which checks the combination of both.
    given = {} if config is None else {name: getattr(config, name) for name in known}
    given.update({name: value for name, value in options.items() if value is not None})
    return ChannelConfig(**given)


@dataclass(frozen=True)
class BusConfig:
    """`strict`: publish and subscribe refuse a channel that was not created before. `idempotency_ttl` (seconds) turns
    on duplicate detection by message id for every channel."""

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
    `requeue="back"` puts a failed message behind all others of its priority instead of back to its old position.
    On a persistent channel: `start` is where a new group begins ("end", "beginning", a sequence, a datetime), and
    `idempotent=True` stores with each acknowledgement the id of the handled message, for as long as a message can
    exist there: a message that is sent again with this id is not handled again. If the process ends between the
    return of the handler and the acknowledgement, the message is redelivered.
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
