"""Where captured or living history is read from: one face over capture directories and over stores.

`SOURCES` is the one place to add a reader for a store that comes later: a scheme, and what opens it. A bus that runs
elsewhere and is reached over HTTP will be one more line there: ("http", "https") -> an EventSource whose `pieces` are
the segments that the other side serves, and whose `read` fetches them.

A source never changes what it reads, and can be opened anywhere: a driver asks for pieces, an executor opens the same
source again by its `where` and reads one of them.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture import schema
from unibus.capture.bodies import bodies_of
from unibus.capture.columns import EventColumns, Page, by_type
from unibus.capture.event_source import EventPiece, EventSource
from unibus.capture.manifest import LINES, Manifest, Segment, is_capture
from unibus.capture.segments import FINGERPRINTED, batches, fingerprint
from unibus.capture.unopened import UnopenedSource
from unibus.errors import CaptureDamaged, DomainTaken, StoreDamaged, StoreUnavailable
from unibus.stores.files.local_folder import local_folder, scheme_of
from unibus.stores.schemes import has_history, history_schemes, is_store_scheme, open_history
from unibus.stores.seam.store_view import HistoryReader

STORE_PIECE_EVENTS: Final = 200_000
"""Events of a store that one reader takes at once."""


class CaptureSource:
    """A capture directory, also while somebody captures into it."""

    def __init__(self, folder: str) -> None:
        self.where = self.named = os.path.abspath(local_folder(folder, "a capture"))
        self._seen = (-1, -1)
        self._manifest = Manifest.load(self.where)
        self.domain = self._manifest.domain

    def manifest(self) -> Manifest:
        """As it is now. Mostly there are a few lines more; a manifest that was written anew is another file."""
        inode, size = _stamp(os.path.join(self.where, LINES))
        if inode != self._seen[0] or size < self._manifest.whole_bytes:
            self._manifest = Manifest.load(self.where)
        elif size != self._seen[1]:
            self._follow()
        self._seen = (inode, size)
        return self._manifest

    def _follow(self) -> None:
        try:
            self._manifest.follow()
        except CaptureDamaged:
            # It may have been written anew since we looked, and then lines end elsewhere. If not, this says it again.
            self._manifest = Manifest.load(self.where)

    def first(self) -> int:
        manifest = self.manifest()
        return manifest.first or (manifest.last + 1 if manifest.last else 0)

    def last(self) -> int:
        return self.manifest().last

    def tail(self, seq: int) -> int:
        """Most are asked for where a segment ends, and stand in the manifest."""
        for segment in self.segments(seq - 1, seq):
            if segment.last == seq:
                return segment.tail
            with contextlib.suppress(CaptureDamaged):
                return _tail(self.read(EventPiece(seq, seq, 1, 0), FINGERPRINTED))
        return 0

    def settle(self) -> None:
        """Segments are on the disk before the manifest names them, but its last line can be read before it is."""
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.where, LINES), "rb") as file:
            os.fsync(file.fileno())

    def segments(self, after: int, up_to: int) -> list[Segment]:
        return [each for each in self.manifest().segments if each.last > after and each.first <= up_to]

    def pieces(self, after: int, up_to: int) -> list[EventPiece]:
        return [self._piece(each, after, up_to) for each in self.segments(after, up_to)]

    def _piece(self, segment: Segment, after: int, up_to: int) -> EventPiece:
        first, last = max(segment.first, after + 1), min(segment.last, up_to)
        share = (last - first + 1) / (segment.last - segment.first + 1)
        rows = segment.rows if share == 1 else min(segment.rows, last - first + 1)
        return EventPiece(first, last, rows, round(segment.bytes * share), os.path.join(self.where, segment.file))

    def gaps(self, after: int, up_to: int) -> list[tuple[int, int]]:
        return clipped(self.manifest().gaps, after, up_to)

    def read(self, piece: EventPiece, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._read(piece, columns, schema.EVENTS, lambda segment: segment.file)

    def read_bodies(self, piece: EventPiece) -> Iterator[pa.RecordBatch]:
        return self._read(piece, None, schema.BODIES, _bodies_file)

    def _read(
        self,
        piece: EventPiece,
        columns: Sequence[str] | None,
        wanted: pa.Schema,
        file_of: Callable[[Segment], str | None],
    ) -> Iterator[pa.RecordBatch]:
        """By range, not by path: compaction may have put the rows into another file since."""
        for segment in self.segments(piece.first - 1, piece.last):
            file = file_of(segment)
            if file is not None:
                try:
                    yield from batches(os.path.join(self.where, file), piece.first, piece.last, columns, wanted)
                except (pa.ArrowException, OSError, KeyError) as error:
                    reason = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
                    raise CaptureDamaged(f"{file} cannot be read: {error}", "restore it", reason) from error

    def seq_at(self, ts_us: int) -> int:
        manifest = self.manifest()
        for segment in manifest.segments:
            if segment.to_us >= ts_us:
                whole = EventPiece(segment.first, segment.last, segment.rows, segment.bytes)
                return _seq_at(self.read(whole, ("seq", "ts")), ts_us, segment.last)
        return manifest.last

    def close(self) -> None:
        """Nothing is open."""


class StoreSource:
    """A store, read beside its owner."""

    def __init__(self, url: str) -> None:
        self.where = self.named = _absolute(url)
        self._reader: HistoryReader = open_history(url)
        self.domain = self._reader.domain
        self._columns = EventColumns(self.domain)

    def first(self) -> int:
        return self._reader.bounds()[0]

    def last(self) -> int:
        return self._reader.bounds()[1]

    def tail(self, seq: int) -> int:
        return _tail(self.read(EventPiece(seq, seq, 1, 0), FINGERPRINTED))

    def settle(self) -> None:
        self._reader.settle()

    def pieces(self, after: int, up_to: int) -> list[EventPiece]:
        first, last = self._reader.bounds()
        begin, end = max(first, after + 1), min(last, up_to)
        found = []
        while 0 < begin <= end:
            until = min(end, begin + STORE_PIECE_EVENTS - 1)
            found.append(EventPiece(begin, until, until - begin + 1, 0))
            begin = until + 1
        return found

    def gaps(self, after: int, up_to: int) -> list[tuple[int, int]]:
        first = self._reader.bounds()[0]
        return clipped([(1, first - 1)] if first > 1 else [], after, up_to)

    def read(self, piece: EventPiece, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for page in self._pages(piece):
            table = self._columns.table(by_type(page), self._reader.names_of)
            names = [name for name in schema.EVENTS.names if columns is None or name in columns]
            yield from _between(table, piece).select(names).combine_chunks().to_batches()

    def read_bodies(self, piece: EventPiece) -> Iterator[pa.RecordBatch]:
        for page in self._pages(piece):
            table = bodies_of(by_type(page), self.domain, self._reader.names_of)
            yield from _between(table, piece).combine_chunks().to_batches()

    def _pages(self, piece: EventPiece) -> Iterator[Page]:
        after = piece.first - 1
        while after < piece.last:
            page = self._reader.groups_after(after)
            if not page or page[0][0] > piece.last:
                return
            yield page
            after = page[-1][0] + len(page[-1][1]) - 1

    def seq_at(self, ts_us: int) -> int:
        first, last = self._reader.bounds()
        after = max(first - 1, self._reader.seq_before(ts_us * 1_000))
        return _seq_at(self.read(EventPiece(after + 1, last, 0, 0), ("seq", "ts")), ts_us, last)

    def close(self) -> None:
        self._reader.close()


def _bodies_file(segment: Segment) -> str | None:
    return None if segment.bodies is None else segment.bodies.file


def _absolute(url: str) -> str:
    """The same file from any folder: tasks of a cluster run in one of their own."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if not path:
        return url
    return f"{parts.scheme}:///{quote(os.path.abspath(path))}" + (f"?{parts.query}" if parts.query else "")


def _between(table: pa.Table, piece: EventPiece) -> pa.Table:
    seqs = table["seq"]
    return table.filter(pc.and_(pc.greater_equal(seqs, piece.first), pc.less_equal(seqs, piece.last)))


def _tail(found: Iterator[pa.RecordBatch]) -> int:
    for batch in found:
        if batch.num_rows:
            return fingerprint(pa.Table.from_batches([batch]), 0)
    return 0


def _seq_at(found: Iterator[pa.RecordBatch], ts_us: int, last: int) -> int:
    for batch in found:
        at = pc.index(pc.greater_equal(batch["ts"].cast(pa.int64()), ts_us), True).as_py()
        if at >= 0:
            return int(batch["seq"][at].as_py()) - 1
    return last


def clipped(ranges: Sequence[tuple[int, int]], after: int, up_to: int) -> list[tuple[int, int]]:
    """The parts of ranges that are in (after, up_to]."""
    cut = [(max(first, after + 1), min(last, up_to)) for first, last in ranges]
    return [(first, last) for first, last in cut if first <= last]


def _stamp(path: str) -> tuple[int, int]:
    """Changes with every line, and with a manifest that was written anew."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size


def open_source(where: str) -> EventSource:
    """A capture directory or the URL of a store. StoreUnavailable for what is neither, UsageError for a scheme that is
    no store's."""
    if not is_store_scheme(scheme_of(where)):
        return CaptureSource(where)
    if not has_history(where):
        raise StoreUnavailable(
            f"{where} cannot be read beside its owner", f"a capture directory, or one of {history_schemes()}"
        )
    return StoreSource(where)


def open_sources(where: str | Sequence[str], keep_damaged: bool = False) -> list[EventSource]:
    """All of them, a folder of capture directories as each of its own. DomainTaken where two have one name. With
    `keep_damaged` one that is damaged is an UnopenedSource in its place."""
    opened: list[EventSource] = []
    given = [where] if isinstance(where, str) else where
    names = [_named(each) for each in given]
    places: dict[str, str] = {}
    for name in names:
        for place in _expanded(name):
            places.setdefault(place, name)
    try:
        for place, name in places.items():
            opened.append(_open_or_keep(place) if keep_damaged else open_source(place))
            if name != place:
                opened[-1].named = name
        check_distinct(opened)
    except BaseException:
        for source in opened:
            source.close()
        raise
    return opened


def _open_or_keep(place: str) -> EventSource:
    try:
        return open_source(place)
    except (CaptureDamaged, StoreDamaged) as error:
        return UnopenedSource(place, error, open_source)


def _named(where: str) -> str:
    """A folder by its absolute path, a store by its URL."""
    return where if is_store_scheme(scheme_of(where)) else os.path.abspath(local_folder(where, "a capture"))


def _expanded(where: str) -> list[str]:
    if scheme_of(where):
        return [where]
    try:
        if is_capture(where) or not os.path.isdir(where):
            return [where]
        found = [path for name in sorted(os.listdir(where)) if is_capture(path := os.path.join(where, name))]
    except OSError as error:  # One of a folder would be left out without a word.
        raise StoreUnavailable(f"{error.filename} cannot be looked at: {error.strerror}", "mend that") from error
    if not found:
        raise StoreUnavailable(f"{where} holds no capture", "`unibus capture URL DIR` makes one")
    return found


def check_distinct(opened: Sequence[EventSource]) -> None:
    """DomainTaken where two have one name."""
    known: dict[str, str] = {}
    for source in opened:
        if isinstance(source, UnopenedSource):  # Its name may be unknown, or damaged too.
            continue
        other = known.setdefault(source.domain, source.where)
        if other != source.where:
            raise DomainTaken(
                f"{other} and {source.where} both are domain {source.domain!r}",
                "give each bus a name of its own: sqlite:///file.db?domain=… when its store is made",
            )
