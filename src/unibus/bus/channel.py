# mypyc: compiled
"""Admission: the one step in which a message is accepted by everybody or by nobody.

    lookup → validate → rate → duplicate → room in every reliable group → sequence → push to all

All is checked before anything is changed, so that an error from publish leaves no trace: no token is spent, no id is
marked as seen, no group has the message.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from unibus.bus.group import Group, notify
from unibus.core.atomic import LOCK, atomic
from unibus.core.dedup import Deduplicator
from unibus.core.expiry import is_expired
from unibus.core.limiter import TokenBucket
from unibus.core.message import Message
from unibus.core.metrics import ChannelMetrics
from unibus.core.priority import Priority
from unibus.core.queue import PriorityQueue

# What admission says.
ACCEPTED: Final = 0
UNROUTED: Final = 1
DUPLICATE: Final = 2
RATE_LIMITED: Final = 3
FULL: Final = 4
TOO_LARGE: Final = 5
STALE: Final = 6  # The routes changed since they were looked up; look again.

POLICY_DROP_NEW: Final = 0
POLICY_DROP_OLD: Final = 1
POLICY_BLOCK: Final = 2


@final
class Casualty:
    """A message that admission removed to make room: evicted by a more urgent one, or found expired."""

    def __init__(self, message: Message, expired: bool) -> None:
        self.message = message
        self.expired = expired


@final
class Channel:
    """A name with its rules, its groups and its counters."""

    def __init__(self, name: str, declared: bool) -> None:
        self.name = name
        self.declared = declared  # Made by create_channel: keeps messages while nobody subscribes.
        self.metrics = ChannelMetrics(name)
        self.sequence: i64 = 0
        self.max_size: i64 = 0
        self.policy: i64 = POLICY_DROP_NEW
        self.default_priority: i64 = Priority.NORMAL
        self.ttl_ns: i64 = 0
        self.bucket: TokenBucket | None = None
        self.dedup: Deduplicator | None = None
        self.dead_letter_channel: str | None = None
        self.kept: PriorityQueue[Message] = PriorityQueue(0)
        self.groups: list[Group] = []  # Subscribed to this very name.
        self.kept_waiters: list[Callable[[], None]] = []  # Publishers that wait for room among the kept.
        self.casualties: list[Casualty] = []
        self._offering = False  # A long offer is under way: the fast path must not slip into it.
        # What a publish reaches, as of `routes_version`; derived by the exchange.
        self.routes_version: i64 = -1
        self.routes: list[Group] = []
        self.has_filter = False
        self.plain = False  # Nothing but room has to be looked at: no filter, no rate, no duplicates.
        self.only: Group | None = None  # The one reliable queue, when nothing else has to be looked at.

    def is_timed(self) -> bool:
        """Whether admission has to know the time."""
        return self.bucket is not None or self.dedup is not None

    def offer_only(self, group: Group, message: Message) -> bool:
        """The fast path: one reliable group and room in it. False sends the message the long way."""
        if self.max_size and group.queue.size >= self.max_size:
            return False
        if self._offering or group.closed or self.routes_version < 0:
            return False
        self.sequence += 1
        message.sequence = self.sequence
        self.metrics.published += 1
        if not group.inline:
            group.queue.append(message, message.priority)
        return True

    def offer_nobody(self, message: Message) -> bool:
        """The fast path without subscribers: kept if the channel was created, else counted. False as above."""
        if self._offering or self.routes or self.routes_version < 0:
            return False
        if self.max_size and self.kept.size >= self.max_size:
            return False
        self.sequence += 1
        message.sequence = self.sequence
        if self.declared:
            self.metrics.published += 1
            self.kept.append(message, message.priority)
        else:
            self.metrics.unrouted += 1
        return True

    def offer(self, messages: list[Message], wanted: list[Group] | None, now_ns: i64) -> i64:
        """Admit the messages to these groups (the routes whose filter agreed; None = all), all of them or none.

        Duplicates among several messages are left out silently; a single duplicate is answered as such.
        """
        with LOCK:
            if self.routes_version < 0:
                return STALE
            self._offering = True
            try:
                groups = self.routes if wanted is None else wanted
                fresh = self._fresh(messages, now_ns)
                verdict = self._offer(fresh, groups, now_ns)
                if verdict <= DUPLICATE:
                    self.metrics.duplicate += len(messages) - len(fresh)
                return verdict
            finally:
                self._offering = False

    def _offer(self, fresh: list[Message], groups: list[Group], now_ns: i64) -> i64:
        count: i64 = len(fresh)
        if self.bucket is not None and not self.bucket.has(count, now_ns):
            return RATE_LIMITED
        if count == 0:
            return DUPLICATE
        if not self._has_room(fresh, groups):
            return FULL
        if self.bucket is not None:
            self.bucket.try_acquire(count, now_ns)
        for message in fresh:
            self._push(message, groups, now_ns)
        return ACCEPTED if self.routes or self.declared else UNROUTED

    def force(self, message: Message, groups: list[Group]) -> None:
        """Push what was admitted elsewhere before: a dead letter must not be lost for want of room."""
        with LOCK:
            self._push(message, groups, 0)

    def take_casualties(self) -> list[Casualty]:
        with LOCK:
            casualties = self.casualties
            self.casualties = []
            return casualties

    def _fresh(self, messages: list[Message], now_ns: i64) -> list[Message]:
        dedup = self.dedup
        if dedup is None:
            return messages
        fresh: list[Message] = []
        keys: set[str] = set()
        for message in messages:
            key = dedup_key(message)
            if key not in keys and not dedup.seen(key, now_ns):
                keys.add(key)
                fresh.append(message)
        return fresh

    def _has_room(self, messages: list[Message], groups: list[Group]) -> bool:
        if self.max_size == 0:
            return True
        for queue in self._bounded_queues(groups):
            over = queue.size + len(messages) - self.max_size
            if over > 0 and not self._can_free(queue, over, messages):
                return False
        return True

    def _bounded_queues(self, groups: list[Group]) -> list[PriorityQueue[Message]]:
        if not self.routes and self.declared:
            return [self.kept]
        return [group.queue for group in groups if group.bound == 0 and not group.inline]

    def _can_free(self, queue: PriorityQueue[Message], over: i64, messages: list[Message]) -> bool:
        if self.policy != POLICY_DROP_OLD or over > queue.size:
            return False
        # As many as have to go must wait on levels no more urgent than the most urgent newcomer is.
        least = max([message.priority for message in messages])
        return queue.count_from(least) >= over

    def _push(self, message: Message, groups: list[Group], now_ns: i64) -> None:
        if self.dedup is not None:
            self.dedup.mark(dedup_key(message), now_ns)
        self.sequence += 1
        message.sequence = self.sequence
        if not self.routes and not self.declared:
            self.metrics.unrouted += 1
            return
        self.metrics.published += 1
        if not self.routes:
            self._evict_if_full(self.kept, self.max_size, message)
            self.kept.append(message, message.priority)
            return
        for group in groups:
            if group.inline or group.closed:
                continue
            if group.bound == 0:
                self._evict_if_full(group.queue, self.max_size, message)
            elif not group.make_room(message.priority, self.metrics):
                continue
            group.queue.append(message, message.priority)

    def _evict_if_full(self, queue: PriorityQueue[Message], bound: i64, message: Message) -> None:
        if bound and queue.size >= bound and self.policy == POLICY_DROP_OLD:
            evicted = queue.evict(message.priority)
            if evicted is not None:
                self.casualties.append(Casualty(evicted, False))

    def sweep(self, now_wall_ns: i64) -> None:
        """Take out everything that has expired, where a full queue may be full of the dead."""
        with LOCK:
            for queue in self._bounded_queues(self.routes):
                for message in queue.drain():
                    if is_expired(message.expires_ns, now_wall_ns):
                        self.casualties.append(Casualty(message, True))
                    else:
                        queue.append(message, message.priority)

    def join(self, group: Group) -> None:
        """A group subscribes. The first reliable one gets what was kept."""
        with LOCK:
            self.groups.append(group)
            self.routes_version = -1
            if group.bound == 0:
                for message in self.kept.drain():
                    group.queue.append(message, message.priority)
        notify(self.take_kept_waiters())

    def leave(self, group: Group) -> None:
        with LOCK:
            self.groups.remove(group)
            self.routes_version = -1

    def wait_for_room(self, callback: Callable[[], None]) -> None:
        """Call back when any queue that may have been full has given something away."""
        with LOCK:
            self.kept_waiters = [*self.kept_waiters, callback]
            for group in self.routes:
                group.wait_for_room(callback)

    def take_kept_waiters(self) -> list[Callable[[], None]]:
        with LOCK:
            waiters = self.kept_waiters
            self.kept_waiters = []
            return waiters

    def keep(self, messages: list[Message]) -> None:
        """Take back what a last subscriber left behind."""
        for message in messages:
            self.kept.append(message, message.priority)

    def count_refused(self, verdict: i64) -> None:
        if verdict == RATE_LIMITED:
            self.metrics.rate_limited += 1
        elif verdict == TOO_LARGE:
            self.metrics.too_large += 1
        else:
            self.metrics.queue_full += 1

    def next_sequence(self) -> i64:
        self.sequence += 1
        return self.sequence


atomic(Channel, "offer_only", "offer_nobody", "keep", "count_refused", "next_sequence")


def dedup_key(message: Message) -> str:
    cold = message.cold
    if cold is not None and cold.dedup_key is not None:
        return cold.dedup_key
    return message.id
