# mypyc: compiled
"""The deadlines of a store: locks that expire, messages that expire or become active.

Most deadlines are never reached: a message is settled before its lock ends, and received long before its ttl. So a
distant deadline is only appended to the list of its time slice (8.6 s), and sorted into a heap when that slice begins.
Entries are never removed early: a stale entry is detected when it is popped, and a sweep removes all of them once they
are the larger part.

    _near   heap of (instant, count, item)     all slices up to `_opened`
    _far    slice number -> unsorted items     `_stretches` is the heap of their numbers
"""

import heapq
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

NEVER: Final = 9_223_372_036_854_775_807
_STRETCH_BITS: Final = 33  # 8.6 s
_SWEEP_MIN: Final = 4_096


# Acyclic: there may be millions, and the cycle collector must not traverse them (decision 0006).
@mypyc_attr(acyclic=True)
class DeadlineItem:
    """An item with a deadline that may change at any time. The two fields belong to Deadlines."""

    def __init__(self) -> None:
        self.timers: i64 = 0  # How many entries it has there,
        self.timed_ns: i64 = NEVER  # and the earliest of their times.

    def deadline_ns(self) -> i64:
        """The current deadline; 0 for none."""
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
        """Check the item at that time. An item that is checked earlier anyway needs no second entry."""
        # The earlier entry finds the new deadline when it is popped. So renewing a lock again and again adds no
        # entries.
        if item.timed_ns <= when_ns:
            return
        item.timed_ns = when_ns
        item.timers += 1
        stretch = when_ns >> _STRETCH_BITS
        self._size += 1
        if stretch <= self._opened:
            # Breaks ties: two items of one instant are not comparable, and the first one comes first.
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
        """When to call `pop` again; NEVER if there is no deadline. It may be too early, never too late."""
        first: i64 = NEVER
        if self._near:
            first = self._near[0][0]
        if self._stretches:
            # The beginning of its slice, which is earlier than any deadline in it: too early is allowed.
            begins: i64 = self._stretches[0] << _STRETCH_BITS
            if begins < first:
                first = begins
        return first

    def pop(self, now_ns: i64) -> DeadlineItem | None:
        """Remove and return an item that is due, in order of deadlines; None if none is. An item whose deadline was
        moved is sorted in again."""
        while True:
            self._open(now_ns)
            if not self._near or self._near[0][0] > now_ns:
                return None
            first = heapq.heappop(self._near)
            when_ns: i64 = first[0]
            item = first[2]
            deadline_ns = self._taken(item)
            # An item whose deadline was moved is sorted in again even if it is due by now: others may be due before it.
            if deadline_ns and deadline_ns <= when_ns:
                return item
            if deadline_ns:
                self.add(item, deadline_ns)

    def _taken(self, item: DeadlineItem) -> i64:
        """Count an entry as removed. Returns the current deadline of its item."""
        self._size -= 1
        item.timers -= 1
        item.timed_ns = NEVER
        deadline_ns = item.deadline_ns()
        if deadline_ns == 0 and self._stale > 0:
            self._stale -= 1
        return deadline_ns

    def forget(self, item: DeadlineItem) -> None:
        """The item has no deadline any more: its entries are stale. If most entries are stale, sweep them."""
        self._stale += item.timers
        if self._stale > _SWEEP_MIN and self._stale * 2 > self._size:
            self._sweep()

    def forget_all(self, timers: i64) -> None:
        """The same for many items that have so many entries together: at most one sweep. (`forget` does not call it,
        because every message calls `forget`.)
        """
        self._stale += timers
        if self._stale > _SWEEP_MIN and self._stale * 2 > self._size:
            self._sweep()

    def _stays(self, item: DeadlineItem) -> bool:
        """Whether the item has a deadline. If not, the sweep removes all of its entries, and its fields are reset,
        because it may be added again."""
        if item.deadline_ns():
            return True
        item.timers = 0
        item.timed_ns = NEVER
        return False

    def _open(self, now_ns: i64) -> None:
        # Slices that have begun. Most of their items are stale by now and are dropped without ever being sorted.
        while self._stretches and self._stretches[0] <= now_ns >> _STRETCH_BITS:
            self._opened = heapq.heappop(self._stretches)
            for item in self._far.pop(self._opened):
                deadline_ns = self._taken(item)
                if deadline_ns:
                    self.add(item, deadline_ns)

    def _sweep(self) -> None:
        # Costs one pass over all entries, and at least half of them go: constant time per entry.
        self._near = [each for each in self._near if self._stays(each[2])]
        heapq.heapify(self._near)
        size: i64 = len(self._near)
        for stretch, items in list(self._far.items()):
            kept = [item for item in items if self._stays(item)]
            self._far[stretch] = kept
            size += len(kept)
        self._size = size
        self._stale = 0
