"""The protocol between an embedded store and its journal: what writes the store's changes, and reads them at recovery.

    EmbeddedStore ── decides ──▶ changes ── Committer ──▶ Journal.append(group [, slice of a snapshot])
                                                          Journal.load ──▶ StoreState, at the next start

The invariant of every journal: a group is atomic. After a crash it has all changes of a group or none, and all groups
before it. The committer serialises `append` and `trim` by its lock `committing`; every other method may be called from
any thread at the same time.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.changes import Applied, Change, SavedEntry, SavedSession, Settings
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import UsageError
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability


class EntityRow(NamedTuple):
    """An entity in a snapshot. `sequence` is the last one that it assigned; a time that was never recorded is 0."""

    number: int
    name: str
    kind: int
    settings: Settings
    sequence: int
    created_ns: int = 0
    updated_ns: int = 0


@dataclass
class SnapshotSlice:
    """A slice of a snapshot, written atomically with a group of changes. The last one says what the snapshot covers."""

    entries: list[tuple[int, int, SavedEntry, bytes]] = field(default_factory=list)
    gone: list[tuple[int, int]] = field(default_factory=list)
    entities: list[EntityRow] = field(default_factory=list)  # New ones only.
    last: "Summary | None" = None
    sources: list[StoredMessage] = field(default_factory=list)  # The messages of `entries`, in the same order.
    put_off: bool = False  # Set by a journal that had no space for it: it wrote the group without the slice.

    def is_empty(self) -> bool:
        return not (self.entries or self.gone or self.entities or self.last is not None)


@dataclass
class Summary:
    """What a snapshot has besides messages. It covers all changes up to `seq`, and some of those up to `overlap`."""

    seq: int
    overlap: int
    entities: list[EntityRow]
    dropped: list[tuple[int, str]]
    retired: dict[str, int]
    sessions: dict[int, list[SavedSession]]
    marks: list[tuple[int, int, str, int]]
    marks_over: list[tuple[int, int, int]]  # (entity, kind, instant): dedup keys older than the instant have expired.
    positions: dict[str, int]  # All of them: one that is missing was deleted.
    batches: list[Applied]  # The new ones, by age.
    batches_evicted_ns: int  # Those up to this age were evicted.


class Journal(Protocol):
    url: str
    durability: Durability  # The best level that it offers.
    snapshots: bool  # Whether it takes snapshots.
    identity: str  # Drawn when the store was created; from `load` on.
    reserve: Reserve  # Space to write with when the disk is full.
    held: HeldFiles  # Its open files.

    def load(self, state: StoreState) -> int:
        """Recovery: load the snapshot into an empty state and replay the log after it. Raises StoreDamaged.

        Returns the seq that the last snapshot covers.
        """

    def reload(self, state: StoreState) -> bool:
        """Recover into another empty state without changing anything. For checks.

        False if this journal does not keep enough history for that.
        """

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        """Write a group; with `sync` it is on disk when this returns. A slice that does not fit on the disk is put off.

        Raises StoreFailed when the outcome is unknown, and StoreFull when nothing of the group was written. After
        either the journal rejects every further group.
        """

    def is_quick(self) -> bool:
        """Whether an append without sync would return at once: no reader holds the file, and no checkpoint is due."""

    def bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages of entries whose data is not in memory. All of them were written."""

    def events_after(
        self, seq: int, limit: int, names: dict[int, str], kinds: Collection[str] = ()
    ) -> tuple[list[Event], int]:
        """Events after `seq`, only of `kinds` if any are given, and the last seq of the history."""

    def events_of(self, message_id: str, names: dict[int, str]) -> list[Event]:
        """All events of one message that the history still has, in order."""

    def changes_after(self, seq: int) -> Iterable[tuple[int, Change]]:
        """The changes after `seq` that the history still has, each with its seq."""

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        """The changes with these seqs that the history still has, in order."""

    def cursors(self) -> dict[str, int]: ...

    def move_cursor(self, name: str, seq: int) -> None: ...

    def missed(self, name: str) -> int: ...

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        """Prune some of the history beyond its limits, but nothing after `up_to_seq`. True if there is more."""

    def size_bytes(self) -> int:
        """The size of the history."""

    def oldest_seq(self) -> int: ...

    def close(self) -> None: ...


def checked_level(asked: Durability | None, journal: Journal) -> Durability:
    """The durability of a call: what it asks for, else the best of the journal. UsageError if it asks for more."""
    if asked is None:
        return journal.durability
    if asked > journal.durability:
        raise UsageError(
            f"{journal.url} cannot have durability {asked.name}: {journal.durability.name} is its highest level",
            "choose another store",
        )
    return asked
