"""What salvage reads of a store's files, whatever their kind: the snapshot, then the log in groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState


class LoggedGroup(NamedTuple):
    """Changes that were written together, or why they cannot be read (`problem`). Numbers of 0 are unknown."""

    first: int
    last: int
    changes: list[Change]
    problem: str = ""


@dataclass
class Reader:
    """A named reader of history, and how far it has come."""

    name: str
    seq: int
    missed: int = 0


class StoreFiles(Protocol):
    """`reached` is a change that the log is known to have had (log_end.py), once the snapshot is loaded."""

    url: str
    domain: str
    reached: int

    def load_snapshot(self, state: StoreState) -> tuple[int, int]:
        """Load the last snapshot into an empty book. Returns the change up to which it holds everything, and the one up
        to which it holds some. StoreDamaged if it cannot be read."""

    def groups(self, after: int) -> Iterator[LoggedGroup]:
        """The log after that change, in its order. What was being written when the process ended is left out."""

    def bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages. StoreDamaged names the first one that cannot be read."""

    def readers(self) -> list[Reader]:
        """Where readers of history are."""

    def close(self) -> None: ...
