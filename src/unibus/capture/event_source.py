"""The interface of a source of history, for capture directories and for stores.

A source never changes what it reads, and can be opened in any process: a Spark driver asks for pieces, an executor
opens the same source by its `where` and reads one piece.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class EventPiece:
    """A range of history for one reader. `path` is a Parquet file, which may hold more than the range."""

    first: int
    last: int
    rows: int
    bytes: int
    path: str | None = None


class EventSource(Protocol):
    domain: str
    where: str
    named: str
    """The name that the caller gave; the parent folder, if the source was found by listing a folder."""

    def first(self) -> int: ...

    def last(self) -> int:
        """Events first..last can be read: (0, 0) if no event ever happened, (n + 1, n) if all were removed. Each call
        reads the source again."""

    def tail(self, seq: int) -> int:
        """A fingerprint of that event, which distinguishes two histories. 0 if the event cannot be read."""

    def settle(self) -> None:
        """Sync the source, so that a power failure cannot undo what was read so far."""

    def pieces(self, after: int, up_to: int) -> list[EventPiece]:
        """Pieces in order that cover every event in (after, up_to], except gaps."""

    def gaps(self, after: int, up_to: int) -> list[tuple[int, int]]:
        """Ranges that were pruned before they were captured."""

    def read(self, piece: EventPiece, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a piece. CaptureDamaged if they are not what was written."""

    def read_bodies(self, piece: EventPiece) -> Iterator[pa.RecordBatch]: ...

    def seq_at(self, ts_us: int) -> int:
        """The last seq before that instant; if there is none, the seq before the first event that can be read."""

    def close(self) -> None: ...
