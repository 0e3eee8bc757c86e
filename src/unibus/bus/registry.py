"""One name space: every channel by its name, made when asked for, or on the fly when that is allowed.

Names that differ only by case cannot both exist. A channel that was made by a mere publish and has no subscriber of its
own is forgotten again when there are too many of them, so that unique topic names do not fill the memory; its counts
are kept in the total, and sequences never go back.
"""

from collections.abc import Callable

from unibus.bus.channel import (
    POLICY_BLOCK,
    POLICY_DROP_NEW,
    POLICY_DROP_OLD,
    Casualty,
    Channel,
)
from unibus.bus.exchange import Exchange, Steward
from unibus.bus.group import Group
from unibus.bus.settings import BLOCK, DROP_NEW, DROP_OLD, BusConfig, ChannelConfig
from unibus.core.atomic import LOCK
from unibus.core.dedup import Deduplicator
from unibus.core.fields import seconds_ns
from unibus.core.limiter import TokenBucket
from unibus.core.metrics import ChannelMetrics
from unibus.errors import BusClosed, ChannelExists, ChannelNotFound, NameInvalid
from unibus.limits import CHANNEL_NAME_BYTES_MAX, DEDUP_WINDOW_S_DEFAULT, IMPLICIT_CHANNELS_MAX

_POLICIES = {DROP_NEW: POLICY_DROP_NEW, DROP_OLD: POLICY_DROP_OLD, BLOCK: POLICY_BLOCK}


class Registry(Steward):
    """The channels of one bus, with the config that each was made with."""

    def __init__(self, exchange: Exchange, config: BusConfig) -> None:
        super().__init__()
        self._exchange = exchange
        self._config = config
        self._configs: dict[str, ChannelConfig] = {}
        self._folded: dict[str, str] = {}
        self._implicit: dict[str, None] = {}  # In the order in which they were made.
        self._floor = 0  # No sequence of a forgotten channel is given again.
        self.retired = ChannelMetrics()
        self.bury_casualties: Callable[[Channel, list[Casualty]], None] = _nobody
        self.is_insider: Callable[[], bool] = _nowhere

    def create(self, name: str, config: ChannelConfig, update: bool = False) -> Channel:
        """Make a channel. The same config again is no change; another needs `update=True`, which keeps the queue."""
        with LOCK:
            channel = self._exchange.channels.get(name)
            if channel is not None and channel.declared and self._configs[name] != config and not update:
                raise ChannelExists(
                    f"channel {name!r} exists with other settings", "pass update=True to change it and keep its queue"
                )
            if channel is None:
                channel = self._make(name)
            channel.declared = True
            self._implicit.pop(name, None)
            self._configure(channel, config)
            return channel

    def get_or_make(self, name: str) -> Channel:
        """The channel that somebody subscribes or publishes to."""
        channel = self._exchange.channels.get(name)
        return self.missing(name) if channel is None else channel

    def missing(self, name: str) -> Channel:
        with LOCK:
            if self._config.strict:
                self._exchange.refused.count("not_found")
                raise ChannelNotFound(
                    f"there is no channel {name!r}", f"create_channel({name!r}) first; the bus is strict"
                )
            channel = self._exchange.channels.get(name)
            if channel is None:
                channel = self._make(name)
                self._implicit[name] = None
                self._configure(channel, ChannelConfig())
                if len(self._implicit) > IMPLICIT_CHANNELS_MAX:
                    self._forget_unused()
            return channel

    def admit_while_closing(self, name: str) -> None:
        if not self.is_insider():
            self._exchange.refused.count("closed")
            raise BusClosed(f"the bus is closed; nothing was published to {name!r}", "publish before close()")

    def bury(self, channel: Channel, casualties: list[Casualty]) -> None:
        self.bury_casualties(channel, casualties)

    def set_config(self, config: BusConfig) -> None:
        """For the channels that are made from now on."""
        self._config = config

    def enable_dedup(self, channel: Channel) -> None:
        """Somebody gave a dedup key: from now on the channel remembers them."""
        with LOCK:
            if channel.dedup is None:
                channel.dedup = Deduplicator(DEDUP_WINDOW_S_DEFAULT)
                self._exchange.refresh(channel)

    def config_of(self, name: str) -> ChannelConfig:
        return self._configs[name]

    def groups(self) -> list[Group]:
        with LOCK:
            groups = [group for channel in self._exchange.channels.values() for group in channel.groups]
            return groups + list(self._exchange.pattern_groups.values())

    def metrics(self) -> list[ChannelMetrics]:
        with LOCK:
            counted = [channel.metrics for channel in self._exchange.channels.values()]
            return [*counted, self.retired, self._exchange.refused]

    def _make(self, name: str) -> Channel:
        checked_name(name)
        clash = self._folded.setdefault(name.casefold(), name)
        if clash != name:
            raise ChannelExists(f"channel {name!r} differs from {clash!r} only by case", f"use {clash!r}")
        channel = Channel(name, False)
        channel.sequence = self._floor
        self._exchange.channels[name] = channel
        return channel

    def _configure(self, channel: Channel, config: ChannelConfig) -> None:
        self._configs[channel.name] = config
        channel.max_size = config.max_queue_size
        channel.policy = _POLICIES[config.drop_policy]
        channel.default_priority = config.default_priority
        channel.ttl_ns = 0 if config.ttl is None else seconds_ns("ttl", config.ttl)
        channel.dead_letter_channel = config.dead_letter_channel
        now_ns = self._exchange.monotonic_ns()
        rate = config.rate_limit_per_sec
        channel.bucket = None if rate is None else TokenBucket(rate, config.rate_limit_burst, now_ns)
        window = config.dedup_window or self._config.idempotency_ttl
        channel.dedup = None if window is None else channel.dedup or Deduplicator(window)
        self._exchange.version += 1

    def _forget_unused(self) -> None:
        unused = [name for name in self._implicit if not self._exchange.channels[name].groups]
        for name in unused[: len(unused) // 2]:
            channel = self._exchange.channels.pop(name)
            del self._implicit[name], self._configs[name], self._folded[name.casefold()]
            self._floor = max(self._floor, channel.sequence)
            # From here on whoever still holds the channel counts into the total.
            self.retired.merge(channel.metrics)
            channel.metrics = self.retired


def _nobody(channel: Channel, casualties: list[Casualty]) -> None:
    raise AssertionError("the bus has not been put together yet")


def _nowhere() -> bool:
    return False


def checked_name(name: object) -> str:
    """A name that every door can carry: text, not empty, without control characters, not too long."""
    if not isinstance(name, str):
        raise NameInvalid(f"a channel name is text, not {type(name).__name__}")
    if not name or len(name.encode("utf-8", "surrogatepass")) > CHANNEL_NAME_BYTES_MAX:
        raise NameInvalid(f"channel name {name!r:.80} must have 1 to {CHANNEL_NAME_BYTES_MAX} bytes")
    if not name.isprintable():
        raise NameInvalid(f"channel name {name!r:.80} has characters that cannot be shown", "use printable text")
    return name
