# mypyc: compiled
"""What is due when: locks that end, messages that expire or become visible.

Most deadlines never come: a lock is settled, a message is received long before its fourteen days are over. So what is
far away only goes into a list for its stretch of time, and is put in exact order when that stretch begins. Nothing is
ever removed early; what is no longer true is noticed when it is looked at, and swept when it is most of what is there.
"""

import heapq
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

NEVER: Final = 9_223_372_036_854_775_807
_STRETCH_BITS: Final = 33  # 8.6 s
_SWEEP_MIN: Final = 4_096


# Millions may wait: the cycle collector must not walk them (decision 0006).
@mypyc_attr(acyclic=True)
class DeadlineItem:
    """Something with a deadline of its own that may change at any time. The other two fields are those of Due."""

    def __init__(self) -> None:
        self.timers: i64 = 0  # How often it stands there,
        self.timed_ns: i64 = NEVER  # and the first of these times.

    def deadline_ns(self) -> i64:
        """When something is due; 0 when nothing is."""
        raise NotImplementedError


@final
class Deadlines:
    """All deadlines of one store."""

    def __init__(self) -> None:
        self._near: list[tuple[int, int, DeadlineItem]] = []
        self._far: dict[int, list[DeadlineItem]] = {}
        self._stretches: list[int] = []
        self._opened: i64 = 0  # Stretches before this one are in `_near`.
        self._count: i64 = 0
        self._size: i64 = 0
        self._stale: i64 = 0

    def __len__(self) -> int:
        return self._size

    def add(self, item: DeadlineItem, when_ns: i64) -> None:
        """Look at the item at that time. One that will be looked at before anyway needs no second place."""
        if item.timed_ns <= when_ns:
            return
        item.timed_ns = when_ns
        item.timers += 1
        stretch = when_ns >> _STRETCH_BITS
        self._size += 1
        if stretch <= self._opened:
            self._count += 1
            heapq.heappush(self._near, (when_ns, self._count, item))
            return
        items = self._far.get(stretch)
        if items is None:
            self._far[stretch] = [item]
            heapq.heappush(self._stretches, stretch)
        else:
            items.append(item)

    def next_ns(self) -> i64:
        """When to look again; NEVER when nothing is due at all. It may be early, never late."""
        first: i64 = NEVER
        if self._near:
            first = self._near[0][0]
        if self._stretches:
            begins: i64 = self._stretches[0] << _STRETCH_BITS
            if begins < first:
                first = begins
        return first

    def pop(self, now_ns: i64) -> DeadlineItem | None:
        """Something that is due by now, by the order of deadlines. What moved meanwhile is put in order again."""
        while True:
            self._open(now_ns)
            if not self._near or self._near[0][0] > now_ns:
                return None
            first = heapq.heappop(self._near)
            when_ns: i64 = first[0]
            item = first[2]
            deadline_ns = self._taken(item)
            # A later deadline waits for its turn even if it is over by now: others may come before it.
            if deadline_ns and deadline_ns <= when_ns:
                return item
            if deadline_ns:
                self.add(item, deadline_ns)

    def _taken(self, item: DeadlineItem) -> i64:
        """An item lost one of its places. Its deadline as of now."""
        self._size -= 1
        item.timers -= 1
        item.timed_ns = NEVER
        deadline_ns = item.deadline_ns()
        if deadline_ns == 0 and self._stale > 0:
            self._stale -= 1
        return deadline_ns

    def forget(self, item: DeadlineItem) -> None:
        """It will never be due again. When most of what stands here is like that, it is swept out."""
        self._stale += item.timers
        if self._stale > _SWEEP_MIN and self._stale * 2 > self._size:
            self._sweep()

    def forget_all(self, timers: i64) -> None:
        """The same for many items that have so many places together: at most one sweep. (Each message calls `forget`,
        so that has no call of this in it.)
        """
        self._stale += timers
        if self._stale > _SWEEP_MIN and self._stale * 2 > self._size:
            self._sweep()

    def _stays(self, item: DeadlineItem) -> bool:
        """Whether it is due at all. If not, all of its places go; it may still come back, so it has to know that."""
        if item.deadline_ns():
            return True
        item.timers = 0
        item.timed_ns = NEVER
        return False

    def _open(self, now_ns: i64) -> None:
        while self._stretches and self._stretches[0] <= now_ns >> _STRETCH_BITS:
            self._opened = heapq.heappop(self._stretches)
            for item in self._far.pop(self._opened):
                deadline_ns = self._taken(item)
                if deadline_ns:
                    self.add(item, deadline_ns)

    def _sweep(self) -> None:
        self._near = [each for each in self._near if self._stays(each[2])]
        heapq.heapify(self._near)
        size: i64 = len(self._near)
        for stretch, items in list(self._far.items()):
            kept = [item for item in items if self._stays(item)]
            self._far[stretch] = kept
            size += len(kept)
        self._size = size
        self._stale = 0
