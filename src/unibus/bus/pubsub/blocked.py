# mypyc: compiled
"""Blocked publishers of one channel in memory, served first come, first served.

A *place* is space for one message in the channel's bounded queues.

    waiting ──grant: a place is free for it──▶ granted and woken ──▶ it tries
       ▲                                          │  │ admitted, cancelled or timed out: it is removed, and its place,
       │                                          │  │ if still free, is granted to the next publisher
       ├──────no place after all: wait_again──────┘  └ its event loop does not run
       └──────────its loop runs again─────────── stalled

The consumer that frees a place grants it, in the order of registration. A granted place is reserved: a later publisher
gets only what is free beyond the granted places. So a task whose event loop is busy holds its own place and no other,
and one free place wakes one publisher (no thundering herd).

Order: threads publish in the order of registration. A woken thread runs at once, so no further place is granted until
it is removed. Tasks of one loop keep the order too, because a loop resumes them in the order of their wake-ups. Between
a task and later publishers only the order of the grants holds.

What no side reports is found by a timer: places that expired messages hold, and a loop that stopped after its task was
granted the last place. It calls `look_again` every second while a publisher is blocked.

Reservations bind blocked publishers only. A handler never blocks (`must_wait` in exchange.py) and may take a granted
place; the publisher then waits again at its old position. A grant that arrives in between is remembered (`_missed`), so
that the publisher does not wait beside a free place.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.atomic import LOCK

PLACES_UNKNOWN: Final = -1
"""Only a try can find out whether a place is free: filters choose the groups, or the groups have just changed."""

# The states of a publisher: see the drawing above.
_WAITING: Final = 0
_GRANTED: Final = 1
_STALLED: Final = 2
_GONE: Final = 3


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockedPublisher:
    """A thread or a task that wants to publish `size` messages (backpressure.py).

    `is_prompt`: it runs as soon as it is woken, which is true for threads and not for tasks.
    """

    def __init__(self, size: int = 1, is_prompt: bool = True) -> None:
        self.size: i64 = size
        self.is_prompt = is_prompt
        self.number: i64 = 0  # Its position in the order.
        self.state: i64 = _GONE

    def wake(self) -> bool:
        """Let it try again. False if it may never do so: its place is then granted to the next publisher."""
        raise NotImplementedError

    def can_run(self) -> bool:
        """False for a task whose event loop does not run: no other publisher waits for it."""
        raise NotImplementedError


@final
class BlockedPublishers:
    """The blocked publishers of one channel. `free_places` returns how many messages the channel could admit now.

    Each method releases LOCK before it wakes a publisher: `wake` may call into an event loop, which takes locks of its
    own.
    """

    def __init__(self, free_places: Callable[[], int]) -> None:
        # All fields change under LOCK. `count` is read without it, as a hint: the fast paths of a channel check whether
        # any publisher is blocked.
        self.count: i64 = 0
        self._free_places = free_places
        # OrderedDict: the first item and any removal at constant cost. A plain dict walks over its removed items.
        self._waiting: OrderedDict[BlockedPublisher, None] = OrderedDict()
        self._granted: OrderedDict[BlockedPublisher, None] = OrderedDict()
        self._stalled: OrderedDict[BlockedPublisher, None] = OrderedDict()
        self._reserved: i64 = 0  # Messages of all granted publishers.
        self._prompt: i64 = 0  # How many granted publishers are prompt.
        self._missed = False  # A place may have become free for a publisher that already had a grant.
        self._last: i64 = 0

    def add(self, publisher: BlockedPublisher) -> None:
        with LOCK:
            self._last += 1
            publisher.number = self._last
            self._enter(publisher, _WAITING)
            self.count += 1

    def remove(self, publisher: BlockedPublisher) -> bool:
        """Forget the publisher. False if it was removed before."""
        with LOCK:
            if publisher.state == _GONE:
                return False
            self._enter(publisher, _GONE)
            self.count -= 1
            return True

    def has_place(self, publisher: BlockedPublisher) -> bool:
        """Whether the publisher has a granted place and may try now."""
        return publisher.state == _GRANTED

    def can_run(self) -> bool:
        """Whether a publisher is blocked here that will use the next free place."""
        with LOCK:
            # A copy: `can_run` may let a finalizer run, which removes another publisher.
            waiting = [*self._first_two(), *self._stalled]
        if any([publisher.can_run() for publisher in waiting]):
            return True
        with LOCK:
            waiting = [*self._granted, *self._waiting]
        return any([publisher.can_run() for publisher in waiting])

    def _first_two(self) -> list[BlockedPublisher]:
        """The first granted publisher and the first waiting one: usually one of them can run, and no other is asked."""
        return [next(iter(group)) for group in (self._granted, self._waiting) if group]

    # Granting

    def grant(self) -> None:
        """A place may be free: grant the free places, in order. Skips publishers whose event loop does not run."""
        publisher = self._take_place(None, True)
        if publisher is None:
            if not self._stall_stopped():
                return
            publisher = self._take_place(None)
        self._wake_each(publisher)

    def grant_after(self, publisher: BlockedPublisher) -> None:
        """Let the next publisher after this one try: this one found no place, but the next may (other groups)."""
        self._wake_each(self._take_place(publisher))

    def wait_again(self, publisher: BlockedPublisher) -> None:
        """The try found no place: the publisher waits again, at its old position."""
        with LOCK:
            # Also if it is stalled: its loop may begin to run just after the side that woke it found it stopped.
            if publisher.state != _GONE:
                self._enter(publisher, _WAITING)
            # Read and reset in the same step in which the publisher waits again: from here on a new grant finds it
            # waiting.
            missed = self._missed
            self._missed = False
        if missed:
            self.grant()

    def resume(self, publisher: BlockedPublisher) -> None:
        """The publisher runs without a grant: its loop had stopped and runs again, or `wake_all` woke it."""
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
        """Let every publisher check whether the bus is closed or its settings have changed. Grants no place."""
        with LOCK:
            blocked = [*self._granted, *self._waiting, *self._stalled]
        # Woken without a grant, each calls `resume` (in backpressure._next_try), sees the new state and waits again or
        # raises.
        for publisher in blocked:
            publisher.wake()

    def _wake_each(self, publisher: BlockedPublisher | None) -> None:
        while publisher is not None:
            if publisher.wake():
                if self._free_places() == PLACES_UNKNOWN:
                    return  # Its try finds out, and `grant_after` lets the next publisher try.
            else:
                self._stall(publisher)
            publisher = self._take_place(None)

    def _take_place(self, after: BlockedPublisher | None, remember: bool = False) -> BlockedPublisher | None:
        """Grant a place to the first waiting publisher after `after`. None: no place is free for it, or none waits.

        `remember`: if nothing can be granted, set `_missed` in the same locked step, so that a granted publisher which
        waits again repeats the grant. Set after the lock is released, the flag could come too late: the publisher
        would already wait again, beside a free place.
        """
        with LOCK:
            first = self._first_waiting(after)
            # A woken thread publishes at once. Another grant before it is done could let a later publisher overtake it.
            if self._prompt or first is None:
                self._missed = self._missed or (remember and len(self._granted) > 0)
                return None
            free: i64 = self._free_places()
            # The first publisher tries as soon as one place is free: some messages of its batch may be duplicates,
            # which need no place. Without that a batch larger than the free places could wait for ever.
            is_enough = self._reserved + first.size <= free or (self._reserved == 0 and free > 0)
            if free != PLACES_UNKNOWN and not is_enough:
                self._missed = self._missed or (remember and len(self._granted) > 0)
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

    def _stall_stopped(self) -> bool:
        """Revoke grants of tasks whose loop has stopped meanwhile, if another publisher waits. True if any."""
        # `can_run` asks the event loop, so it is called without LOCK. `_stall` checks the state again: a publisher that
        # was admitted or removed meanwhile is left alone.
        with LOCK:
            granted = list(self._granted) if self._waiting else []
        stopped = [publisher for publisher in granted if not publisher.can_run()]
        for publisher in stopped:
            self._stall(publisher)
        return len(stopped) > 0

    # State changes; the caller holds LOCK.

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
        """Insert by number. A new publisher goes to the end; one that waits again mostly to the front, as its
        predecessors were granted before it. Only the rare case in between has to sort."""
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
