# mypyc: compiled
"""Admission: the one atomic step in which every group of a channel accepts a message, or none does.

    publish ──▶ routes current? ──▶ duplicate? ──▶ rate limit ──▶ free place in each ──▶ sequence ──▶ push to
                     │ no               │ yes          │ none       reliable group?      number       all groups
                     ▼                  ▼              ▼                │ no
                   STALE            DUPLICATE     RATE_LIMITED          ▼
                                                                       FULL

Invariant: everything is checked before anything is changed. So a rejected publish leaves no trace: it spends no token
of the rate limit, marks no id as seen, and no group gets the message. A batch is admitted as a whole or not at all.

What a full channel does is its drop policy:

    drop_new   reject the new message: publish raises QueueFull
    drop_old   evict the oldest of the least urgent waiting messages: it is dead-lettered if the channel has a
               dead_letter_channel, else counted. A message is never evicted for a less urgent one: QueueFull instead
    block      the publisher waits for a free place (blocked.py, backpressure.py); also on an implicit channel

Only reliable groups bound a channel. A lossy group (`overflow="drop_oldest"`) has a queue of its own size and drops
from it. Messages that wait for a retry count against the bound, and cannot be evicted.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.bus.pubsub.blocked import PLACES_UNKNOWN, BlockedPublisher, BlockedPublishers
from unibus.bus.pubsub.group import Group
from unibus.core.atomic import LOCK, atomic
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority
from unibus.core.flow.dedup import Deduplicator
from unibus.core.flow.expiry import is_expired
from unibus.core.flow.limiter import TokenBucket
from unibus.core.flow.metrics import ChannelMetrics
from unibus.core.flow.queue import PriorityQueue

# Verdicts of admission. The order matters: up to UNROUTED the message was admitted, up to DUPLICATE publish succeeds.
ACCEPTED: Final = 0
UNROUTED: Final = 1  # Admitted, but no group takes it and the channel keeps nothing: it is counted.
DUPLICATE: Final = 2
RATE_LIMITED: Final = 3
FULL: Final = 4
STALE: Final = 5  # The routes have changed since the lookup: look up again and offer again.


_UNBOUNDED: Final = 1 << 60  # Free places of a channel without max_queue_size.


@final
class Evicted:
    """A message that admission removed from a full queue: evicted for a newer one, or found expired."""

    def __init__(self, message: Message, expired: bool) -> None:
        self.message = message
        self.expired = expired


@final
class RoutedPublish:
    """A message with its target groups: the routes whose filter accepts it."""

    def __init__(self, message: Message, groups: list[Group]) -> None:
        self.message = message
        self.groups = groups


@final
class Channel:
    """One channel: its name, settings, groups and counters.

    The `offer` methods are the only way in for new messages. `offer_only` and `offer_unrouted` are fast paths for the
    common cases; they return False, without any change, whenever the full check of `offer` is needed.
    """

    def __init__(self, name: str, declared: bool) -> None:
        # Settings, `groups`, `routes` and `evicted` change under LOCK. `sequence`, the counters and the queues change
        # in atomic methods (core.atomic) or under LOCK. LOCK alone does not keep out the compiled fast paths, which
        # take no lock: `_offering`, or outdated routes, make them return False.
        self.name = name
        self.declared = declared  # Made by create_channel: keeps messages while it has no group.
        self.metrics = ChannelMetrics(name)
        self.is_unrouted_reported = False  # The warning about messages without a subscriber was logged.
        self.sequence: i64 = 0  # Of the last admitted message.
        self.stored_max: i64 = 0  # Unsettled messages per group of a persistent channel; 0 = unbounded.
        self.max_size: i64 = 0  # Waiting messages per group in memory; 0 = unbounded.
        self.evicts = False  # A full queue frees a place by evicting the oldest of the least urgent messages.
        self.waits = False  # A publisher waits for a free place.
        self.block_timeout_s: float | None = None  # How long it waits; None: without a limit.
        self.default_priority: i64 = Priority.NORMAL
        self.ttl_ns: i64 = 0
        self.first_expiry_ns: i64 = 0  # Lower bound of the expiry of all waiting messages; 0 = none expires.
        self.bucket: TokenBucket | None = None
        self.dedup: Deduplicator | None = None
        self.dead_letter_channel: str | None = None
        self.kept: PriorityQueue[Message] = PriorityQueue(0)  # Backlog of a declared channel without a group.
        self.groups: list[Group] = []  # Subscribed to exactly this name.
        self.is_looked_at = False  # A timer is set that checks the blocked publishers again.
        self.evicted: list[Evicted] = []  # Removed by admission, not dead-lettered yet: see take_evicted.
        self.expired: list[Message] = []  # Removed by a sweep: the same.
        # True while `offer` runs. The compiled fast paths take no LOCK (see core.atomic), so they check this
        # flag: a push between the checks and the changes of an offer could exceed the bound.
        self._offering = False
        # Derived by Exchange.refresh: the groups that a publish reaches, as of `routes_version` (-1: outdated).
        self.routes_version: i64 = -1
        self.routes: list[Group] = []
        self.has_filter = False
        self.plain = False  # Admission checks only for a free place: no filter, no rate limit, no dedup window.
        self.only: Group | None = None  # The only route of a plain channel, if it is a reliable group.
        # Last, because it passes `self` on: compiled code checks an attribute that is set after that at each use.
        self.blocked = BlockedPublishers(self.free_places)

    def is_timed(self) -> bool:
        """Whether admission needs the time: for a rate limit or a dedup window."""
        return self.bucket is not None or self.dedup is not None

    def offer_only(self, group: Group, message: Message) -> bool:
        """The fast path to one reliable group with a free place. False: nothing was changed, `offer` has to decide."""
        if self.max_size:
            # Allocate before the check: an allocation may run a finalizer that publishes here (core.atomic).
            group.queue.reserve(message.priority)
            if group.queue.size + group.retrying >= self.max_size or self.blocked.count:
                return False
        # `only` was read by the caller before this call. Compared again here, in the atomic step: a subscribe or cancel
        # in between has replaced or reset it. `routes_version < 0` covers a change that no `refresh` has seen yet.
        if self.only is not group or self._offering or group.closed or self.routes_version < 0:
            return False
        self.sequence += 1
        message.sequence = self.sequence
        self.metrics.published += 1
        # An inline group has no queue: the exchange calls its handler after this step, in the publisher's thread.
        if not group.inline:
            group.queue.append(message, message.priority)
        return True

    def offer_unrouted(self, message: Message) -> bool:
        """The fast path without groups: a declared channel keeps the message, another counts it. False as above."""
        if not self.plain or self._offering or self.routes or self.routes_version < 0:
            return False
        if self.max_size:
            self.kept.reserve(message.priority)
            if self.kept.size >= self.max_size or self.blocked.count:
                return False
        self.sequence += 1
        message.sequence = self.sequence
        if self.declared:
            self.metrics.published += 1
            self.kept.append(message, message.priority)
        else:
            self.metrics.unrouted += 1
        return True

    def offer(self, routed_messages: list[RoutedPublish], routes: list[Group], now_ns: i64, waits: bool = False) -> i64:
        """Admit all messages or none. They were routed by `routes`; STALE if the channel has other routes by now.

        The caller evaluates the filters without the lock, because they are code of the user. The comparison with
        `routes` detects a subscribe or cancel in between: no group misses a message, none gets one after its end.

        `waits`: the free places are reserved for blocked publishers, so the verdict is FULL instead of ACCEPTED.
        Duplicates in a batch are skipped; DUPLICATE is the verdict when no other message remains.
        """
        with LOCK:
            if self.routes_version < 0 or self.routes is not routes:
                return STALE
            self._offering = True
            try:
                fresh = self._fresh(routed_messages, now_ns)
                verdict = self._offer(fresh, now_ns, waits)
                if verdict <= DUPLICATE:
                    self.metrics.duplicate += len(routed_messages) - len(fresh)
                return verdict
            finally:
                self._offering = False

    def _offer(self, routed_messages: list[RoutedPublish], now_ns: i64, waits: bool) -> i64:
        # First all checks, none of which changes anything; then the changes, none of which can fail.
        count: i64 = len(routed_messages)
        if self.bucket is not None and not self.bucket.has(count, now_ns):
            return RATE_LIMITED
        if count == 0:
            return DUPLICATE
        if waits or not self._has_space(routed_messages):
            return FULL
        if self.bucket is not None:
            self.bucket.try_acquire(count, now_ns)
        # From here on nothing can be refused. An id is marked as seen together with the push, never before: a rejected
        # publish that is tried again must not look like a duplicate of itself.
        for routed in routed_messages:
            if self.dedup is not None:
                self.dedup.mark(dedup_key(routed.message), now_ns)
            self._push(routed)
        if self.routes or self.declared:
            self.metrics.published += count
            return ACCEPTED
        self.metrics.unrouted += count
        return UNROUTED

    def force(self, routed: RoutedPublish, routes: list[Group]) -> bool:
        """Push without any check a message that was admitted before: a full dead-letter queue must not lose it.

        False if the routes have changed.
        """
        with LOCK:
            if self.routes_version < 0 or self.routes is not routes:
                return False
            # Neither rate, nor duplicates, nor the bound: a dead-lettered message that is refused here would exist
            # nowhere.
            self._push(routed)
            return True

    def take_evicted(self) -> list[Evicted]:
        """Take over the evicted messages; the caller has to dead-letter or count each of them."""
        # Dead-lettering publishes to another channel and may call inline handlers, so it cannot be done inside `offer`.
        # The swap gives each evicted message to exactly one caller, although several publishers may evict at once.
        with LOCK:
            evicted = [Evicted(message, True) for message in self.expired] + self.evicted
            self.expired, self.evicted = [], []
            return evicted

    def _fresh(self, routed_messages: list[RoutedPublish], now_ns: i64) -> list[RoutedPublish]:
        """The messages that are no duplicates: neither of the dedup window nor of an earlier one in the batch."""
        dedup = self.dedup
        if dedup is None:
            return routed_messages
        fresh: list[RoutedPublish] = []
        keys: set[str] = set()
        for routed in routed_messages:
            key = dedup_key(routed.message)
            if key not in keys and not dedup.seen(key, now_ns):
                keys.add(key)
                fresh.append(routed)
        return fresh

    def _has_space(self, routed_messages: list[RoutedPublish]) -> bool:
        if self.max_size == 0:
            return True
        messages = [routed.message for routed in routed_messages]
        if not self.routes:
            return not self.declared or self._fits(self.kept, 0, messages)
        # Every reliable group must have a place: a message that only some groups take would be lost for the others.
        for group in self.routes:
            if self.has_filter:
                messages = [routed.message for routed in routed_messages if group in routed.groups]
            if group.is_bounded_here():
                if not self._fits(group.queue, group.retrying, messages):
                    return False
            elif messages and self._is_full(group):
                return False  # An inline group has no queue: only messages that wait for a retry count.
        return True

    def _is_full(self, group: Group) -> bool:
        return group.bound == 0 and not group.closed and group.depth() >= self.max_size

    def free_places(self) -> int:
        """How many messages could be admitted now; PLACES_UNKNOWN where only a try can find out."""
        if self.max_size == 0:
            return _UNBOUNDED
        # A number is promised only where it is certain. With filters the groups of a message are unknown before the
        # filters ran; with outdated routes the groups themselves are.
        if not self.waits or self.has_filter or self.routes_version < 0:
            return PLACES_UNKNOWN
        free: i64 = _UNBOUNDED if self.routes else self.max_size - self.kept.size
        for group in self.routes:
            if group.is_bounded_here():
                free = min(free, self.max_size - group.depth())
            elif self._is_full(group):
                free = 0
        return max(free, 0)

    def _fits(self, queue: PriorityQueue[Message], retrying: i64, messages: list[Message]) -> bool:
        """Whether the queue can take the messages, with `drop_old` after evictions.

        `retrying` messages of the same group occupy places too, and cannot be evicted.
        """
        over: i64 = queue.size + retrying + len(messages) - self.max_size
        if over <= 0 or not messages:
            return True
        if not self.evicts or over > queue.size:
            return False
        # Evict only messages that are not more urgent than the least urgent new one, so that no eviction during the
        # push can find none, or remove a message that was pushed a moment ago in the same batch.
        return queue.count_from(max([message.priority for message in messages])) >= over

    def _push(self, routed: RoutedPublish) -> None:
        message = routed.message
        self.sequence += 1
        message.sequence = self.sequence
        if not self.routes:
            if self.declared:
                self._append(self.kept, 0, message)
            return
        # `routed.groups` may hold a group that was closed after the routes were read: it takes nothing
        # (is_bounded_here). A lossy group makes its own space, and an inline one gets its message from the exchange.
        for group in routed.groups:
            if group.is_bounded_here():
                self._append(group.queue, group.retrying, message)
            elif group.bound and not group.closed and group.make_space(message.priority, self.metrics):
                group.queue.append(message, message.priority)

    def _append(self, queue: PriorityQueue[Message], retrying: i64, message: Message) -> None:
        if self.max_size and queue.size + retrying >= self.max_size and self.evicts:
            evicted = queue.evict(message.priority)  # The oldest of the least urgent level.
            if evicted is not None:
                self.evicted.append(Evicted(evicted, False))
        queue.append(message, message.priority)

    def may_expire(self, expires_ns: i64) -> None:
        """Remember the earliest time at which a sweep can find an expired message."""
        if self.first_expiry_ns == 0 or expires_ns < self.first_expiry_ns:
            self.first_expiry_ns = expires_ns

    def sweep(self, now_wall_ns: i64) -> bool:
        """Remove expired messages from full queues, before a publish is rejected. False if none can have expired."""
        if not is_expired(self.first_expiry_ns, now_wall_ns):
            return False
        with LOCK:
            before_ns = self.first_expiry_ns
            # Before the queues are read: a publish that calls `may_expire` meanwhile, and pushes later, is not undone.
            self.first_expiry_ns = 0
            try:
                for queue in [self.kept, *[group.queue for group in self.routes if group.is_bounded_here()]]:
                    self._sweep(queue, now_wall_ns)
            except BaseException:
                self.may_expire(before_ns)  # Ctrl-C: the next sweep looks again.
                raise
        return True

    def _sweep(self, queue: PriorityQueue[Message], now_wall_ns: i64) -> None:
        # By identity: a message id may be used twice. The list keeps all of them alive until `move` has returned, so
        # that no message of a publish meanwhile can have the identity of one that was freed.
        expired: set[int] = set()
        messages = queue.items()
        for message in messages:
            if is_expired(message.expires_ns, now_wall_ns):
                expired.add(id(message))
            elif message.expires_ns:
                self.may_expire(message.expires_ns)
        # The others never leave the queue: Ctrl-C loses none of them, and no slot finds it empty meanwhile. A message
        # that a slot has popped since `items` belongs to the slot: `move` does not find it.
        if expired:
            queue.move(expired, self.expired)
        messages.clear()

    def leave(self, group: Group) -> None:
        """A group has lost its last consumer. Without it the channel may have free places."""
        with LOCK:
            self.groups.remove(group)
            self.routes_version = -1
        self.blocked.grant()

    def join(self, group: Group, rejected: set[int], by_name: bool) -> None:
        """A group begins to take messages of this channel. The first reliable one gets the kept messages.

        The group's filter rejects the messages whose `id()` is in `rejected`. They are in no queue then, like a
        published message that every filter rejects.
        """
        with LOCK:
            # One step with the delivery of the kept messages: a publish in between would reach the group before older
            # messages.
            if by_name:
                self.groups.append(group)
            self.routes_version = -1  # Outdated: no later publish is kept.
            if group.bound == 0:
                # Forgotten here only when the group has all of them: Ctrl-C in between may deliver a message to two
                # groups, and loses none.
                for message in self.kept.items():
                    if id(message) not in rejected:
                        group.queue.append(message, message.priority)
                self.kept = PriorityQueue(0)
        self.blocked.grant()

    def block(self, publisher: BlockedPublisher) -> None:
        """Register a blocked publisher: it is woken in its turn, when a message leaves a queue that was full."""
        with LOCK:
            # One step: a group that frees a place after the registration, and before it is watched, would wake no
            # publisher.
            self.blocked.add(publisher)
            self.watch_groups()

    def watch_groups(self) -> None:
        """Make each route wake the blocked publishers when a message leaves its queue."""
        with LOCK:
            for group in self.routes:
                group.wakes(self.blocked)

    def unblock(self, publisher: BlockedPublisher) -> None:
        """The publisher was admitted, or stops waiting. A granted place that it did not use goes to the next one."""
        if self.blocked.remove(publisher) and self.blocked.count:
            self.blocked.grant()

    def keep(self, messages: list[Message]) -> None:
        """Keep the backlog of the last group after it was closed, each message at its position by sequence."""
        for message in messages:
            self.kept.restore(message, message.priority, message.sequence)


atomic(Channel, "offer_only", "offer_unrouted", "free_places", "keep")


def dedup_key(message: Message) -> str:
    """The key of the dedup window: the given dedup_key, else the message id."""
    properties = message.properties
    if properties is not None and properties.dedup_key is not None:
        return properties.dedup_key
    return message.id
