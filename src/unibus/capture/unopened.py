"""A source that could not be opened because it is damaged: a placeholder among the others until it is repaired.

A reader of several sources opens them with `open_sources(…, keep_damaged=True)`. A damaged one is then an
`UnopenedSource`: each call raises its error, and `reopened` tries again, so a repair needs no restart of the reader.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import pyarrow as pa

from unibus.capture.event_source import EventPiece, EventSource
from unibus.capture.manifest import load_about
from unibus.errors import BusError
from unibus.stores.files.local_folder import scheme_of


class UnopenedSource:
    """`domain` is "" if it cannot be read."""

    def __init__(self, place: str, error: BusError, opener: Callable[[str], EventSource]) -> None:
        self.where = self.named = place
        self.domain = _domain_of(place)
        self._error = error
        self._opener = opener
        self._opened: EventSource | None = None

    def reopened(self) -> EventSource:
        """The source, if it can be opened now; else its error. It is closed with this one."""
        if self._opened is None:
            self._opened = self._opener(self.where)
            self._opened.named = self.named
        return self._opened

    def _refuse(self) -> NoReturn:
        raise self._error.with_traceback(None)  # Raised repeatedly: each time would lengthen its traceback.

    def first(self) -> int:
        self._refuse()

    def last(self) -> int:
        self._refuse()

    def tail(self, seq: int) -> int:
        self._refuse()

    def settle(self) -> None:
        self._refuse()

    def pieces(self, after: int, up_to: int) -> list[EventPiece]:
        self._refuse()

    def gaps(self, after: int, up_to: int) -> list[tuple[int, int]]:
        self._refuse()

    def read(self, piece: EventPiece, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self._refuse()

    def read_bodies(self, piece: EventPiece) -> Iterator[pa.RecordBatch]:
        self._refuse()

    def seq_at(self, ts_us: int) -> int:
        self._refuse()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


def reopened(source: EventSource) -> EventSource:
    """The source itself, or the one behind an UnopenedSource. Raises its error if it is still damaged."""
    return source.reopened() if isinstance(source, UnopenedSource) else source


def _domain_of(place: str) -> str:
    if not scheme_of(place):
        with contextlib.suppress(BusError, OSError):
            return load_about(place).domain
    return ""
