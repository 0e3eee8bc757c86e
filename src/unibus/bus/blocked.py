# mypyc: compiled
"""Publishers that wait for a place on one channel in memory: first come, first served.

    a place becomes free ──▶ wake_first ──▶ the first publisher tries
                                              │ admitted, cancelled or timed out: it leaves, and wakes the next one
                                              │ while places are free
                                              └ no place: it keeps its position, and waits on

One free place wakes one publisher, so the work for n of them grows with n and not with its square. A publisher that was
woken and does not use its place passes the wake-up on when it leaves; that is why leaving always looks for free places.
"""

from collections import OrderedDict
from typing import final

from mypy_extensions import i64, mypyc_attr

from unibus.core.atomic import LOCK


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockedPublisher:
    """A thread or a task that waits; see room.py."""

    def wake(self) -> bool:
        """Let it try again. False if it may never do so: the caller then wakes the next one too."""
        raise NotImplementedError

    def can_run(self) -> bool:
        """False for a task whose event loop does not run: the others do not wait for it."""
        raise NotImplementedError


@final
class BlockedPublishers:
    """Those of one channel, in the order in which they came. Wakes nothing while it holds the lock."""

    def __init__(self) -> None:
        self.count: i64 = 0
        # Ordered, with the first one and any removal at constant cost: a plain dict walks over what was removed.
        self._waiting: OrderedDict[BlockedPublisher, None] = OrderedDict()

    def add(self, publisher: BlockedPublisher) -> None:
        with LOCK:
            self._waiting[publisher] = None
            self.count = len(self._waiting)

    def remove(self, publisher: BlockedPublisher) -> None:
        with LOCK:
            self._waiting.pop(publisher, None)
            self.count = len(self._waiting)

    def is_first(self, publisher: BlockedPublisher) -> bool:
        """Whether none before it can run."""
        return self._first_that_runs(publisher) is publisher

    def can_run(self) -> bool:
        """Whether a publisher waits here that will use the next place."""
        return self._first_that_runs(None) is not None

    def _first_that_runs(self, asking: BlockedPublisher | None) -> BlockedPublisher | None:
        first = self._next(None)
        if first is None or first is asking or first.can_run():
            return first
        with LOCK:
            waiting = list(self._waiting)  # A copy: asking the others may let a finalizer run, which removes one.
        for publisher in waiting:
            if publisher is asking or publisher.can_run():
                return publisher
        return None

    def wake_first(self) -> None:
        """Wake the first one; also those behind it, as long as the one before may never run."""
        publisher = self._next(None)
        while publisher is not None and not publisher.wake():
            publisher = self._next(publisher)

    def wake_after(self, publisher: BlockedPublisher) -> None:
        """Wake the one behind this publisher, which found no place where another may find one."""
        following = self._next(publisher)
        while following is not None and not following.wake():
            following = self._next(following)

    def wake_all(self) -> None:
        with LOCK:
            waiting = list(self._waiting)
        for publisher in waiting:
            publisher.wake()

    def _next(self, after: BlockedPublisher | None) -> BlockedPublisher | None:
        with LOCK:
            if after is None or after not in self._waiting:
                return next(iter(self._waiting), None)
            waiting = list(self._waiting)
            place = waiting.index(after) + 1
            return waiting[place] if place < len(waiting) else None
