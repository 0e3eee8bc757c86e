"""Peers that come, go and come back: routing ids with epochs, in front of the subscription index.

A peer that reconnects has the same routing id and a greater epoch. News of the old connection may still arrive after
the new one is there, so everything carries the epoch it belongs to, and only what belongs to the present one counts.
Each incarnation gets an integer of its own, never used again: whatever was aimed at the old one cannot hit the new.

    up(e)      e greater than the present epoch: the old subscriptions go first, then the new incarnation stands
    down(e)    e is the present epoch: the subscriptions and the id itself are forgotten
    others     ignored
"""

from typing import final

from unibus.core.atomic import LOCK
from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import Pattern, name_bytes


@final
class Incarnation:
    """One connection of a routing id."""

    __slots__ = ("epoch", "peer")

    def __init__(self, peer: int, epoch: int) -> None:
        self.peer = peer
        self.epoch = epoch


@final
class PeerTable:
    """The peers that are up, by routing id. Text and its UTF-8 bytes are the same id.

    Integers are given from `first_peer` upwards; who shares the index with others must keep the ranges apart.
    Epochs are compared only with a peer that is up: nothing is remembered of one that is gone.
    """

    __slots__ = ("_index", "_next_peer", "_present")

    def __init__(self, index: SubscriptionIndex, first_peer: int = 1) -> None:
        self._index = index
        self._next_peer = first_peer
        self._present: dict[bytes, Incarnation] = {}

    def __len__(self) -> int:
        return len(self._present)

    def peer_of(self, routing_id: str | bytes) -> int | None:
        """The integer under which the peer stands in the index, None if it is not up."""
        incarnation = self._present.get(name_bytes(routing_id))
        return None if incarnation is None else incarnation.peer

    def up(self, routing_id: str | bytes, epoch: int) -> int | None:
        """A connection stands. Its integer, or None if a connection of this or a later epoch is known."""
        key = name_bytes(routing_id)
        with LOCK:
            former = self._present.get(key)
            if former is not None:
                if epoch <= former.epoch:
                    return None
                self._index.remove_peer(former.peer)
            peer = self._next_peer
            self._next_peer = peer + 1
            self._present[key] = Incarnation(peer, epoch)
            return peer

    def down(self, routing_id: str | bytes, epoch: int) -> bool:
        """A connection ended. False if it is not the present one, and then nothing changes."""
        with LOCK:
            peer = self._at(routing_id, epoch)
            if peer is None:
                return False
            del self._present[name_bytes(routing_id)]
            self._index.remove_peer(peer)
            return True

    def subscribe(self, routing_id: str | bytes, epoch: int, pattern: Pattern) -> bool:
        """As `SubscriptionIndex.subscribe`; False also if the epoch is not the present one."""
        with LOCK:
            peer = self._at(routing_id, epoch)
            return peer is not None and self._index.subscribe(peer, pattern)

    def unsubscribe(self, routing_id: str | bytes, epoch: int, pattern: Pattern) -> bool:
        """As `SubscriptionIndex.unsubscribe`; False also if the epoch is not the present one."""
        with LOCK:
            peer = self._at(routing_id, epoch)
            return peer is not None and self._index.unsubscribe(peer, pattern)

    def _at(self, routing_id: str | bytes, epoch: int) -> int | None:
        incarnation = self._present.get(name_bytes(routing_id))
        if incarnation is None or incarnation.epoch != epoch:
            return None
        return incarnation.peer
