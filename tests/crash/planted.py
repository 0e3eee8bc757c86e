"""Journals with a bug each. A campaign that does not find it proves nothing, so each of them must be found."""

from collections.abc import Sequence

from unibus.core.lifecycle.state.changes import Change, Copied, Sent
from unibus.stores.seam.journal import Journal, SnapshotSlice


class Planted:
    """Everything goes to the real journal, but for what a bug changes."""

    snapshots = True

    def __init__(self, journal: Journal) -> None:
        self.url = journal.url
        self.durability = journal.durability
        self.journal = journal

    def __getattr__(self, name: str) -> object:
        return getattr(self.journal, name)

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.journal.append(first_seq, changes, sync, part)


class AnswersFirst(Planted):
    """Says that a group is written, and writes it with the next one."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self._late: tuple[int, Sequence[Change], bool, SnapshotSlice | None] | None = None

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self._write_late()
        self._late = (first_seq, changes, sync, part)

    def _write_late(self) -> None:
        if self._late is not None:
            late, self._late = self._late, None
            self.journal.append(*late)

    def __getattr__(self, name: str) -> object:
        if name in ("read_bodies", "changes_after", "changes_at", "find", "trim", "close"):
            self._write_late()
        return super().__getattr__(name)


class NeverSyncs(Planted):
    """Hands everything to the kernel and calls it durable."""

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.journal.append(first_seq, changes, False, part)


class TearsGroups(Planted):
    """Writes a group in two transactions. Not between a message and its copies: that the store finds itself."""

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        middle = len(changes) // 2
        while middle < len(changes) and isinstance(changes[middle], Copied):
            middle += 1
        middle %= max(1, len(changes))
        if middle:
            self.journal.append(first_seq, changes[:middle], sync)
        self.journal.append(first_seq + middle, changes[middle:], sync, part)


class KeepsTheGone(Planted):
    """Leaves the rows of completed messages in the snapshot."""

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        if part is not None:
            part.gone = []
        self.journal.append(first_seq, changes, sync, part)


class MixesBodies(Planted):
    """Gives every fifth message the data of another one."""

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        for change in changes:
            if isinstance(change, Sent) and change.sequence % 5 == 0:
                change.data = b"something else"
        self.journal.append(first_seq, changes, sync, part)
