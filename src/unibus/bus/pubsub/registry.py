"""The registry: every channel of a bus by its name, created by create_channel or, if the bus is not strict, on demand.

Rules:
- Two names that differ only by case cannot both exist.
- A channel that only a publish has created, and that has no subscriber, is removed when there are too many of them, so
  that unique names (one per request, say) do not fill the memory. Its counters are added to `retired`.
- Sequence numbers never go back: a removed channel that is created again starts above every number it gave out.
"""

from collections.abc import Callable
from typing import NamedTuple

from unibus.bus.names import checked_name
from unibus.bus.pubsub.channel import (
    Channel,
    Evicted,
)
from unibus.bus.pubsub.exchange import ChannelProvider, Exchange, is_internal
from unibus.bus.pubsub.group import Group
from unibus.bus.pubsub.name_space import NameSpace
from unibus.bus.pubsub.pattern_names import PatternNames
from unibus.bus.pubsub.unrouted import UnroutedWarnings
from unibus.bus.settings import BLOCK, DROP_OLD, DROP_POLICIES, BusConfig, ChannelConfig, UnaskedSize
from unibus.core.atomic import LOCK
from unibus.core.envelope.fields import seconds_ns
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.flow.dedup import Deduplicator
from unibus.core.flow.limiter import TokenBucket
from unibus.core.flow.metrics import ChannelMetrics
from unibus.errors import BusClosed, BusError, ChannelExists, ChannelNotFound
from unibus.limits import (
    BLOCK_TIMEOUT_S_DEFAULT,
    DEAD_LETTERS_KEPT_MAX,
    DEDUP_WINDOW_S_DEFAULT,
    IMPLICIT_CHANNELS_MAX,
)
from unibus.safe_log import SafeLogger
from unibus.stores.seam.forked import opened_by

log = SafeLogger("unibus")


_IMPLICIT = ChannelConfig(drop_policy=BLOCK, block_timeout=BLOCK_TIMEOUT_S_DEFAULT)
"""The settings of a channel that a publish or a subscribe creates: a publisher that can wait does."""


class ChannelRules(NamedTuple):
    """Rate limit and dedup window of a channel, made from its config."""

    bucket: TokenBucket | None
    dedup: Deduplicator | None


class Registry(ChannelProvider):
    """The channels of one bus, each with its config."""

    def __init__(self, exchange: Exchange, config: BusConfig) -> None:
        super().__init__()
        self._exchange = exchange
        self._config = config
        # `_configs`, `_folded`, `_implicit` and `_floor` change under LOCK, together with `exchange.channels`.
        self._configs: dict[str, ChannelConfig] = {}
        self._folded: dict[str, str] = {}
        self._implicit: dict[str, None] = {}  # Created by a publish, without a subscriber; the oldest first.
        self.dead_letter_queues: set[str] = set()  # Created by the bus; a later create_channel may configure them.
        self.patterns = PatternNames(exchange.channels)
        self.names = NameSpace(exchange.channels, self._folded)
        self._floor = 0  # The highest sequence number of all removed channels; new channels start above it.
        self.retired = ChannelMetrics()  # Counters of removed channels.
        self._unrouted = UnroutedWarnings()
        self.durable: list[Group] = []  # Groups of persistent channels: they deliver messages of the store.
        self.leaving: list[Group] = []  # Groups without consumers, until their last handler has returned.
        self.dead_letter_evicted: Callable[[Channel, list[Evicted]], None] = _not_assembled
        self.is_insider: Callable[[], bool] = _is_never_insider
        self.opened_by = 0  # In a forked child: the pid of the process that opened the bus.

    def check_process(self) -> None:
        """Raise BusForked in a forked child of the process that opened the bus."""
        if self.opened_by:
            raise opened_by(self.opened_by)

    def create(self, name: str, config: ChannelConfig, update: bool = False) -> Channel:
        """Create a channel. Idempotent for the same config; another config needs `update=True`, which keeps the queue.

        Raises ChannelExists, NameInvalid, ConfigInvalid or BusClosed.
        """
        self.check_open("created")
        rules = self._rules(config)
        with LOCK:
            channel = self._exchange.channels.get(name)
            if channel is not None and channel.declared and name not in self.dead_letter_queues:
                if self._configs[name] == config:
                    return channel
                if not update:
                    raise ChannelExists(
                        f"channel {name!r} exists with other settings",
                        "pass update=True to change its settings and keep its messages",
                    )
            # A publish may have made the channel before: it keeps its messages, groups and counters and gets the new
            # config.
            if channel is None:
                channel = self._make(name)
            channel.declared = True
            self._implicit.pop(name, None)
            self.dead_letter_queues.discard(name)
            self._configure(channel, config, rules)
        channel.blocked.wake_all()  # There may be more places, or for some of them none in future.
        return channel

    def dead_letter_queue(self, name: str) -> Channel:
        """The dead-letter channel of that name: an existing one, in any case, or a new one.

        The bus bounds the queues that it makes itself (`<channel>/$DeadLetterQueue`) with `drop_old`.
        """
        with LOCK:
            channel = self._exchange.channels.get(self._folded.get(name.casefold(), name))
            if channel is None or not channel.declared:
                bounded = ChannelConfig(max_queue_size=DEAD_LETTERS_KEPT_MAX, drop_policy=DROP_OLD)
                unbounded = ChannelConfig(max_queue_size=0)
                channel = self.create(
                    name if channel is None else channel.name, bounded if is_sub_queue(name) else unbounded
                )
                self.dead_letter_queues.add(channel.name)
            return channel

    def missing(self, name: str) -> Channel:
        try:
            return self._made(name)
        except BusError as error:
            self._exchange.refused.count_refusal(error, 1)
            raise

    def get_or_make(self, name: str) -> Channel:
        """The channel for a new subscription. Unlike `missing`, a failure is not counted as a rejected publish."""
        channel = self._exchange.channels.get(name)
        return self._made(name) if channel is None else channel

    def _made(self, name: str) -> Channel:
        with LOCK:
            if self._config.strict:
                raise ChannelNotFound(
                    f"channel {name!r} does not exist, and the bus is strict", f"call create_channel({name!r}) first"
                )
            # Looked up again under LOCK: two publishers of one new name must get the same channel, or one message is
            # lost.
            channel = self._exchange.channels.get(name)
            if channel is None:
                self.patterns.check_new(name)
                channel = self._make(name)
                self._implicit[name] = None
                self._configure(channel, _IMPLICIT, self._rules(_IMPLICIT))
                if len(self._implicit) > IMPLICIT_CHANNELS_MAX:
                    self._forget_unused()
            return channel

    def admit_while_closing(self, name: str) -> None:
        self.check_process()
        if not self.is_insider():
            error = BusClosed(f"the bus is closed: nothing was published to {name!r}", "publish before close()")
            self._exchange.refused.count_refusal(error, 1)
            raise error

    def dead_letter(self, channel: Channel, evicted: list[Evicted]) -> None:
        self.dead_letter_evicted(channel, evicted)

    def report_unrouted(self, channel: Channel) -> None:
        # First: a log handler may publish to this channel again, which would recurse.
        channel.is_unrouted_reported = True
        if not is_internal(channel.name):
            self._unrouted.report(channel.name, self.names.is_queue(channel.name))

    def set_config(self, config: BusConfig) -> None:
        """Set the config of channels that are created from now on."""
        self._config = config

    def enable_dedup(self, channel: Channel) -> None:
        """A message with a dedup key was published: from now on the channel has a dedup window."""
        with LOCK:
            if channel.dedup is None:
                channel.dedup = Deduplicator(DEDUP_WINDOW_S_DEFAULT)
                self._exchange.refresh(channel)

    def filter_failed(self, channel: Channel, group: str, error: Exception) -> None:
        channel.metrics.count("errors")
        log.warning("the filter of group %r on %r raised, the message is skipped: %r", group, channel.name, error)

    def config_of(self, name: str) -> ChannelConfig:
        return self._configs[name]

    def groups(self) -> list[Group]:
        with LOCK:
            self.leaving = [group for group in self.leaving if not group.is_idle()]
            groups = [group for channel in self._exchange.channels.values() for group in channel.groups]
            return groups + list(self._exchange.pattern_groups.values()) + self.leaving + self.durable

    def admitted(self) -> int:
        """How many messages were admitted so far. Two equal readings prove that no message came in between."""
        return self._floor + sum(channel.sequence for channel in list(self._exchange.channels.values()))

    def check_open(self, what: str) -> None:
        """Raise BusClosed after close(); a handler may still publish and subscribe while the bus is drained."""
        if self._exchange.closed:
            self.check_process()
            if not self.is_insider():
                raise BusClosed(f"the bus is closed: nothing can be {what} any more", "open a new bus")

    def metrics(self) -> list[ChannelMetrics]:
        with LOCK:
            counted = [channel.metrics for channel in self._exchange.channels.values()]
            return [*counted, self.retired, self._exchange.refused]

    def _make(self, name: str) -> Channel:
        checked_name(name)
        clash = self._folded.setdefault(name.casefold(), name)
        if clash != name:
            raise ChannelExists(
                f"channel {name!r} differs from the existing {clash!r} only by case", f"use {clash!r}, or another name"
            )
        channel = Channel(name, False)
        channel.sequence = self._floor
        self._exchange.channels[name] = channel
        return channel

    def _rules(self, config: ChannelConfig) -> "ChannelRules":
        """Build rate limit and dedup window before anything is changed: an invalid setting changes nothing."""
        rate = config.rate_limit_per_sec
        window = config.dedup_window or self._config.idempotency_ttl
        return ChannelRules(
            None if rate is None else TokenBucket(rate, config.rate_limit_burst, self._exchange.monotonic_ns()),
            None if window is None else Deduplicator(window),
        )

    def _configure(self, channel: Channel, config: ChannelConfig, rules: "ChannelRules") -> None:
        before = self._configs.get(channel.name, _IMPLICIT)
        self._configs[channel.name] = config
        channel.max_size = config.max_queue_size
        channel.stored_max = 0 if isinstance(config.max_queue_size, UnaskedSize) else config.max_queue_size
        policy = DROP_POLICIES[config.drop_policy]
        channel.evicts, channel.waits = policy.evicts, policy.waits
        channel.block_timeout_s = config.block_timeout
        channel.default_priority = config.default_priority
        channel.ttl_ns = 0 if config.ttl is None else seconds_ns("ttl", config.ttl)
        channel.dead_letter_channel = config.dead_letter_channel
        channel.bucket = rules.bucket
        # The same window is kept: replacing it would forget the ids that it has seen.
        if channel.dedup is None or before.dedup_window != config.dedup_window:
            channel.dedup = rules.dedup
        # Last: the cached `plain` and `only` depend on the rules above, and the next publish has to derive them again.
        channel.routes_version = -1

    def in_use(self, name: str) -> None:
        """The channel has a subscriber: it must not be removed."""
        self._implicit.pop(name, None)

    def out_of_use(self, channel: Channel) -> None:
        """The channel has lost its last group: it may be removed, unless create_channel has made it."""
        if not channel.declared and not channel.groups:
            self._implicit[channel.name] = None

    def _forget_unused(self) -> None:
        for name in list(self._implicit)[: IMPLICIT_CHANNELS_MAX // 2]:
            channel = self._exchange.channels.pop(name)
            del self._implicit[name], self._configs[name], self._folded[name.casefold()]
            self._floor = max(self._floor, channel.sequence)
            # A publisher that has looked up the channel before still counts into it: let it count into the total.
            self.retired.merge(channel.metrics)
            channel.metrics = self.retired


def _not_assembled(channel: Channel, evicted: list[Evicted]) -> None:
    raise AssertionError("BusRuntime sets dead_letter_evicted before the first publish")


def _is_never_insider() -> bool:
    return False
