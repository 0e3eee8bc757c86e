"""The protocol between `stores/inspection` and the files of one kind of store.

    files ── StoreFiles ──▶ salvage ──▶ SalvagedStore ── the row's `write` ──▶ a new store

A store implements it in its own folder (sqlite/inspection.py, jsonfile/inspection.py), and its row in schemes.py names
the two sides. Reading is strict about each record and lenient about the whole: a group that cannot be read is returned
with its problem, and the groups after it are read. Neither side changes the files that it reads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.journal import SnapshotSlice, Summary


class LoggedGroup(NamedTuple):
    """A group of changes, or why it cannot be read (`problem`). A number of 0 is unknown."""

    first: int
    last: int
    changes: list[Change]
    problem: str = ""


@dataclass
class Reader:
    """A named history reader and its position."""

    name: str
    seq: int


@dataclass(frozen=True)
class SalvagedStore:
    """What a new store is written from: the part of the log without gaps, and a snapshot of everything.

    `groups` and `slices` can be iterated once: the bodies of a large store do not fit into memory together.
    """

    domain: str
    history_from: int  # The first change of the log: what came before a gap is only in the snapshot.
    names: dict[int, str]  # Of all entities that the log can mention, by number.
    groups: Iterable[tuple[int, list[Change]]]  # Each with the number of its first change.
    slices: Iterable[SnapshotSlice]
    summary: Summary
    readers: Sequence[Reader]


class StoreFiles(Protocol):
    """`reached` is a change that the log had at least (log_end.py); valid once the snapshot is loaded."""

    url: str
    domain: str
    reached: int

    def load_snapshot(self, state: StoreState) -> tuple[int, int]:
        """Load the last snapshot into an empty state. Returns the change up to which it has everything, and the one up
        to which it has some. Raises StoreDamaged if it cannot be read."""

    def groups(self, after: int) -> Iterator[LoggedGroup]:
        """The groups of the log after a change, in order, without a torn group at the end."""

    def bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages. StoreDamaged names the first one that cannot be read."""

    def readers(self) -> list[Reader]:
        """The named history readers."""

    def close(self) -> None: ...
