"""Byte prefixes in one sorted table, each linked to its parent: the longest stored proper prefix of it.

Every stored prefix of a topic is also a prefix of the topic's floor (the greatest key that is not above the topic):
every string that sorts between a string and its extension also extends that string. So a match is one bisect for the
floor and a walk along its parents, O(log N + depth), wherever in the table the topic is.

    table    ""  "A"  "AB"  "B"  "BTC"  "BTC/USD"          topic "BTC/EUR": its floor is "BTC"
    parent   -   ""   "A"   ""   "B"    "BTC"              walk: "BTC", "B", ""

Two choices keep changes cheap, because a subscriber can send them as fast as publishers publish.
The table is divided into runs, so that an insertion shifts a run and not the table. And links are computed on the first
walk, then cached: one is valid as long as its `stamp` equals the table's `shape`. Only inserting or removing a key that
has descendants changes the shape, since only then the parent of another key may change. Nothing is relinked at that
moment; a match relinks the keys on its walk, so neither a change nor a match ever visits the whole table.

Compiled, a match takes no lock (`unibus.core.atomic`). So a change allocates its new objects first, and then updates
the lists without an allocation in between: whenever another thread runs, keys and rows agree.
"""

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

from unibus.core.topics.interest import Interest

RUN_SIZE_MAX: Final = 1024
"""Keys in a run before it is split: shifting 8 KB costs about as much as the search for the position."""

_UNLINKED: Final = -1


@final
class Prefix(Interest):
    """The subscribers of one prefix, and its link to the next shorter stored prefix."""

    __slots__ = ("key", "parent", "stamp")

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self.key = key
        self.parent: Prefix | None = None
        self.stamp: i64 = _UNLINKED


@final
class PrefixTable:
    """Sorted keys and their interests, in runs; `_firsts` has the first key of each run. No run is empty.

    `size` counts the keys. A run is split when it grows beyond `run_size_max`.
    """

    __slots__ = ("_firsts", "_keys", "_rows", "_run_size_max", "_shape", "size")

    def __init__(self, run_size_max: int = RUN_SIZE_MAX) -> None:
        self._run_size_max: i64 = run_size_max
        self.size: i64 = 0
        self._shape: i64 = 0
        self._firsts: list[bytes] = []
        self._keys: list[list[bytes]] = []
        self._rows: list[list[Prefix]] = []

    def find(self, key: bytes) -> Prefix | None:
        floor = self._floor(key)
        return floor if floor is not None and floor.key == key else None

    def insert(self, key: bytes) -> Prefix:
        """Add a key that is not in the table."""
        prefix = Prefix(key)
        self.size += 1
        if not self._keys:
            self._begin(prefix)
            return prefix
        run = max(bisect_right(self._firsts, key) - 1, 0)
        keys = self._keys[run]
        place = bisect_left(keys, key)
        self._invalidate_links(run, place, key)
        keys.insert(place, key)
        self._rows[run].insert(place, prefix)
        self._firsts[run] = keys[0]
        if len(keys) > self._run_size_max:
            self._cut(run)
        return prefix

    def remove(self, prefix: Prefix) -> None:
        """Remove an interest that is in the table."""
        key = prefix.key
        run = bisect_right(self._firsts, key) - 1
        keys = self._keys[run]
        place = bisect_left(keys, key)
        del keys[place]
        del self._rows[run][place]
        self._invalidate_links(run, place, key)
        if keys:
            self._firsts[run] = keys[0]
        else:
            del self._firsts[run], self._keys[run], self._rows[run]
        # Keys that are not walked again may refer to this one for long; without this they would keep a whole chain of
        # removed prefixes in memory.
        prefix.parent = None
        self.size -= 1

    def match(self, topic: bytes, parts: list[tuple[int, ...]]) -> None:
        """Append the peers of every stored prefix of the topic."""
        prefix = self._floor(topic)
        while prefix is not None and not topic.startswith(prefix.key):
            prefix = self._parent(prefix)
        # After the first match all parents match, so their keys need no comparison.
        while prefix is not None:
            parts.append(prefix.peers())
            prefix = self._parent(prefix)

    def _floor(self, key: bytes) -> Prefix | None:
        run = bisect_right(self._firsts, key) - 1
        if run < 0:
            return None
        return self._rows[run][bisect_right(self._keys[run], key) - 1]

    def _parent(self, prefix: Prefix) -> Prefix | None:
        if prefix.stamp != self._shape:
            self._relink(prefix)
        return prefix.parent

    def _relink(self, prefix: Prefix) -> None:
        """Compute the parent again. Each floor that is not a prefix limits the parent to the bytes that both share."""
        key = prefix.key
        parent: Prefix | None = None
        # A parent is at most all but the last byte; the empty key has none.
        size = len(key) - 1
        while size >= 0:
            start = key[:size]
            parent = self._floor(start)
            if parent is None or start.startswith(parent.key):
                break
            size = _shared(start, parent.key)
        prefix.parent = parent
        prefix.stamp = self._shape

    def _invalidate_links(self, run: int, place: int, key: bytes) -> None:
        """Invalidate all cached links if the key has descendants: those follow it directly, from this position on."""
        keys = self._keys[run]
        if place < len(keys):
            follower = keys[place]
        elif run + 1 < len(self._firsts):
            follower = self._firsts[run + 1]
        else:
            return
        if follower.startswith(key):
            self._shape += 1

    def _begin(self, prefix: Prefix) -> None:
        keys = [prefix.key]
        rows = [prefix]
        self._keys.append(keys)
        self._rows.append(rows)
        self._firsts.append(prefix.key)

    def _cut(self, run: int) -> None:
        keys = self._keys[run]
        rows = self._rows[run]
        half = len(keys) >> 1
        lower_keys, upper_keys = keys[:half], keys[half:]
        lower_rows, upper_rows = rows[:half], rows[half:]
        self._keys[run] = lower_keys
        self._rows[run] = lower_rows
        self._keys.insert(run + 1, upper_keys)
        self._rows.insert(run + 1, upper_rows)
        self._firsts.insert(run + 1, upper_keys[0])


def _shared(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    size: i64 = min(len(one), len(other))
    place: i64 = 0
    while place < size and one[place] == other[place]:
        place += 1
    return place
