# mypyc: compiled
"""Whether a store may grow: admission on a disk that is full, or nearly (decision 0022).

What was decided has to be written, so it is refused before that. A group must never need more than the reserve gives:
bytes that were accepted since the last commit are counted, and beyond a quarter of the reserve the file system is
asked. One group is written while the next one collects, so both fit into half of it.
"""

import logging
from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from unibus.clock import Timers
from unibus.core.lifecycle.commands import Command, Declare, Move, Send, SetRule
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFull
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.journal import Journal

log = logging.getLogger("unibus")

RETRY_NS: Final = 1_000_000_000
_CHANGE_BYTES: Final = 256
"""What a change takes beside the data of its message, about. A message to a topic makes one for each copy."""

_HINT: Final = "free space on the disk; it works again when there is space, and messages can be received meanwhile"


@final
class Space:
    """For a store with a reserve. Called under the lock of the store where nothing else is said."""

    def __init__(self, journal: Journal, state: StoreState, timers: Timers) -> None:
        self._reserve: Reserve = journal.reserve
        self._url = journal.url
        self._state = state
        self._timers = timers
        self._group: i64 = -1  # The change before the first one of the group that collects.
        self._bytes: i64 = 0  # What was accepted for it,
        self._free: i64 = 0  # and what may be, without asking.
        self._is_trying = False
        self._is_closed = False

    def admit(self, commands: Sequence[Command]) -> None:
        """StoreFull for what makes the store grow, if there is no space for it. Nothing was changed then."""
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
            return
        if free < 2 * needed:
            raise StoreFull(
                f"{self._url}: {needed:,} bytes to be stored at once, and {free:,} bytes are free; nothing was stored",
                _HINT,
            )
        self._free = free // 4  # Enough for the rest of this group, mostly.

    # Without the lock

    def entered(self) -> None:
        """A group was written from the reserve, or the store was opened without one: it is full. Called often."""
        if not self._is_trying and not self._is_closed:
            self._is_trying = True
            log.warning("%s is full: the disk has no space. Messages are delivered, and none are taken", self._url)
            self._timers.after(RETRY_NS, self._try)

    def _try(self) -> None:
        if self._is_closed:
            return
        if self._reserve.refill():
            self._is_trying = False
            log.info("%s is no longer full: messages are taken again", self._url)
        else:
            self._timers.after(RETRY_NS, self._try)

    def warning(self) -> str:
        return "the disk is full: messages are delivered, and none are taken" if self._reserve.full else ""

    def close(self) -> None:
        self._is_closed = True
