# mypyc: compiled
"""Admission: the one step in which a message is accepted by everybody or by nobody.

    lookup → validate → rate → duplicate → room in every reliable group → sequence → push to all

All is checked before anything is changed, so that an error from publish leaves no trace: no token is spent, no id is
marked as seen, no group has the message.
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

# What admission says.
ACCEPTED: Final = 0
UNROUTED: Final = 1
DUPLICATE: Final = 2
RATE_LIMITED: Final = 3
FULL: Final = 4
STALE: Final = 5  # The routes changed since they were looked up; look again.


_UNBOUNDED: Final = 1 << 60  # Places of a channel without a bound.


@final
class Evicted:
    """A message that admission removed to make room: evicted by a more urgent one, or found expired."""

    def __init__(self, message: Message, expired: bool) -> None:
        self.message = message
        self.expired = expired


@final
class RoutedPublish:
    """A message with the groups that it is for: the routes whose filter agreed."""

    def __init__(self, message: Message, groups: list[Group]) -> None:
        self.message = message
        self.groups = groups


@final
class Channel:
    """A name with its rules, its groups and its counters."""

    def __init__(self, name: str, declared: bool) -> None:
        self.name = name
        self.declared = declared  # Made by create_channel: keeps messages while nobody subscribes.
        self.metrics = ChannelMetrics(name)
        self.is_unrouted_reported = False  # The log has said that no subscriber takes its messages.
        self.sequence: i64 = 0
        self.stored_max: i64 = 0  # The bound of what a store keeps; 0 = none.
        self.max_size: i64 = 0
        self.evicts = False  # A full queue makes a place by evicting the oldest of the least urgent messages.
        self.waits = False  # A publisher waits for a place.
        self.default_priority: i64 = Priority.NORMAL
        self.ttl_ns: i64 = 0
        self.first_expiry_ns: i64 = 0  # No message that waits expires earlier; 0 = none expires at all.
        self.bucket: TokenBucket | None = None
        self.dedup: Deduplicator | None = None
        self.dead_letter_channel: str | None = None
        self.kept: PriorityQueue[Message] = PriorityQueue(0)
        self.groups: list[Group] = []  # Subscribed to this very name.
        self.is_looked_at = False  # A timer is set that looks at the blocked publishers again.
        self.evicted: list[Evicted] = []
        self._offering = False  # A long offer is under way: the fast path must not slip into it.
        # What a publish reaches, as of `routes_version`; derived by the exchange.
        self.routes_version: i64 = -1
        self.routes: list[Group] = []
        self.has_filter = False
        self.plain = False  # Nothing but room has to be looked at: no filter, no rate, no duplicates.
        self.only: Group | None = None  # The one reliable queue, when nothing else has to be looked at.
        # Last, because it passes `self` on: compiled code checks an attribute that is set after that at each use.
        self.blocked = BlockedPublishers(self.free_places)

    def is_timed(self) -> bool:
        """Whether admission has to know the time."""
        return self.bucket is not None or self.dedup is not None

    def offer_only(self, group: Group, message: Message) -> bool:
        """The fast path: one reliable group and room in it. False sends the message the long way."""
        if self.max_size:
            group.queue.reserve(message.priority)
            if group.queue.size + group.retrying >= self.max_size or self.blocked.count:
                return False
        if self.only is not group or self._offering or group.closed or self.routes_version < 0:
            return False
        self.sequence += 1
        message.sequence = self.sequence
        self.metrics.published += 1
        if not group.inline:
            group.queue.append(message, message.priority)
        return True

    def offer_nobody(self, message: Message) -> bool:
        """The fast path without subscribers: kept if the channel was created, else counted. False as above."""
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
        """Admit all of the parcels or none. They were addressed by these routes; STALE if there are others by now.

        `waits`: the places that are free are for others, so the answer is FULL where it would be ACCEPTED.
        Duplicates among several messages are left out silently; when nothing else is left, that is the answer.
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
        count: i64 = len(routed_messages)
        if self.bucket is not None and not self.bucket.has(count, now_ns):
            return RATE_LIMITED
        if count == 0:
            return DUPLICATE
        if waits or not self._has_room(routed_messages):
            return FULL
        if self.bucket is not None:
            self.bucket.try_acquire(count, now_ns)
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
        """Push what was admitted elsewhere before: a dead letter must not be lost for want of room. False if stale."""
        with LOCK:
            if self.routes_version < 0 or self.routes is not routes:
                return False
            self._push(routed)
            return True

    def take_evicted(self) -> list[Evicted]:
        with LOCK:
            evicted = self.evicted
            self.evicted = []
            return evicted

    def _fresh(self, routed_messages: list[RoutedPublish], now_ns: i64) -> list[RoutedPublish]:
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

    def _has_room(self, routed_messages: list[RoutedPublish]) -> bool:
        if self.max_size == 0:
            return True
        messages = [routed.message for routed in routed_messages]
        if not self.routes:
            return not self.declared or self._fits(self.kept, 0, messages)
        for group in self.routes:
            if self.has_filter:
                messages = [routed.message for routed in routed_messages if group in routed.groups]
            if group.is_bounded_here():
                if not self._fits(group.queue, group.retrying, messages):
                    return False
            elif messages and self._is_full(group):
                return False  # An inline handler: nothing waits for it but what it has failed to handle.
        return True

    def _is_full(self, group: Group) -> bool:
        return group.bound == 0 and not group.closed and group.depth() >= self.max_size

    def free_places(self) -> int:
        """How many messages could be admitted now; PLACES_UNKNOWN where only a try can say that."""
        if self.max_size == 0:
            return _UNBOUNDED
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
        """`retrying` messages of the same group hold a place too, and cannot be evicted."""
        over: i64 = queue.size + retrying + len(messages) - self.max_size
        if over <= 0 or not messages:
            return True
        if not self.evicts or over > queue.size:
            return False
        # As many as have to go must wait on levels that are not more urgent than the least urgent newcomer.
        return queue.count_from(max([message.priority for message in messages])) >= over

    def _push(self, routed: RoutedPublish) -> None:
        message = routed.message
        self.sequence += 1
        message.sequence = self.sequence
        if not self.routes:
            if self.declared:
                self._append(self.kept, 0, message)
            return
        for group in routed.groups:
            if group.is_bounded_here():
                self._append(group.queue, group.retrying, message)
            elif group.bound and not group.closed and group.make_room(message.priority, self.metrics):
                group.queue.append(message, message.priority)

    def _append(self, queue: PriorityQueue[Message], retrying: i64, message: Message) -> None:
        if self.max_size and queue.size + retrying >= self.max_size and self.evicts:
            evicted = queue.evict(message.priority)
            if evicted is not None:
                self.evicted.append(Evicted(evicted, False))
        queue.append(message, message.priority)

    def may_expire(self, expires_ns: i64) -> None:
        """Remember when the next sweep can find something."""
        if self.first_expiry_ns == 0 or expires_ns < self.first_expiry_ns:
            self.first_expiry_ns = expires_ns

    def sweep(self, now_wall_ns: i64) -> bool:
        """Take out everything that has expired, where a full queue may be full of the dead. False if nothing has."""
        if not is_expired(self.first_expiry_ns, now_wall_ns):
            return False
        with LOCK:
            self._offering = True
            self.first_expiry_ns = 0
            for queue in [self.kept, *[group.queue for group in self.routes if group.is_bounded_here()]]:
                for message in queue.drain():
                    if is_expired(message.expires_ns, now_wall_ns):
                        self.evicted.append(Evicted(message, True))
                    else:
                        queue.append(message, message.priority)
                        if message.expires_ns:
                            self.may_expire(message.expires_ns)
            self._offering = False
        return True

    def join(self, group: Group) -> None:
        """A group subscribes to this name."""
        with LOCK:
            self.groups.append(group)
            self.hand_kept(group)

    def leave(self, group: Group) -> None:
        with LOCK:
            self.groups.remove(group)
            self.routes_version = -1
        self.blocked.grant()

    def hand_kept(self, group: Group) -> None:
        """The first reliable group gets what was kept; from now on nothing is, as the routes are looked up anew."""
        with LOCK:
            self.routes_version = -1
            if group.bound == 0:
                for message in self.kept.drain():
                    group.queue.append(message, message.priority)
        self.blocked.grant()

    def block(self, publisher: BlockedPublisher) -> None:
        """Let a publisher wait: it is woken when a queue that may have been full gives a message away, in its turn."""
        with LOCK:
            self.blocked.add(publisher)
            self.watch_groups()

    def watch_groups(self) -> None:
        """Let each group that a publish reaches wake the blocked publishers when a message leaves it."""
        with LOCK:
            for group in self.routes:
                group.wakes(self.blocked)

    def unblock(self, publisher: BlockedPublisher) -> None:
        """It was admitted, or waits no more. A place that it was granted and did not take is for the next one."""
        if self.blocked.remove(publisher) and self.blocked.count:
            self.blocked.grant()

    def keep(self, messages: list[Message]) -> None:
        """Take back what a last subscriber left behind, each message at its place."""
        for message in messages:
            self.kept.restore(message, message.priority, message.sequence)


atomic(Channel, "offer_only", "offer_nobody", "free_places", "keep")


def dedup_key(message: Message) -> str:
    properties = message.properties
    if properties is not None and properties.dedup_key is not None:
        return properties.dedup_key
    return message.id
