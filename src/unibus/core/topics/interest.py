"""The two ends of a subscription: a pattern that somebody wants, and a peer that wants patterns.

An `Interest` knows its peers, a `PeerInterests` knows its interests; together they make matching a lookup and the
removal of a peer as cheap as what that peer held. Most interests have one peer and, inside a process, most peers have
one interest, so both are stored without any container for one. An interest with one peer holds that peer's own 1-tuple:
to answer a match costs no allocation.
"""

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

CROWD_SIZE: Final = 64
"""Up to here peers are a tuple that is copied at each change; beyond it the copies would make joining quadratic."""


@final
class Crowd:
    """Many peers of one interest: a sorted list to change, and a tuple to show, made when asked for."""

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
            # To make a tuple may start the collector and so anybody's code (`unibus.core.atomic`).
            if changes == self._changes:
                self._shown = shown
        return shown


@mypyc_attr(allow_interpreted_subclasses=False)
class Interest:
    """The peers of one pattern, ascending and each once. The kinds of pattern add where they are stored."""

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell: tuple[int, ...] | Crowd = ()

    def peers(self) -> tuple[int, ...]:
        cell = self._cell
        if isinstance(cell, Crowd):
            return cell.shown()
        return cell

    def join(self, alone: tuple[int, ...]) -> None:
        """Add a peer that is not here yet, given as its 1-tuple."""
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
        """Remove a peer that is here; True when nobody is left."""
        cell = self._cell
        if isinstance(cell, Crowd):
            cell.take(peer)
            return not cell.members
        place = bisect_left(cell, peer)
        self._cell = cell[:place] + cell[place + 1 :]
        return not self._cell


@final
class PeerInterests:
    """One peer and how often it asked for each of its interests."""

    __slots__ = ("_counts", "_only", "alone")

    def __init__(self, peer: int) -> None:
        self.alone: tuple[int, ...] = (peer,)
        # One interest asked for once needs no dict: `_only`. Anything else is in `_counts`.
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
        """Take back one of the times that this interest was asked for; True when that was the last."""
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
    """Every peer of the parts once, ascending (S4-012)."""
    if len(parts) < 2:
        return parts[0] if parts else ()
    peers: list[int] = []
    for part in parts:
        peers += part
    # Each part is sorted already, and the sort uses such runs: it only merges.
    peers.sort()
    # To look for a peer that is there twice is cheaper than a set, and mostly there is none.
    last: i64 = len(peers) - 1
    place: i64 = 0
    while place < last:
        if peers[place] == peers[place + 1]:
            return tuple(sorted(set(peers)))
        place += 1
    return tuple(peers)
