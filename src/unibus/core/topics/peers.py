"""Peers that connect, disconnect and reconnect: routing ids with epochs, on top of the subscription index.

A peer that reconnects has the same routing id and a greater epoch. Events of the old connection may still arrive after
the new connection is up, so every call has an epoch, and only calls with the current epoch take effect (fencing). Each
incarnation gets a new integer that is never reused: a delivery to the old one cannot reach the new one.

    up(e)      e greater than the current epoch: remove the old subscriptions, then add the new incarnation
    down(e)    e is the current epoch: remove the subscriptions and the id
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

    Integers are assigned from `first_peer` upwards; several tables on one index must use separate ranges. Epochs are
    compared only while a peer is up: nothing is stored about a peer that is down.
    """

    __slots__ = ("_index", "_next_peer", "_present")

    def __init__(self, index: SubscriptionIndex, first_peer: int = 1) -> None:
        self._index = index
        self._next_peer = first_peer
        self._present: dict[bytes, Incarnation] = {}

    def __len__(self) -> int:
        return len(self._present)

    def peer_of(self, routing_id: str | bytes) -> int | None:
        """The integer of the peer in the index; None if it is not up."""
        incarnation = self._present.get(name_bytes(routing_id))
        return None if incarnation is None else incarnation.peer

    def up(self, routing_id: str | bytes, epoch: int) -> int | None:
        """A connection is up. Returns its integer, or None if a connection of this or a later epoch is up."""
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
        """A connection is down. False, and nothing changes, if it is not the current one."""
        with LOCK:
            peer = self._at(routing_id, epoch)
            if peer is None:
                return False
            del self._present[name_bytes(routing_id)]
            self._index.remove_peer(peer)
            return True

    def subscribe(self, routing_id: str | bytes, epoch: int, pattern: Pattern) -> bool:
        """As `SubscriptionIndex.subscribe`; False also if the epoch is not the current one."""
        with LOCK:
            peer = self._at(routing_id, epoch)
            return peer is not None and self._index.subscribe(peer, pattern)

    def unsubscribe(self, routing_id: str | bytes, epoch: int, pattern: Pattern) -> bool:
        """As `SubscriptionIndex.unsubscribe`; False also if the epoch is not the current one."""
        with LOCK:
            peer = self._at(routing_id, epoch)
            return peer is not None and self._index.unsubscribe(peer, pattern)

    def _at(self, routing_id: str | bytes, epoch: int) -> int | None:
        incarnation = self._present.get(name_bytes(routing_id))
        if incarnation is None or incarnation.epoch != epoch:
            return None
        return incarnation.peer
