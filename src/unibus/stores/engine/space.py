# mypyc: compiled
"""Admission on a full disk: whether a store may grow (decision 0022).

What was decided has to be written, so a call is rejected before its decision. A group must never need more space than
the reserve has: the bytes that were accepted since the last commit are counted, and beyond a quarter of the reserve the
file system is asked for its free space. One group is written while the next one collects, so both need half of the
reserve at most.
"""

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from unibus.clock import Timers
from unibus.core.lifecycle.commands import Command, Declare, Move, Send, SetRule
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFull
from unibus.safe_log import SafeLogger
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.journal import Journal

log = SafeLogger("unibus")

RETRY_NS: Final = 1_000_000_000
_CHANGE_BYTES: Final = 256
"""About what a change takes besides the data of its message. A message to a topic makes one change for each copy."""

_HINT: Final = "free space on the disk; sending works again when there is space, receiving works all the time"


@final
class Space:
    """For a store with a reserve. Methods are called under the store's lock unless they say otherwise."""

    def __init__(self, journal: Journal, state: StoreState, timers: Timers) -> None:
        self._reserve: Reserve = journal.reserve
        self._url = journal.url
        self._state = state
        self._timers = timers
        self._group: i64 = -1  # The last change before the collecting group.
        self._bytes: i64 = 0  # Bytes accepted for it,
        self._free: i64 = 0  # and how many can be, before the file system is asked.
        self._is_trying = False
        self._is_closed = False

    def admit(self, commands: Sequence[Command]) -> None:
        """Raises StoreFull if a command makes the store grow and there is no space for it. Nothing was changed then."""
        grows = False
        size: i64 = 0
        for command in commands:
            if isinstance(command, Send):
                grows = True
                size += command.size
            elif isinstance(command, (Declare, SetRule, Move)):
                grows = True
        if not grows:
            return
        if self._reserve.full:
            raise StoreFull(f"{self._url}: the disk is full; nothing was stored", _HINT)
        waiting: i64 = len(self._state.fresh)
        # `seq - waiting` is the last change that was taken for writing. A new value means that a commit has begun
        # since, so the count starts again for the new group.
        if self._state.seq - waiting != self._group:
            self._group = self._state.seq - waiting
            self._bytes = 0
            self._free = self._reserve.wanted // 4
        needed: i64 = self._bytes + size + _CHANGE_BYTES * waiting
        if needed > self._free:
            self._ask(needed)
        self._bytes += size

    def _ask(self, needed: int) -> None:
        try:
            free = self._reserve.free_bytes()
        except OSError as error:
            log.warning("the free space of %s is unknown: %s", self._url, error)
            return  # The write finds out; it can still use the reserve.
        # Twice: the group in progress may need as much again, and this process does not know how much of it is written.
        if free < 2 * needed:
            raise StoreFull(
                f"{self._url}: {needed:,} bytes to store at once, but {free:,} bytes are free; nothing was stored",
                _HINT,
            )
        self._free = free // 4  # Mostly enough for the rest of this group.

    # Without the lock

    def entered(self) -> None:
        """A group was written from the reserve, or the store was opened without one: the disk is full. Called often."""
        if not self._is_trying and not self._is_closed:
            self._is_trying = True
            log.warning("%s: the disk is full; messages are delivered, and new ones are rejected", self._url)
            self._timers.after(RETRY_NS, self._try)

    def _try(self) -> None:
        if self._is_closed:
            return
        if self._reserve.refill():
            self._is_trying = False
            log.info("%s: the disk is no longer full; messages are accepted again", self._url)
        else:
            self._timers.after(RETRY_NS, self._try)

    def warning(self) -> str:
        return "the disk is full: messages are delivered, and new ones are rejected" if self._reserve.full else ""

    def close(self) -> None:
        self._is_closed = True
