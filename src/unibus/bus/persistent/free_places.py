# mypyc: compiled
"""Free places of persistent channels: how many messages each one holds, compared with its max_queue_size.

    publish ──take──▶ held, unanswered ──store has answered──▶ held           what was not stored is refunded
                        │
                        └── used up: wait for the open answers, read the depth from the store, decide again

Invariant: `held` is never smaller than the number of messages that the channel holds or will hold. A place is taken in
the same step as the call of the store. After a read, `held` is the depth, and the places that were unanswered when the
read began or were taken while it ran. Those may be in the depth, too, so `held` may be too large. Therefore a publish
is refused only after a read during which no answer was open: then each place is in `held` exactly once.

Counting all groups for each publish would be slow, so the depth is read once, and again when `held` reaches the bound.
Settlements in between are not subtracted.

A store that is elsewhere is read without the lock, because its answers may need the lock. Publishes to the channel wait
meanwhile, so that a stream of them cannot keep the answers open for ever. What an open transaction has collected is
counted as held from the start, and for a moment twice while its commit is answered.
"""

import threading
from typing import Final, final

from unibus.bus.pubsub.channel import Channel
from unibus.core.lifecycle.state.entity import KIND_NAMES, SUBSCRIPTION, TOPIC
from unibus.stores.seam.store import EntityInfo, Store

_ALL: Final = 2**31


@final
class ChannelPlaces:
    """The places of one channel. Changed under the lock of FreePlaces."""

    def __init__(self) -> None:
        self.is_known = False  # Whether the depth was read.
        self.held = 0  # Compared with the current bound, so that a new bound holds at once.
        self.promised = 0  # In open transactions.
        self.unanswered = 0  # Taken by calls that the store has not answered.
        self.taken = 0  # All that were ever taken: two readings show what was taken in between.
        self.is_outdated = False  # To be read again, from a store that is elsewhere.
        self.is_counting = False  # A thread reads the depth.


@final
class FreePlaces:
    """The places of all channels of one bus. Methods are called under `lock`, if they do not say otherwise."""

    def __init__(self, store: Store) -> None:
        self.lock = threading.RLock()
        self.is_elsewhere = False
        """The store answers from elsewhere: no thread may wait for it that holds a lock or brings answers."""
        self._is_here = False  # Which of the two is known once a depth was read.
        self._store = store
        self._changed = threading.Condition(self.lock)
        self._channels: dict[str, ChannelPlaces] = {}

    def has_space(self, target: Channel, count: int) -> bool:
        bound = target.stored_max
        if not bound or not count:
            return True
        places = self._of(target.name)
        if self._is_here and not (places.is_known and places.held + count <= bound):
            # The slow count happens at most once for each time that the allowance is used up, and not for each publish.
            places.held = unsettled_in(self._store, target.name) + places.promised
            places.is_known = True
        return not places.is_known or places.held + count <= bound

    def count(self, target: Channel, count: int) -> None:
        """Read what the channel holds, if it has to be read before `has_space` is asked. Called without the lock."""
        if target.stored_max:
            places = self._channels.get(target.name)
            if places is None or not places.is_known or (self.is_elsewhere and self._is_used_up(places, target, count)):
                self._count(target, count)

    def _is_used_up(self, places: ChannelPlaces, target: Channel, count: int) -> bool:
        return places.is_outdated or places.is_counting or places.held + count > target.stored_max

    def _count(self, target: Channel, count: int) -> None:
        with self._changed:
            places = self._of(target.name)
            while places.is_counting:
                self._changed.wait()
            if places.is_known and not self._is_used_up(places, target, count):
                return  # Another thread has read it.
            places.is_counting = True
        try:
            while not self._read(target, places, count):
                with self._changed:
                    while places.unanswered:
                        self._changed.wait()
        finally:
            with self._changed:
                places.is_counting = False
                self._changed.notify_all()

    def _read(self, target: Channel, places: ChannelPlaces, count: int) -> bool:
        """Read the depth. False if `count` more do not fit, and places that may be counted twice are the reason."""
        with self._changed:
            places.is_outdated = False
            taken = places.taken
            promised = places.promised
            unsure = places.unanswered
        first = self._store.catalog.entity(target.name)
        self.is_elsewhere = not first.is_immediate
        self._is_here = first.is_immediate
        counted = unsettled_in(self._store, target.name)
        with self._changed:
            unsure += places.taken - taken
            places.held = counted + promised + unsure
            places.is_known = True
            return self._is_here or not unsure or places.held + count <= target.stored_max

    def take(self, channel: str, count: int, *, is_unanswered: bool = False) -> None:
        """Take places: for messages that are stored, or for a call that the store has not answered."""
        places = self._of(channel) if is_unanswered else self._channels.get(channel)
        if places is None:
            return  # It was never counted.
        places.held += count
        places.taken += count
        if is_unanswered:
            places.unanswered += count

    def answered(self, channel: str, taken: int, unused: int) -> None:
        """The store has answered a call that had `taken` places, and `unused` of them are free again."""
        places = self._of(channel)
        places.unanswered -= taken
        places.held -= unused
        if not places.unanswered:
            self._changed.notify_all()

    def promise(self, channel: str, count: int) -> None:
        """A transaction has collected messages that will need places; fewer than 0 when it has ended."""
        self._of(channel).promised += count

    def recount(self, channel: str) -> None:
        """The settings or the groups of the channel have changed."""
        places = self._channels.get(channel)
        if places is not None and self.is_elsewhere:
            places.is_outdated = True
        elif places is not None:
            places.is_known = False

    def _of(self, channel: str) -> ChannelPlaces:
        places = self._channels.get(channel)
        if places is None:
            places = self._channels[channel] = ChannelPlaces()
        return places


def groups_of(store: Store, channel: str) -> list[EntityInfo]:
    """The durable subscriptions of a channel; the topic itself while it has none and keeps messages for the first."""
    catalog = store.catalog
    topic = catalog.find(channel)
    if topic is None or topic.name != channel:
        return []
    groups = catalog.page(SUBSCRIPTION, channel, 0, _ALL).wait() if topic.kind == TOPIC else []
    own = catalog.entity(channel).wait()
    return groups or ([] if own is None else [own])


def unsettled_in(store: Store, channel: str) -> int:
    return max([unsettled(info) for info in groups_of(store, channel)], default=0)


def unsettled(info: EntityInfo) -> int:
    """The unsettled messages of a group. A topic without groups counts only those it keeps for the first one."""
    if info.kind == KIND_NAMES[TOPIC]:
        return info.active
    return info.active + info.locked + info.scheduled + info.deferred
