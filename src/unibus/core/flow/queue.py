"""A strict priority queue: exactly by (priority, sequence), O(1) for the few levels that are in use.

One ring buffer for each priority in use, and a reference to the lowest level that is not empty:

    level  0   [ . . . ]
    level 50   [ a b c ]   <- lowest, the next pop
    level 75   [ d ]

An item that is requeued after a failed delivery keeps its position. It was popped before everything that is still in
the ring of its level, so a small heap of returned items, which `pop` reads first, restores the exact order.
"""

import bisect
import heapq
from typing import Final, Generic, TypeVar, cast, final

from mypy_extensions import i64

from unibus.core.atomic import atomic
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import checked_priority
from unibus.errors import QueueFull, UsageError
from unibus.limits import PRIORITY_MAX

T = TypeVar("T")

_RING_SLOTS_MIN: Final = 8
# A ring that a burst made larger than this releases its memory once it is empty.
_RING_SLOTS_KEPT: Final = 1024
_NO_LEVEL: Final = PRIORITY_MAX + 1
# Up to this number it is faster to test every level than to bisect for the first one.
_FEW_LEVELS: Final = 8


@final
class Ring:
    """A first-in-first-out buffer over one list; the size of the list is a power of two."""

    def __init__(self) -> None:
        self.slots: list[object] = [None] * _RING_SLOTS_MIN
        self.mask: i64 = _RING_SLOTS_MIN - 1
        self.head: i64 = 0
        self.size: i64 = 0

    def reserve(self) -> None:
        """Make sure that the next push allocates nothing."""
        while self.size > self.mask:
            self._grow()

    def push(self, item: object) -> None:
        while self.size > self.mask:
            self._grow()
        self.slots[(self.head + self.size) & self.mask] = item
        self.size += 1

    def pop(self) -> object:
        """Remove and return the oldest item. The caller has checked that the ring is not empty."""
        head = self.head
        item = self.slots[head]
        self.slots[head] = None
        self.head = (head + 1) & self.mask
        self.size -= 1
        if self.size == 0 and self.mask >= _RING_SLOTS_KEPT:
            self._reset()
        return item

    # Both allocate first, then check again, then change (see core.atomic): the allocation may run other code.

    def _grow(self) -> None:
        fresh: list[object] = [None] * (2 * len(self.slots))
        if self.size > self.mask:
            for index in range(self.size):
                fresh[index] = self.slots[(self.head + index) & self.mask]
            self.slots = fresh
            self.mask = len(fresh) - 1
            self.head = 0

    def _reset(self) -> None:
        fresh: list[object] = [None] * _RING_SLOTS_MIN
        if self.size == 0:
            self.slots = fresh
            self.mask = _RING_SLOTS_MIN - 1
            self.head = 0


@final
class PriorityQueue(Generic[T]):
    """Bounded by `max_size` items (0 = unbounded). Safe for many producers and many consumers."""

    def __init__(self, max_size: int = 0) -> None:
        if max_size < 0:
            raise UsageError(f"max_size {max_size} is negative", "0 means unbounded")
        self.max_size: i64 = max_size
        self.size: i64 = 0
        # The levels used so far, ascending, and their rings at the same index: a queue of one level stays small.
        self._levels: list[i64] = []
        self._rings: list[Ring] = []
        self._ring_of: dict[i64, Ring] = {}
        self._lowest: i64 = _NO_LEVEL  # The lowest level whose ring is not empty; `_lowest_ring` is its ring.
        self._lowest_ring = Ring()
        # A heap of (priority, sequence, ticket, item). The ticket decides between equal sequences of different
        # channels, so that items are never compared.
        self._returned: list[tuple[i64, i64, i64, object]] = []
        self._tickets: i64 = 0

    def push_with_priority(self, item: T, priority: int) -> None:
        """Append to the level. Raises QueueFull, which has the item, if the queue holds `max_size` items."""
        if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
            checked_priority(priority)
        if self.max_size:
            self.reserve(priority)
            if self.size >= self.max_size:
                raise QueueFull(f"the queue is full: it holds {self.size} items", "pop first, or raise max_size", item)
        self.append(item, priority)

    def push(self, message: T) -> None:
        """Append a message to the level of its own priority."""
        if not isinstance(message, Message):
            raise UsageError("push takes a Message", "use push_with_priority(item, priority) for anything else")
        self.push_with_priority(message, message.priority)

    def reserve(self, level: i64) -> None:
        """Allocate now what the next append to the level needs, so that no allocation runs other code between the
        check of the size and the append."""
        if level == self._lowest:
            self._lowest_ring.reserve()
        else:
            self._ring(level).reserve()

    def append(self, item: object, level: i64) -> None:
        """Append without checking `max_size` and the level: the caller has checked both."""
        if level == self._lowest:
            self._lowest_ring.push(item)
        else:
            ring = self._ring(level)
            ring.push(item)
            if level < self._lowest:
                self._lowest = level
                self._lowest_ring = ring
        self.size += 1

    def restore(self, item: T, priority: i64, sequence: i64) -> None:
        """Requeue a popped item at its old position. Never rejected by `max_size`: it was admitted before."""
        self._tickets += 1
        heapq.heappush(self._returned, (priority, sequence, self._tickets, item))
        self.size += 1

    def has_returned_before(self, priority: i64, sequence: i64) -> bool:
        """Whether a requeued item precedes this position."""
        if not self._returned:
            return False
        first = self._returned[0]
        return first[0] < priority or (first[0] == priority and first[1] < sequence)

    def pop(self) -> T | None:
        """Remove and return the item with the lowest (priority, sequence); None if the queue is empty."""
        if self.size == 0:
            return None
        return self._next()

    def evict(self, priority: i64) -> T | None:
        """Remove and return the oldest item of the least urgent level, in favour of one of the given priority.

        Never an item that is more urgent than the new one. Then the result is None, and the caller rejects the new one.
        """
        returned = self._least_urgent_returned()
        level = self._highest()
        if returned >= 0 and self._returned[returned][0] >= level:
            # A requeued item is older than every item in the ring of the same level.
            return self._evict_returned(returned) if self._returned[returned][0] >= priority else None
        return self._evict_waiting(level) if level >= priority else None

    def count_from(self, priority: i64) -> int:
        """How many items are on levels that are not more urgent than the given one."""
        count: i64 = 0
        for index, level in enumerate(self._levels):
            if level >= priority:
                count += self._rings[index].size
        for entry in self._returned:
            if entry[0] >= priority:
                count += 1
        return count

    def drain(self) -> list[T]:
        """Remove everything, in the order of `pop`."""
        items: list[T] = []
        while self.size:
            items.append(self._next())
        return items

    def items(self) -> list[T]:
        """Everything, in the order of `pop`, without removing it: an interrupt can lose nothing."""
        found: list[T] = []
        returned = sorted(self._returned)  # A ticket is unique, so items are never compared.
        taken: i64 = 0
        for index in range(len(self._rings)):
            ring = self._rings[index]
            while ring.size and taken < len(returned) and returned[taken][0] <= self._levels[index]:
                found.append(cast(T, returned[taken][3]))
                taken += 1
            for place in range(ring.size):
                found.append(cast(T, ring.slots[(ring.head + place) & ring.mask]))
        for entry in returned[taken:]:
            found.append(cast(T, entry[3]))
        return found

    def move(self, chosen: set[int], into: list[T]) -> None:
        """Move the items whose `id()` is chosen to the end of `into`. The others keep their places.

        An item is added to `into` before it is removed here: Ctrl-C in between leaves it in both, and the next call
        then only removes it. No other item is ever outside of the queue.
        """
        known = {id(item) for item in into}
        for index in range(len(self._rings)):
            self._move_waiting(self._rings[index], chosen, known, into)
        self._move_returned(chosen, known, into)

    def is_empty(self) -> bool:
        return self.size == 0

    def __len__(self) -> int:
        return self.size

    def _next(self) -> T:
        self.size -= 1
        if self._returned and self._returned[0][0] <= self._lowest:
            return cast(T, heapq.heappop(self._returned)[3])
        ring = self._lowest_ring
        item = ring.pop()
        if ring.size == 0:
            self._find_lowest()
        return cast(T, item)

    def _move_waiting(self, ring: Ring, chosen: set[int], known: set[int], into: list[T]) -> None:
        # Allocate first (see core.atomic): what an allocation runs may change the ring, also its size.
        fresh: list[object] = [None] * len(ring.slots)
        while len(fresh) != len(ring.slots):
            fresh = [None] * len(ring.slots)
        kept: i64 = 0
        for place in range(ring.size):
            item = ring.slots[(ring.head + place) & ring.mask]
            if id(item) not in chosen:
                fresh[kept] = item
                kept += 1
            elif id(item) not in known:
                into.append(cast(T, item))
        if kept == ring.size:
            return
        lowest, lowest_ring = self._lowest, self._lowest_ring
        if kept == 0 and ring is lowest_ring:
            lowest = _NO_LEVEL
            for index in range(len(self._rings)):
                if self._rings[index].size and self._rings[index] is not ring:
                    lowest, lowest_ring = self._levels[index], self._rings[index]
                    break
        # One statement without a call: Ctrl-C is raised before it or after it, so the sizes always match the rings.
        ring.slots, ring.head, ring.size, self.size, self._lowest, self._lowest_ring = (
            fresh,
            0,
            kept,
            self.size - (ring.size - kept),
            lowest,
            lowest_ring,
        )

    def _move_returned(self, chosen: set[int], known: set[int], into: list[T]) -> None:
        if not any([id(entry[3]) in chosen for entry in self._returned]):
            return
        while True:
            tickets = self._tickets
            before = list(self._returned)
            # In order, and a list in order is a heap.
            fresh = sorted([entry for entry in before if id(entry[3]) not in chosen])
            # Unchanged by what the allocations ran: a pop shortens the heap, and a requeue draws a ticket.
            if len(before) == len(self._returned) and tickets == self._tickets:
                break
        for entry in before:
            if id(entry[3]) in chosen and id(entry[3]) not in known:
                into.append(cast(T, entry[3]))
        self._returned, self.size = fresh, self.size - (len(before) - len(fresh))

    def _ring(self, level: i64) -> Ring:
        ring = self._ring_of.get(level)
        if ring is not None:
            return ring
        fresh = Ring()
        ring = self._ring_of.setdefault(level, fresh)
        if ring is fresh:
            place = bisect.bisect(self._levels, level)
            self._levels.insert(place, level)
            self._rings.insert(place, ring)
        return ring

    def _find_lowest(self) -> None:
        """The lowest level is empty now: find the next one above it."""
        emptied = self._lowest
        self._lowest = _NO_LEVEL
        if self.size == len(self._returned):
            return
        count: i64 = len(self._levels)
        index: i64 = 0 if count <= _FEW_LEVELS else bisect.bisect(self._levels, emptied)
        while index < count:
            ring = self._rings[index]
            if ring.size:
                self._lowest = self._levels[index]
                self._lowest_ring = ring
                return
            index += 1

    def _highest(self) -> i64:
        for index in range(len(self._rings) - 1, -1, -1):
            if self._rings[index].size:
                return self._levels[index]
        return -1

    def _evict_waiting(self, level: i64) -> T:
        ring = self._ring(level)
        item = ring.pop()
        self.size -= 1
        if ring.size == 0 and level == self._lowest:
            self._find_lowest()
        return cast(T, item)

    def _least_urgent_returned(self) -> i64:
        found: i64 = -1
        for index in range(len(self._returned)):
            if found < 0 or self._returned[index][0] > self._returned[found][0]:
                found = index
            elif self._returned[index][0] == self._returned[found][0]:
                if self._returned[index][1] < self._returned[found][1]:
                    found = index
        return found

    def _evict_returned(self, index: i64) -> T:
        item = self._returned.pop(index)[3]
        heapq.heapify(self._returned)
        self.size -= 1
        return cast(T, item)


atomic(PriorityQueue, "push_with_priority", "append", "restore", "pop", "evict", "count_from", "drain")
atomic(PriorityQueue, "has_returned_before", "items", "move")
