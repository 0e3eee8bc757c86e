# mypyc: compiled
"""The messages that wait in one queue or one session, in the order in which they are handed out.

Strictly by (priority, sequence), or by sequence alone. New messages come in order of sequence, so each level is a
plain queue; the few that come back keep their place through a heap of their own. A message may stand here although it
is no longer active: it is skipped when it is reached. It may also stand here twice; the first that is reached counts.
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
    """What can stand in a line: it has a place, and a state that tells whether it still waits."""

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
        self._order: list[int] = []  # The levels that have messages, most urgent first.
        self._returned: list[tuple[int, int, ReadyItem]] = []

    def push(self, entry: ReadyItem) -> None:
        """A message whose sequence is higher than that of every other that was pushed."""
        level = entry.priority if self.by_priority else 0
        queue = self._levels.get(level)
        if queue is None:
            queue = deque()
            self._levels[level] = queue
        if not queue:
            insort(self._order, level)
        queue.append(entry)

    def reinsert(self, entry: ReadyItem) -> None:
        """A message that was here before: to its own place."""
        level = entry.priority if self.by_priority else 0
        heapq.heappush(self._returned, (level, entry.sequence, entry))

    def first(self) -> ReadyItem | None:
        """The next message, which stays. What is stale before it goes."""
        fresh = self._first_fresh()
        while self._returned and self._returned[0][2].state != ACTIVE:
            heapq.heappop(self._returned)
        if not self._returned:
            return fresh
        level, sequence, returned = self._returned[0]
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
        """How many precede this place: 0 if and only if none does, else roughly.

        Only whole levels are counted, stale messages included: to count exactly would take time for each of them.
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
        """All that have a place here, stale ones included. For checks."""
        returned = [each[2] for each in self._returned]
        return [each for queue in self._levels.values() for each in queue] + returned

    def held(self) -> i64:
        """Places in use, stale ones included."""
        size: i64 = len(self._returned)
        for queue in self._levels.values():
            size += len(queue)
        return size
