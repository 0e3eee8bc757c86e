"""An index of one entity's history: which change of the log has the data of which message.

    log ── EntityHistory ──▶ sequence ──▶ seq of the change with the data ── page ──▶ (sequence, data)

Building it takes one scan of the log. A reader that asks page by page keeps the index: each call reads only the changes
that are new, so all pages together take one scan. Messages that are pruned meanwhile do not appear in later pages.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from unibus.core.lifecycle.backfill import EntityHistory
from unibus.core.lifecycle.state.changes import Change, Passed, Sent

PAGE: Final = 5_000
PAGE_BYTES: Final = 16_000_000
"""The messages that a replay keeps in memory at a time."""

READ_MAX: Final = 500
"""Messages of one read; fewer where they are large."""


class ReplayLog(Protocol):
    """The log as an index reads it."""

    def some_after(self, seq: int) -> list[tuple[int, Change]]:
        """The next changes after `seq`; an empty list at the end."""

    def changes_at(self, seqs: list[int]) -> list[tuple[int, Change]]:
        """The changes with these seqs that still exist; `seqs` ascend."""

    def oldest_seq(self) -> int: ...


@dataclass(frozen=True)
class ReplayPage:
    """`last` is the last sequence that was read, also if it is pruned by now; 0 if there was none."""

    messages: list[tuple[int, bytes]]
    last: int
    is_end: bool


class ReplayIndex:
    """Thread-safe. `number` identifies the entity: one that was deleted and created again has another number."""

    def __init__(self, log: ReplayLog, number: int, after_sequence: int, since_ns: int) -> None:
        self.number: Final = number
        self._log = log
        self._history = EntityHistory(number, after_sequence, since_ns)
        self._lock = threading.Lock()
        # All below is protected by `_lock`.
        self._seq = 0  # The last change that was read.
        self._oldest = 0
        self._sequences: list[int] = []

    def places(self) -> dict[int, int]:
        """From sequence to the seq of the change that has the data."""
        with self._lock:
            self._catch_up()
            return self._history.found

    def count(self, after_sequence: int) -> int:
        with self._lock:
            self._catch_up()
            return len(self._sequences) - bisect_right(self._sequences, after_sequence)

    def page(self, after_sequence: int, count: int, bytes_max: int) -> ReplayPage:
        """Up to `count` messages after a sequence. The message that reaches `bytes_max` is the last."""
        with self._lock:
            self._catch_up()
            start = bisect_right(self._sequences, after_sequence)
            wanted = self._sequences[start : start + count]
            is_last = start + len(wanted) >= len(self._sequences)
            places = [(sequence, self._history.found[sequence]) for sequence in wanted]
        # Read without the lock: other pages can be looked up meanwhile, and a pruned change is only left out.
        messages: list[tuple[int, bytes]] = []
        size, at = 0, 0
        while at < len(places) and size < bytes_max:
            for sequence, data in self._read(places[at : at + _step(size, len(messages), bytes_max)]):
                at += 1
                if data is not None:  # None: pruned since it was indexed.
                    messages.append((sequence, data))
                    size += len(data)
                if size >= bytes_max:
                    break
        return ReplayPage(messages, places[at - 1][0] if at else 0, is_last and at == len(places))

    def messages(self, after_sequence: int = 0) -> Iterator[tuple[int, bytes]]:
        """All messages after a sequence, encoded, in the order of their sequences; read page by page."""
        is_end = False
        while not is_end:
            page = self.page(after_sequence, PAGE, PAGE_BYTES)
            yield from page.messages
            after_sequence, is_end = page.last, page.is_end or not page.last

    def _read(self, places: list[tuple[int, int]]) -> list[tuple[int, bytes | None]]:
        found = dict(self._log.changes_at(sorted({seq for _, seq in places})))
        return [(sequence, _data(found.get(seq))) for sequence, seq in places]

    def _catch_up(self) -> None:
        # Called under `_lock`. `some_after` syncs and reads the journal, so a second page waits for the first scan
        # instead of scanning beside it.
        is_changed = False
        while page := self._log.some_after(self._seq):
            for _, change in page:
                is_changed = is_changed or change.entity == self.number
            for seq, change in page:
                self._history.add_change(seq, change)
            self._seq = page[-1][0]
        oldest = self._log.oldest_seq()
        # Sorting is the expensive step, so it is left out while the entity has nothing new and nothing was pruned.
        if is_changed or oldest != self._oldest:
            self._oldest = oldest
            found = self._history.found
            for sequence in [each for each, seq in found.items() if seq < oldest]:
                del found[sequence]
            self._sequences = sorted(found)


def _data(change: Change | None) -> bytes | None:
    return change.data if isinstance(change, (Sent, Passed)) else None


def _step(size: int, count: int, bytes_max: int) -> int:
    """How many to read next: first one, then as many as fit if they have the average size of those before."""
    if not count:
        return 1
    return max(1, min(READ_MAX, (bytes_max - size) // max(1, size // count)))
