"""Where history has what an entity stored: an index by sequence that is read once and goes on with the log.

Finding these places takes a walk over the log. A reader that goes page by page keeps the index: each look reads only
what was written since, so that all pages together take one walk. What was pruned meanwhile is in no later page.

    log   ── Past ──▶  sequence ──▶ seq of the change with the data   ── page ──▶  (sequence, data)
"""

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Protocol

from unibus.core.lifecycle.backfill import EntityHistory
from unibus.core.lifecycle.state.changes import Change, Passed, Sent

READ_MAX: Final = 500
"""Messages that are read at once; fewer where they are large."""


class ReplayLog(Protocol):
    """What an index reads."""

    def some_after(self, seq: int) -> list[tuple[int, Change]]:
        """Some changes after `seq`; none at the end."""

    def changes_at(self, seqs: list[int]) -> list[tuple[int, Change]]:
        """Those changes that are still there; `seqs` ascend."""

    def oldest_seq(self) -> int: ...


@dataclass(frozen=True)
class ReplayPage:
    """`last` is the sequence up to which it goes, also where the last ones are forgotten; 0 where nothing is left."""

    messages: list[tuple[int, bytes]]
    last: int
    is_end: bool


class ReplayIndex:
    """For any thread. `number` is that of the entity: one that was created again has another."""

    def __init__(self, log: ReplayLog, number: int, after_sequence: int, since_ns: int) -> None:
        self.number: Final = number
        self._log = log
        self._past = EntityHistory(number, after_sequence, since_ns)
        self._lock = threading.Lock()
        self._seq = 0  # Up to where the log was read.
        self._oldest = 0
        self._sequences: list[int] = []

    def places(self) -> dict[int, int]:
        """The seq of the data by sequence."""
        with self._lock:
            self._catch_up()
            return self._past.found

    def count(self, after_sequence: int) -> int:
        with self._lock:
            self._catch_up()
            return len(self._sequences) - bisect_right(self._sequences, after_sequence)

    def page(self, after_sequence: int, count: int, bytes_max: int) -> ReplayPage:
        """Up to `count` messages behind a sequence. The one that reaches `bytes_max` is the last."""
        with self._lock:
            self._catch_up()
            start = bisect_right(self._sequences, after_sequence)
            wanted = self._sequences[start : start + count]
            is_last = start + len(wanted) >= len(self._sequences)
            places = [(sequence, self._past.found[sequence]) for sequence in wanted]
        messages: list[tuple[int, bytes]] = []
        size, at = 0, 0
        while at < len(places) and size < bytes_max:
            for sequence, data in self._read(places[at : at + _step(size, len(messages), bytes_max)]):
                at += 1
                if data is not None:  # None: history has forgotten it meanwhile.
                    messages.append((sequence, data))
                    size += len(data)
                if size >= bytes_max:
                    break
        return ReplayPage(messages, places[at - 1][0] if at else 0, is_last and at == len(places))

    def _read(self, places: list[tuple[int, int]]) -> list[tuple[int, bytes | None]]:
        found = dict(self._log.changes_at(sorted({seq for _, seq in places})))
        return [(sequence, _data(found.get(seq))) for sequence, seq in places]

    def _catch_up(self) -> None:
        is_changed = False
        while page := self._log.some_after(self._seq):
            for _, change in page:
                is_changed = is_changed or change.entity == self.number
            for seq, change in page:
                self._past.see(seq, change)
            self._seq = page[-1][0]
        oldest = self._log.oldest_seq()
        if is_changed or oldest != self._oldest:
            self._oldest = oldest
            found = self._past.found
            for sequence in [each for each, seq in found.items() if seq < oldest]:
                del found[sequence]
            self._sequences = sorted(found)


def _data(change: Change | None) -> bytes | None:
    return change.data if isinstance(change, (Sent, Passed)) else None


def _step(size: int, count: int, bytes_max: int) -> int:
    """How many to read next: one first, then as many as may fit if the others are as large as those before."""
    if not count:
        return 1
    return max(1, min(READ_MAX, (bytes_max - size) // max(1, size // count)))
