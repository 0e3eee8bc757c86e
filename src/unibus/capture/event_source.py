"""What a source of history is: one interface for capture directories and for stores.

A source never changes what it reads, and can be opened anywhere: a driver asks for pieces, an executor opens the same
source again by its `where` and reads one of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class EventPiece:
    """A range of history that one reader takes. `path` is a Parquet file that may hold more than the range."""

    first: int
    last: int
    rows: int
    bytes: int
    path: str | None = None


class EventSource(Protocol):
    domain: str
    where: str
    named: str
    """The name that the caller gave: the folder it was found in, where it was found in one."""

    def first(self) -> int: ...

    def last(self) -> int:
        """What can be read is first..last: (0, 0) where nothing ever happened, (n + 1, n) where all of it is gone. Each
        call reads it again."""

    def tail(self, seq: int) -> int:
        """A fingerprint of that event, by which two histories can be told apart. 0 where it cannot be looked at."""

    def settle(self) -> None:
        """See to it that a loss of power cannot undo what was read so far."""

    def pieces(self, after: int, up_to: int) -> list[EventPiece]:
        """In order; they cover (after, up_to] as far as there is something, but for gaps."""

    def gaps(self, after: int, up_to: int) -> list[tuple[int, int]]:
        """What was forgotten before anybody read it."""

    def read(self, piece: EventPiece, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a piece. CaptureDamaged for one that is not what was written."""

    def read_bodies(self, piece: EventPiece) -> Iterator[pa.RecordBatch]: ...

    def seq_at(self, ts_us: int) -> int:
        """The last seq before that instant, or before the first event that can be read."""

    def close(self) -> None: ...
