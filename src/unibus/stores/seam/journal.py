"""The seam inside of an embedded store: where its changes are written. Five verbs and a snapshot.

A journal is told everything in groups. A group is written as one: all of it is there after a crash, or nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.changes import Change, SavedEntry, SavedSession, Settings
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import UsageError
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability


class EntityRow(NamedTuple):
    """An entity as a snapshot has it. `sequence` is the last one given; moments that nobody wrote down are 0."""

    number: int
    name: str
    kind: int
    settings: Settings
    sequence: int
    created_ns: int = 0
    updated_ns: int = 0


@dataclass
class SnapshotSlice:
    """A piece of a snapshot, written together with a group of changes. The last one says what the snapshot covers."""

    entries: list[tuple[int, int, SavedEntry, bytes]] = field(default_factory=list)
    gone: list[tuple[int, int]] = field(default_factory=list)
    entities: list[EntityRow] = field(default_factory=list)  # Those that are new.
    last: "Summary | None" = None
    sources: list[StoredMessage] = field(default_factory=list)  # Whose rows `entries` are, in their order.
    put_off: bool = False  # Set by a journal that had no space for it: the group was written without it.

    def is_empty(self) -> bool:
        return not (self.entries or self.gone or self.entities or self.last is not None)


@dataclass
class Summary:
    """What a snapshot holds besides messages: all changes up to `seq`, and some of those up to `overlap`."""

    seq: int
    overlap: int
    entities: list[EntityRow]
    dropped: list[tuple[int, str]]
    retired: dict[str, int]
    sessions: dict[int, list[SavedSession]]
    marks: list[tuple[int, int, str, int]]
    marks_over: list[tuple[int, int, int]]  # (entity, kind, instant): marks from before are over.
    positions: dict[str, int]


class Journal(Protocol):
    url: str
    durability: Durability  # The best it can do.
    snapshots: bool  # Whether it wants snapshots at all.
    reserve: Reserve  # Space for the day when the disk is full.
    held: HeldFiles  # The files that it has open.

    def load(self, state: StoreState) -> int:
        """Play everything that was written into an empty book. StoreDamaged names what is wrong.

        Gives the seq that the last snapshot covers.
        """

    def reload(self, state: StoreState) -> bool:
        """Play everything that was written into another empty book, and change nothing. For checks.

        False: this journal does not keep enough for that.
        """

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        """Write a group; with `sync` it is on disk after that. A part that finds no space is put off.

        StoreFailed: unknown, and no more is taken. StoreFull: nothing of the group was written, and no more is taken.
        """

    def is_quick(self) -> bool:
        """Whether an append without sync would return at once: nobody is at the file, nothing has to be moved."""

    def bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The data of messages that are not in memory, all of which were written."""

    def events_after(
        self, seq: int, limit: int, names: dict[int, str], kinds: Collection[str] = ()
    ) -> tuple[list[Event], int]:
        """Rows of history, only of some kinds where they are named, and the last seq there is."""

    def events_of(self, message_id: str, names: dict[int, str]) -> list[Event]:
        """Everything that history has of one message, in order."""

    def changes_after(self, seq: int) -> Iterable[tuple[int, Change]]:
        """The changes themselves, with their seq, as far as they are still there."""

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        """Those changes, in order, as far as they are still there."""

    def cursors(self) -> dict[str, int]: ...

    def move_cursor(self, name: str, seq: int) -> None: ...

    def missed(self, name: str) -> int: ...

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        """Forget some history that is too old or too much, but nothing after `up_to_seq`. True if there is more."""

    def size_bytes(self) -> int:
        """Of the history."""

    def oldest_seq(self) -> int: ...

    def close(self) -> None: ...


def checked_level(asked: Durability | None, journal: Journal) -> Durability:
    """What an answer means: as was asked for, or as much as the journal can give."""
    if asked is None:
        return journal.durability
    if asked > journal.durability:
        raise UsageError(
            f"{journal.url} gives {journal.durability.name} at best, not {asked.name}", "choose another store"
        )
    return asked
