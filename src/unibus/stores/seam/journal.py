"""The protocol between an embedded store and its journal: what writes the store's changes, and reads them at recovery.

    EmbeddedStore ── decides ──▶ changes ── Committer ──▶ Journal.append(group [, slice of a snapshot])
    recovery.py   ── at the next start ──▶ Journal.load_snapshot ──▶ StoreState ◀── replay ── Journal.changes_after

The invariant of every journal: a group is atomic. After a crash it has all changes of a group or none, and all groups
before it. The committer serialises `append` and `trim` by its lock `committing`; every other method may be called from
any thread at the same time.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

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


class Covered(NamedTuple):
    """What a snapshot has: every change up to `seq`, and some of those up to `overlap`.

    `reached` is a change that the log had when it was recorded (log_end.py); 0 if none was.
    """

    seq: int = 0
    overlap: int = 0
    reached: int = 0


class GroupFate(Enum):
    """What became of a group whose append failed."""

    WRITTEN = 1  # It is in the log, as durable as it was asked for.
    ABSENT = 2  # Nothing of it is in the log, and an append that is still on its way cannot arrive any more.
    OTHER = 3  # The log has changes of another writer there.
    UNKNOWN = 4  # The journal cannot find out.


class Journal(Protocol):
    """Ten verbs, and what they work on. Recovery, events and named readers are written once above it.

    A journal that has lost its connection connects again in `look_up` and in the verbs that read. A verb that reads and
    gives up raises StoreFailed; where a decision or a group needs what it reads, that stops the store.
    """

    url: str
    domain: str
    durability: Durability  # The best level that it offers.
    snapshots: bool  # Whether it takes snapshots.
    identity: str  # Drawn when the store was created; from `load` on.
    reserve: Reserve  # Space to write with when the disk is full.
    held: HeldFiles  # Its open files.

    @property
    def oldest(self) -> int:
        """The first change that the log still has; if it has none, the one that comes next."""

    @property
    def last(self) -> int:
        """The last change of the log. During recovery it is valid when `changes_after` has ended."""

    @property
    def size_bytes(self) -> int:
        """The size of the history."""

    @property
    def is_quick(self) -> bool:
        """Whether an append without sync would return at once: no reader holds the file, and no checkpoint is due."""

    def load_snapshot(self, state: StoreState) -> Covered:
        """Load the last snapshot into an empty state. Changes nothing. Raises StoreDamaged.

        The first call belongs to recovery (recovery.py), each later one to a check of the open store.
        """

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        """Write a group; with `sync` it is on disk when this returns. A slice that does not fit on the disk is put off.

        The first call ends recovery. It has no changes: what recovery has read is synced before anything is built on
        it, and a journal that prepares its files for writing does so here, and never before.
        Raises StoreFailed when the outcome is unknown, and StoreFull when nothing of the group was written.
        """

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        """After an append of this group has raised StoreFailed: whether the log has it.

        A journal that can connect again does so here, and waits as long as it has hope; its callers wait meanwhile. So
        it is not `is_quick`: an event loop must not be the one that waits.
        After ABSENT the same group is appended again; after OTHER and UNKNOWN the store stops, and every further group
        is rejected. A group without changes (a sync, a slice of a snapshot) may be repeated, so it may be ABSENT.
        """

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        """The changes after `seq` that the log still has, each with its seq. Raises StoreDamaged.

        The caller reads it to its end or closes it, in the same thread: it may hold a lock of the journal meanwhile.
        """

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        """The changes with these seqs that the log still has. `seqs` ascend."""

    def find(self, message_id: str) -> list[int]:
        """The ascending seqs of all changes about a message that the log still has, perhaps with some of others."""

    def read_bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages of entries whose data is not in memory. All of them were written.

        `home_entity` of an entry is 0: the change `home_sequence` has the data. Else the row of a snapshot does.
        """

    def cursors(self, moved: Mapping[str, int] | None = None) -> dict[str, int]:
        """The positions of named history readers. Those in `moved` are stored first, and survive a power cut."""

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        """Prune some of the history beyond its limits, but nothing after `up_to_seq`. True if there is more."""

    def close(self) -> None:
        """Release everything. A second call does nothing."""


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
