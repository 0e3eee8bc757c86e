"""A journal in a dictionary that belongs to another thread: every write is a request, and the thread answers it."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import msgspec

from unibus.core.lifecycle.events import is_about
from unibus.core.lifecycle.state.changes import Change, Passed, Sent
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Covered, GroupFate, SnapshotSlice

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Change).decode


class Dictionary:
    """What survives a restart of the store: its identity, changes by seq, and positions of readers."""

    def __init__(self) -> None:
        self.identity = uuid4().hex
        self.changes: dict[int, bytes] = {}
        self.cursors: dict[str, int] = {}


class DictionaryJournal:
    url = "dictionary://"
    domain = "local"
    durability = Durability.D2
    snapshots = False  # Recovery replays the whole log, so nothing of it is ever pruned.
    is_quick = False  # An append waits for the other thread.
    oldest = 1

    def __init__(self, dictionary: Dictionary) -> None:
        self.reserve, self.held = Reserve("", 0), HeldFiles()  # There are no files.
        self._kept, self.identity = dictionary, dictionary.identity
        self._thread = ThreadPoolExecutor(1)

    @property
    def last(self) -> int:
        return len(self._kept.changes)

    @property
    def size_bytes(self) -> int:
        return sum([len(data) for data in list(self._kept.changes.values())])

    def load_snapshot(self, state: StoreState) -> Covered:
        return Covered()

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        group = {seq: encode(change) for seq, change in enumerate(changes, first_seq)}
        self._thread.submit(self._kept.changes.update, group).result()  # One step of the dictionary: all or nothing.

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        found = [self._kept.changes.get(seq) for seq in range(first_seq, first_seq + len(changes))]
        if found == [encode(change) for change in changes]:
            return GroupFate.WRITTEN
        return GroupFate.OTHER if any(found) else GroupFate.ABSENT

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        yield from self.changes_at(range(seq + 1, self.last + 1))

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        return [(seq, decode(self._kept.changes[seq])) for seq in seqs if seq in self._kept.changes]

    def find(self, message_id: str) -> list[int]:
        return [seq for seq, change in self.changes_after(0) if is_about(change, message_id)]

    def read_bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        return {entry: self._data_of(entry.home_sequence) for entry in entries}

    def _data_of(self, seq: int) -> bytes:
        change = decode(self._kept.changes[seq])
        assert isinstance(change, (Sent, Passed))  # Only these carry the data of a message.
        return change.data

    def cursors(self, moved: Mapping[str, int] | None = None) -> dict[str, int]:
        self._thread.submit(self._kept.cursors.update, moved or {}).result()
        return dict(self._kept.cursors)

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        return False

    def close(self) -> None:
        self._thread.shutdown()
