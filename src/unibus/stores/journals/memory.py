"""The journal of a bus that lives in memory: it keeps some history to look at, and nothing else."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from unibus.core.life.book import Book
from unibus.core.life.changes import Change
from unibus.core.life.entity import Entry
from unibus.core.life.events import Event, event_of, is_about, kind_of
from unibus.core.life.playing import replay
from unibus.errors import StoreFailed
from unibus.stores.durability import Durability
from unibus.stores.held_files import HeldFiles
from unibus.stores.journal import Slice
from unibus.stores.reserve import Reserve

CHANGES_KEPT_MAX: Final = 100_000
"""How much history a process keeps when nobody asked for a file: some tens of megabytes."""


class MemoryJournal:
    def __init__(self, domain: str = "local", changes_kept_max: int = CHANGES_KEPT_MAX) -> None:
        self.url = "memory://"
        self.durability = Durability.D0
        self.snapshots = False
        self.reserve = Reserve("", 0)
        self.held = HeldFiles()
        self._domain = domain
        self._changes: deque[Change] = deque(maxlen=changes_kept_max)
        self._last = 0
        self._cursors: dict[str, int] = {}

    def load(self, book: Book) -> int:
        return 0  # There is nothing from before.

    def reload(self, book: Book) -> bool:
        if len(self._changes) != self._last:
            return False  # The oldest are forgotten.
        for change in self._changes:
            replay(book, change)
        return True

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: Slice | None = None) -> None:
        self._changes.extend(changes)
        self._last = first_seq + len(changes) - 1

    def is_quick(self) -> bool:
        return True

    def bodies(self, entries: Iterable[Entry]) -> dict[Entry, bytes]:
        for entry in entries:
            raise StoreFailed(f"the data of {entry.entity.name!r} #{entry.sequence} is gone from memory")
        return {}

    def events_after(
        self, seq: int, limit: int, names: dict[int, str], kinds: Collection[str] = ()
    ) -> tuple[list[Event], int]:
        rows: list[Event] = []
        for number, change in self.changes_after(seq):
            if len(rows) == limit:
                break
            if not kinds or kind_of(change) in kinds:
                rows.append(event_of(number, change, self._domain, names))
        return rows, self._last

    def events_of(self, message_id: str, names: dict[int, str]) -> list[Event]:
        return [
            event_of(seq, change, self._domain, names)
            for seq, change in self.changes_after(0)
            if is_about(change, message_id)
        ]

    def changes_after(self, seq: int) -> Iterable[tuple[int, Change]]:
        kept = list(self._changes)
        first = self._last - len(kept) + 1
        skipped = max(0, seq + 1 - first)
        return [(first + index, kept[index]) for index in range(skipped, len(kept))]

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        wanted = set(seqs)
        return [(seq, change) for seq, change in self.changes_after(0) if seq in wanted]

    def cursors(self) -> dict[str, int]:
        return dict(self._cursors)

    def move_cursor(self, name: str, seq: int) -> None:
        self._cursors[name] = seq

    def missed(self, name: str) -> int:
        read = self._cursors.get(name)
        return 0 if read is None else max(0, self.oldest_seq() - 1 - read)

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        return False  # The deque forgets by itself.

    def size_bytes(self) -> int:
        return 0

    def oldest_seq(self) -> int:
        return self._last - len(self._changes) + 1

    def close(self) -> None:
        self._changes.clear()
