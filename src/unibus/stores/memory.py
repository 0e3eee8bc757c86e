# mypyc: compiled
"""The journal of a store in memory: it keeps a limited history, and nothing survives the process (D0).

    chunk 1     chunk 2      chunk 3, open
    1 … 870     871 … 902    903 …            ◀── append
    ▲ the next one to be evicted

History is limited by the number of changes and by their weight (`StoreState.weight`). The oldest chunk is evicted as a
whole. A chunk has the seq of its first change: a reader that is inside a chunk while it is evicted continues in its own
reference, and still gets each change with its seq. So readers need no lock.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final, final
from uuid import uuid4

from mypy_extensions import mypyc_attr

from unibus.core.lifecycle.events import is_about
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFailed
from unibus.limits import MEMORY_HISTORY_BYTES_DEFAULT
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Covered, GroupFate, SnapshotSlice

CHANGES_KEPT_MAX: Final = 100_000
"""The most changes, however small: some tens of megabytes."""

_CHUNKS: Final = 64
"""Each of the two limits is divided into this many chunks: history never has less than 62 of them, unless one group of
changes is larger than a chunk."""


@final
class Chunk:
    """Consecutive changes from `first` on."""

    def __init__(self, first: int, weight: int) -> None:
        self.first = first
        self.weight_before = weight  # The weight of all changes before it.
        self.changes: list[Change] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryJournal:
    """See the module, and Journal for the methods."""

    def __init__(
        self,
        domain: str = "local",
        changes_kept_max: int = CHANGES_KEPT_MAX,
        history_bytes: int = MEMORY_HISTORY_BYTES_DEFAULT,
    ) -> None:
        self.url = "memory://"
        self.durability = Durability.D0
        self.snapshots = False
        self.identity = uuid4().hex
        self.reserve = Reserve("", 0)
        self.held = HeldFiles()
        self.domain = domain
        self.is_quick = True
        self.last = 0
        self._changes_max = changes_kept_max
        self._weight_max = history_bytes
        self._state = StoreState(0)  # Replaced by the first `load_snapshot`.
        self._is_loaded = False
        self._open = Chunk(1, 0)
        # Never empty: `oldest_seq` and `size_bytes` read its first chunk.
        self._chunks: deque[Chunk] = deque([self._open])
        self._full_seq = changes_kept_max // _CHUNKS  # The open chunk is full at this change,
        self._full_weight = history_bytes // _CHUNKS  # or at this total weight.
        self._cursors: dict[str, int] = {}

    def load_snapshot(self, state: StoreState) -> Covered:
        if not self._is_loaded:  # Else a check loads another state.
            self._state, self._is_loaded = state, True
        return Covered()  # Nothing survives a process, so there is nothing to load.

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        # No lock: the store's lock is held by the caller, and readers use `_last` and a copy of the list of chunks.
        # Before `_last`: a reader that sees the new number finds the changes.
        self._open.changes.extend(changes)
        self.last = last = first_seq + len(changes) - 1
        # Runs for every message: two comparisons, and the rest once per chunk.
        weight: int = self._state.weight  # Not an i64: a limit may be larger than any of these.
        if weight >= self._full_weight or last >= self._full_seq:
            self._begin_chunk()

    def _begin_chunk(self) -> None:
        weight: int = self._state.weight
        self._open = Chunk(self.last + 1, weight)
        self._chunks.append(self._open)
        self._full_seq = self.last + max(1, self._changes_max // _CHUNKS)
        self._full_weight = weight + max(1, self._weight_max // _CHUNKS)
        # The new chunk counts with its full size, so that the limits also hold when it is full.
        while len(self._chunks) > 1 and (
            self._full_seq + 1 - self._chunks[0].first > self._changes_max
            or self._full_weight - self._chunks[0].weight_before > self._weight_max
        ):
            self._chunks.popleft()

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        return GroupFate.UNKNOWN

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        # A copy: `append` may evict a chunk while this generator is suspended.
        for chunk in list(self._chunks):
            skipped = max(0, seq + 1 - chunk.first)
            for index in range(skipped, len(chunk.changes)):
                yield chunk.first + index, chunk.changes[index]

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        """In order. Each is found by its seq: a reader that asks page by page must not scan the whole history."""
        wanted = sorted(set(seqs))
        found: list[tuple[int, Change]] = []
        for chunk in list(self._chunks):
            end = chunk.first + len(chunk.changes)
            here = wanted[bisect_left(wanted, chunk.first) : bisect_left(wanted, end)]
            found += [(seq, chunk.changes[seq - chunk.first]) for seq in here]
        return found

    def find(self, message_id: str) -> list[int]:
        return [seq for seq, change in self.changes_after(0) if is_about(change, message_id)]

    def read_bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        for entry in entries:
            raise StoreFailed(f"the data of {entry.entity.name!r} #{entry.sequence} is not in memory")
        return {}

    def cursors(self, moved: Mapping[str, int] | None = None) -> dict[str, int]:
        self._cursors.update(moved or {})
        return dict(self._cursors)

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        return False  # `append` evicts chunks.

    @property
    def size_bytes(self) -> int:
        return self._state.weight - self._chunks[0].weight_before

    @property
    def oldest(self) -> int:
        return self._chunks[0].first

    def close(self) -> None:
        # Frees the history now: a closed store may be referred to for long.
        self._begin_chunk()
        while len(self._chunks) > 1:
            self._chunks.popleft()
