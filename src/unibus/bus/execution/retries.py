"""The deadlines of pending retries: close() waits for a retry that is due soon, and not for one that is hours away.

Written when a handler has failed and when the retry is due; a message that is handled at once costs nothing here. No
lock: each method is one atomic operation on a dict.
"""

from collections.abc import Callable
from itertools import count

from unibus.bus.pubsub.group import Group


class PendingRetries:
    """The pending retries of one bus."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._numbers = count(1)
        self._deadlines: dict[int, tuple[Group, int]] = {}
        self.last = 0  # The number of the last added retry: a change is progress.

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, group: Group, delay_ns: int) -> int:
        """A message of the group waits `delay_ns` for its retry. Returns the number to discard it by."""
        number = next(self._numbers)
        self._deadlines[number] = (group, self._monotonic_ns() + delay_ns)
        self.last = number
        return number

    def discard(self, number: int) -> None:
        self._deadlines.pop(number, None)

    def of(self, group: Group, later_than_ns: int | None = None) -> int:
        """How many retries of this group are pending; with `later_than_ns` only those that are due after that time."""
        after_ns = None if later_than_ns is None else self._monotonic_ns() + later_than_ns
        # A copy first: other threads add and discard while this iterates.
        deadlines = [deadline_ns for owner, deadline_ns in list(self._deadlines.values()) if owner is group]
        return len(deadlines) if after_ns is None else sum(deadline_ns > after_ns for deadline_ns in deadlines)
