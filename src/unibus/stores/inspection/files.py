"""The files of a store as salvage reads them, for every kind of store: the snapshot, then the log in groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState


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
    missed: int = 0


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
