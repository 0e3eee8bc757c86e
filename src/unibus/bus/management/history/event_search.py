"""Searches history: a page of events after a position, and the newest events. It blocks: use it in a thread.

A filter may match nothing in millions of events, so a search ends after SEARCH_S_MAX and gives the position it reached.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from unibus.bus.management.history.events import EventFilter
from unibus.core.lifecycle.events import Event
from unibus.errors import BusClosed
from unibus.stores.seam.history import History
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_view import last_events, seq_before

PAGE: Final = 500
"""Events that are read at once. Small, because the owner of a file cannot write during a read."""

SEARCH_S_MAX: Final = 5.0
# After every possible seq: nothing is read, and the answer has the last seq.
_BEYOND: Final = 2**62


@dataclass
class Search:
    """One search. Another thread ends it by setting `stop`."""

    wanted: EventFilter
    since_ns: int = 0
    seconds_max: float = SEARCH_S_MAX
    stop: threading.Event = field(default_factory=threading.Event)

    def accepts(self, event: Event) -> bool:
        # Events have microseconds: the instant is rounded down, so that an event of the same microsecond is found.
        return event.ts * 1_000 >= self.since_ns - self.since_ns % 1_000 and self.wanted(event)

    def goes_on(self) -> bool:
        if self.stop.is_set():
            # Raised through the reading functions, which know no other way to end.
            raise BusClosed("the search was stopped", "its client has disconnected")
        return time.monotonic() < self._end_s

    def begin(self) -> None:
        self._end_s = time.monotonic() + self.seconds_max

    def page(self, store: Store, after: int, limit: int) -> tuple[list[Event], int, int]:
        """Up to `limit` events after a seq, the seq to continue after, and the last seq of history."""
        self.begin()
        # The end is fixed at the start: on a busy store a search could otherwise follow new events without end.
        seq, last = after, last_seq(store.history)
        if self.since_ns:
            health = store.health()
            seq = max(seq, seq_before(store.history, health.oldest_seq, last, self.since_ns))
        found: list[Event] = []
        while seq < last and len(found) < limit and self.goes_on():
            events, _ = store.history.events_after(seq, PAGE)
            # Pruned up to the end.
            if not events:
                seq = last
            for event in events:
                seq = event.seq
                if self.accepts(event):
                    found.append(event)
                    if len(found) == limit:
                        break
        return found, seq, last

    def last(self, store: Store, count: int) -> tuple[list[Event], int, bool]:
        """The newest `count` matching events, the last seq of history, and whether the search was complete."""
        self.begin()
        health, last = store.health(), last_seq(store.history)
        oldest = max(1, health.oldest_seq)
        if self.since_ns:
            oldest = max(oldest, seq_before(store.history, oldest, last, self.since_ns) + 1)
        found, reached = last_events(store.history, oldest, last, count, self.accepts, self.goes_on)
        return found, last, reached <= oldest or len(found) == count


def last_seq(history: History) -> int:
    """The last seq of history, in constant time; `health()` would count all messages."""
    return history.events_after(_BEYOND, 1)[1]
