# mypyc: compiled
"""Publishers that wait for a place on one channel in memory: first come, first served.

    waiting ──grant: a place is free for it──▶ granted and woken ──▶ it tries
       ▲                                          │  │ admitted, cancelled or timed out: it leaves, and its place, if
       │                                          │  │ it is still free, is granted to the next one
       ├───────no place after all: give_back──────┘  └ its event loop does not run
       └──────────its loop runs again─────────── stalled

The side that frees a place grants it, in the order in which publishers came. A granted place is reserved: a publisher
behind gets only what is free beyond the granted ones. So a task whose event loop is busy keeps its own place and no
other, and one free place wakes one publisher.

Threads publish in the order in which they came: a thread runs as soon as it is woken, so nothing further is granted
until it has left. Tasks of one loop do too, because a loop resumes them in the order of their wake-ups. Between a task
and those behind it only the order of the places holds.

What no side reports is found by a timer: places that expired messages hold, and a loop that stopped after its task was
granted the last place. It calls `look_again` every second while a publisher waits.

Reservations bind those that wait. A handler never waits (see `must_wait` in exchange.py) and may take a granted place;
the publisher then returns to its position. A wake-up that came meanwhile is kept for it (`_missed`).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.atomic import LOCK

PLACES_UNKNOWN: Final = -1
"""Only a try can say whether there is a place: filters choose the groups, or the groups have just changed."""

_WAITING: Final = 0
_GRANTED: Final = 1
_STALLED: Final = 2
_GONE: Final = 3


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockedPublisher:
    """A thread or a task that waits with `size` messages; see room.py. `is_prompt`: it runs as soon as it is woken."""

    def __init__(self, size: int = 1, is_prompt: bool = True) -> None:
        self.size: i64 = size
        self.is_prompt = is_prompt
        self.number: i64 = 0  # Its position in the order.
        self.state: i64 = _GONE

    def wake(self) -> bool:
        """Let it try again. False if it may never do so: its place is then granted to the next one."""
        raise NotImplementedError

    def can_run(self) -> bool:
        """False for a task whose event loop does not run: the others do not wait for it."""
        raise NotImplementedError


@final
class BlockedPublishers:
    """Those of one channel. `free_places` counts what the channel could admit now. Wakes nothing under the lock."""

    def __init__(self, free_places: Callable[[], int]) -> None:
        self.count: i64 = 0
        self._free_places = free_places
        # Ordered, with the first one and any removal at constant cost: a plain dict walks over what was removed.
        self._waiting: OrderedDict[BlockedPublisher, None] = OrderedDict()
        self._granted: OrderedDict[BlockedPublisher, None] = OrderedDict()
        self._stalled: OrderedDict[BlockedPublisher, None] = OrderedDict()
        self._reserved: i64 = 0  # Messages that the granted ones wait with.
        self._prompt: i64 = 0  # How many of the granted ones are prompt.
        self._missed = False  # A place may have come free for a publisher that was granted one already.
        self._last: i64 = 0

    def add(self, publisher: BlockedPublisher) -> None:
        with LOCK:
            self._last += 1
            publisher.number = self._last
            self._enter(publisher, _WAITING)
            self.count += 1

    def remove(self, publisher: BlockedPublisher) -> bool:
        """False if it was removed before."""
        with LOCK:
            if publisher.state == _GONE:
                return False
            self._enter(publisher, _GONE)
            self.count -= 1
            return True

    def has_place(self, publisher: BlockedPublisher) -> bool:
        """Whether it may try now."""
        return publisher.state == _GRANTED

    def can_run(self) -> bool:
        """Whether a publisher waits here that will use the next place."""
        with LOCK:
            # A copy: asking one may let a finalizer run, which removes another.
            waiting = [*self._first_two(), *self._stalled]
        if any([publisher.can_run() for publisher in waiting]):
            return True
        with LOCK:
            waiting = [*self._granted, *self._waiting]
        return any([publisher.can_run() for publisher in waiting])

    def _first_two(self) -> list[BlockedPublisher]:
        """The first that was granted a place, and the first that was not: mostly one of them can run."""
        return [next(iter(group)) for group in (self._granted, self._waiting) if group]

    # Granting

    def grant(self) -> None:
        """A place may be free: grant what is there, in order. One whose event loop does not run is passed over."""
        publisher = self._take_place(None, True)
        if publisher is None:
            if not self._stall_those_that_stopped():
                return
            publisher = self._take_place(None)
        self._wake_each(publisher)

    def grant_after(self, publisher: BlockedPublisher) -> None:
        """Let the one behind this publisher try, which found no place where another may find one."""
        self._wake_each(self._take_place(publisher))

    def give_back(self, publisher: BlockedPublisher) -> None:
        """There was no place after all: it waits on, at its position."""
        with LOCK:
            # Also if it is stalled: its loop may begin to run just after the side that woke it found it stopped.
            if publisher.state != _GONE:
                self._enter(publisher, _WAITING)
            missed = self._missed
            self._missed = False
        if missed:
            self.grant()

    def resume(self, publisher: BlockedPublisher) -> None:
        """It runs, without a grant: its loop had stopped, or all were woken."""
        with LOCK:
            if publisher.state == _STALLED:
                self._enter(publisher, _WAITING)
        self.grant()

    def look_again(self) -> None:
        """Let the first one try if none was granted a place, for what no side reports: expiry, a loop that stopped."""
        self.grant()
        publisher = self._take_chance()
        while publisher is not None and not publisher.wake():
            self._stall(publisher)
            publisher = self._take_chance()

    def _take_chance(self) -> BlockedPublisher | None:
        """The first that waits, granted a try. None: one that was granted a place tries soon, or none waits."""
        with LOCK:
            first = None if self._granted else self._first_waiting(None)
            if first is not None:
                self._enter(first, _GRANTED)
            return first

    def wake_all(self) -> None:
        """Let each look whether the bus is closed, or its settings have changed. That grants no place."""
        with LOCK:
            blocked = [*self._granted, *self._waiting, *self._stalled]
        for publisher in blocked:
            publisher.wake()

    def _wake_each(self, publisher: BlockedPublisher | None) -> None:
        while publisher is not None:
            if publisher.wake():
                if self._free_places() == PLACES_UNKNOWN:
                    return  # It finds out, and lets the next one try.
            else:
                self._stall(publisher)
            publisher = self._take_place(None)

    def _take_place(self, after: BlockedPublisher | None, notes: bool = False) -> BlockedPublisher | None:
        """Grant a place to the first that waits, behind `after`. None: there is no place for it, or none waits.

        `notes`: in the same step as the look, that a granted publisher which gives its place back has to look again.
        Noted later, it could have given it back in between: then it would wait beside a free place.
        """
        with LOCK:
            first = self._first_waiting(after)
            if self._prompt or first is None:
                self._missed = self._missed or (notes and len(self._granted) > 0)
                return None
            free: i64 = self._free_places()
            # The first of all tries whenever a place is free: some of its messages may be duplicates, and need none.
            is_enough = self._reserved + first.size <= free or (self._reserved == 0 and free > 0)
            if free != PLACES_UNKNOWN and not is_enough:
                self._missed = self._missed or (notes and len(self._granted) > 0)
                return None
            self._enter(first, _GRANTED)
            return first

    def _first_waiting(self, after: BlockedPublisher | None) -> BlockedPublisher | None:
        for publisher in self._waiting:
            if after is None or publisher.number > after.number:
                return publisher
        return None

    def _stall(self, publisher: BlockedPublisher) -> None:
        with LOCK:
            if publisher.state == _GRANTED:
                self._enter(publisher, _STALLED)

    def _stall_those_that_stopped(self) -> bool:
        """Take places back from tasks whose loop has stopped since, where another publisher waits for them."""
        with LOCK:
            granted = list(self._granted) if self._waiting else []
        stopped = [publisher for publisher in granted if not publisher.can_run()]
        for publisher in stopped:
            self._stall(publisher)
        return len(stopped) > 0

    # States, under the lock

    def _enter(self, publisher: BlockedPublisher, state: i64) -> None:
        before = publisher.state
        publisher.state = state
        if before == _GRANTED:
            self._granted.pop(publisher, None)
            self._reserved -= publisher.size
            self._prompt -= 1 if publisher.is_prompt else 0
        elif before == _WAITING:
            self._waiting.pop(publisher, None)
        elif before == _STALLED:
            self._stalled.pop(publisher, None)
        if state == _GRANTED:
            self._granted[publisher] = None
            self._reserved += publisher.size
            self._prompt += 1 if publisher.is_prompt else 0
        elif state == _WAITING:
            self._place(publisher)
        elif state == _STALLED:
            self._stalled[publisher] = None

    def _place(self, publisher: BlockedPublisher) -> None:
        """At the end if it has just come, else mostly at the front: those before it were granted a place first."""
        last = next(reversed(self._waiting), None)
        first = next(iter(self._waiting), None)
        self._waiting[publisher] = None
        if first is None or last is None or publisher.number > last.number:
            return
        self._waiting.move_to_end(publisher, False)
        if publisher.number > first.number:
            for each in sorted(self._waiting, key=_number_of):
                self._waiting.move_to_end(each)


def _number_of(publisher: BlockedPublisher) -> int:
    return publisher.number
