"""When failed messages are delivered again: what closing asks, to tell a retry that is near from one that is not.

Written when a handler has failed, and when the retry is delivered; a message that is handled at once costs nothing
here. No lock: each method is one step of a dict.
"""

from collections.abc import Callable
from itertools import count

from unibus.bus.pubsub.group import Group


class PendingRetries:
    """The retries of one bus that wait for their time."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._numbers = count(1)
        self._deadlines: dict[int, tuple[Group, int]] = {}
        self.last = 0  # The number of the last one that was added: a change is progress.

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, group: Group, delay_ns: int) -> int:
        """A message of the group waits for so long. Gives the number to discard it by."""
        number = next(self._numbers)
        self._deadlines[number] = (group, self._monotonic_ns() + delay_ns)
        self.last = number
        return number

    def discard(self, number: int) -> None:
        self._deadlines.pop(number, None)

    def of(self, group: Group, later_than_ns: int | None = None) -> int:
        """How many wait in this group; those that are not delivered within that time where one is given."""
        after_ns = None if later_than_ns is None else self._monotonic_ns() + later_than_ns
        deadlines = [deadline_ns for owner, deadline_ns in list(self._deadlines.values()) if owner is group]
        return len(deadlines) if after_ns is None else sum(deadline_ns > after_ns for deadline_ns in deadlines)
