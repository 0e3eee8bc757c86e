# mypyc: compiled
"""The active messages of one queue or one session, in the order of delivery.

Strictly by (priority, sequence), or by sequence alone. New messages are pushed in order of sequence, so each priority
is a plain queue. Requeued messages are few, and keep their position through a heap. A message may be here although it
is not active any more: it is stale, and skipped when it is reached. It may also be here twice: the first one that is
reached is delivered, and then the second is stale.
"""

import heapq
from bisect import insort
from collections import deque
from typing import final

from mypy_extensions import i64, mypyc_attr

from unibus.core.lifecycle.state.deadlines import DeadlineItem
from unibus.core.lifecycle.state.states import ACTIVE


@mypyc_attr(acyclic=True)
class ReadyItem(DeadlineItem):
    """An item of a ready queue: it has a position, and a state that says whether it is still active."""

    def __init__(self, sequence: int, priority: int) -> None:
        super().__init__()
        self.sequence: i64 = sequence
        self.priority: i64 = priority
        self.state: i64 = ACTIVE


@final
class ReadyQueue:
    def __init__(self, by_priority: bool) -> None:
        self.by_priority = by_priority
        self._levels: dict[int, deque[ReadyItem]] = {}
        self._order: list[int] = []  # The levels that have messages, the most urgent first.
        self._returned: list[tuple[int, int, ReadyItem]] = []

    def push(self, entry: ReadyItem) -> None:
        """Append a message whose sequence is higher than that of every other one that was pushed."""
        level = entry.priority if self.by_priority else 0
        queue = self._levels.get(level)
        if queue is None:
            queue = deque()
            self._levels[level] = queue
        if not queue:
            # A list: there are few levels in use at a time.
            insort(self._order, level)
        queue.append(entry)

    def reinsert(self, entry: ReadyItem) -> None:
        """Insert a message that was here before, at its own position."""
        level = entry.priority if self.by_priority else 0
        heapq.heappush(self._returned, (level, entry.sequence, entry))

    def first(self) -> ReadyItem | None:
        """The next message, without removing it. Removes stale ones before it."""
        fresh = self._first_fresh()
        while self._returned and self._returned[0][2].state != ACTIVE:
            heapq.heappop(self._returned)
        if not self._returned:
            return fresh
        level, sequence, returned = self._returned[0]
        # A message may be in both, and then it is the same object: the one from the heap is taken, and the other is
        # stale.
        if fresh is None or (level, sequence) <= (self._order[0], fresh.sequence):
            return returned
        return fresh

    def pop(self) -> ReadyItem | None:
        entry = self.first()
        if entry is None:
            return None
        if self._returned and self._returned[0][2] is entry:
            heapq.heappop(self._returned)
        else:
            self._drop_first(self._order[0])
        return entry

    def count_before(self, priority: i64, sequence: i64, at_most: i64) -> i64:
        """How many messages precede this position: 0 if and only if none does, else an estimate.

        Only whole levels are counted, including stale messages: an exact count would visit each of them.
        """
        first = self.first()
        if first is None:
            return 0
        level: i64 = priority if self.by_priority else 0
        found: i64 = first.priority if self.by_priority else 0
        if found > level or (found == level and first.sequence >= sequence):
            return 0
        count: i64 = 0
        for each in self._order:
            if each >= level or count >= at_most:
                break
            count += len(self._levels[each])
        return max(1, min(count, at_most))

    def clear(self) -> None:
        self._levels.clear()
        self._order.clear()
        self._returned.clear()

    def _first_fresh(self) -> ReadyItem | None:
        while self._order:
            level = self._order[0]
            entry = self._levels[level][0]
            if entry.state == ACTIVE:
                return entry
            self._drop_first(level)
        return None

    def _drop_first(self, level: int) -> None:
        queue = self._levels[level]
        queue.popleft()
        if not queue:
            self._order.pop(0)

    def items(self) -> list[ReadyItem]:
        """All items, including stale ones. For checks."""
        returned = [each[2] for each in self._returned]
        return [each for queue in self._levels.values() for each in queue] + returned

    def held(self) -> i64:
        """The number of items, including stale ones."""
        size: i64 = len(self._returned)
        for queue in self._levels.values():
            size += len(queue)
        return size
