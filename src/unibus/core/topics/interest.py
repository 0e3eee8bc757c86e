"""The two ends of a subscription: a pattern with its peers, and a peer with its patterns.

An `Interest` has the peers of one pattern, a `PeerInterests` has the interests of one peer. So a match is a lookup, and
removing a peer costs only as much as its own subscriptions. Most interests have one peer and, in memory, most peers
have one interest, so both cases need no container. An interest with one peer stores that peer's own 1-tuple: a match
allocates nothing.
"""

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

CROWD_SIZE: Final = 64
"""Up to this number peers are a tuple that is copied on each change; with more, the copies would become quadratic."""


@final
class Crowd:
    """Many peers of one interest: a sorted list for changes, and a tuple for results, created when it is needed."""

    __slots__ = ("_changes", "_shown", "members")

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self._shown: tuple[int, ...] | None = None
        self._changes: i64 = 0

    def put(self, alone: tuple[int, ...]) -> None:
        place = bisect_left(self.members, alone[0])
        self.members[place:place] = alone
        self._shown = None
        self._changes += 1

    def take(self, peer: int) -> None:
        del self.members[bisect_left(self.members, peer)]
        self._shown = None
        self._changes += 1

    def shown(self) -> tuple[int, ...]:
        shown = self._shown
        if shown is None:
            changes = self._changes
            shown = tuple(self.members)
            # Creating the tuple may start the cycle collector, which may run other code (`unibus.core.atomic`): do not
            # cache a tuple that is already out of date.
            if changes == self._changes:
                self._shown = shown
        return shown


@mypyc_attr(allow_interpreted_subclasses=False)
class Interest:
    """The peers of one pattern, ascending and each once. A subclass for each kind of pattern says where it is
    stored."""

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell: tuple[int, ...] | Crowd = ()

    def peers(self) -> tuple[int, ...]:
        cell = self._cell
        if isinstance(cell, Crowd):
            return cell.shown()
        return cell

    def join(self, alone: tuple[int, ...]) -> None:
        """Add a peer that is not a member yet, given as its 1-tuple."""
        cell = self._cell
        if isinstance(cell, Crowd):
            cell.put(alone)
        elif not cell:
            self._cell = alone
        elif len(cell) < CROWD_SIZE:
            place = bisect_left(cell, alone[0])
            self._cell = cell[:place] + alone + cell[place:]
        else:
            crowd = Crowd(list(cell))
            crowd.put(alone)
            self._cell = crowd

    def leave(self, peer: int) -> bool:
        """Remove a member; True if none remains."""
        cell = self._cell
        if isinstance(cell, Crowd):
            cell.take(peer)
            return not cell.members
        place = bisect_left(cell, peer)
        self._cell = cell[:place] + cell[place + 1 :]
        return not self._cell


@final
class PeerInterests:
    """One peer, and how often it subscribed to each of its interests."""

    __slots__ = ("_counts", "_only", "alone")

    def __init__(self, peer: int) -> None:
        self.alone: tuple[int, ...] = (peer,)
        # A single interest, subscribed once, needs no dict: `_only`. Anything else is in `_counts`.
        self._only: Interest | None = None
        self._counts: dict[Interest, int] | None = None

    def size(self) -> int:
        counts = self._counts
        if counts is None:
            return 0 if self._only is None else 1
        return len(counts)

    def holds(self, interest: Interest) -> bool:
        counts = self._counts
        if counts is None:
            return self._only is interest
        return interest in counts

    def count_up(self, interest: Interest) -> None:
        counts = self._counts
        if counts is None:
            only = self._only
            if only is None:
                self._only = interest
                return
            counts = {only: 1}
            self._counts = counts
            self._only = None
        counts[interest] = counts.get(interest, 0) + 1

    def count_down(self, interest: Interest) -> bool:
        """Undo one subscription to this interest; True if it was the last one."""
        counts = self._counts
        if counts is None:
            self._only = None
            return True
        left = counts[interest] - 1
        if left:
            counts[interest] = left
            return False
        del counts[interest]
        return True

    def interests(self) -> list[Interest]:
        counts = self._counts
        if counts is not None:
            return list(counts)
        only = self._only
        return [] if only is None else [only]


def union(parts: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Every peer of the parts once, ascending."""
    if len(parts) < 2:
        return parts[0] if parts else ()
    peers: list[int] = []
    for part in parts:
        peers += part
    # Each part is sorted already, and `sort` detects such runs: it only merges them.
    peers.sort()
    # Searching for a duplicate is cheaper than a set, and mostly there is none.
    last: i64 = len(peers) - 1
    place: i64 = 0
    while place < last:
        if peers[place] == peers[place + 1]:
            return tuple(sorted(set(peers)))
        place += 1
    return tuple(peers)
