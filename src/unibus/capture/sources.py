"""Opens sources of history: capture directories and stores, behind the one interface `EventSource`.

    "sqlite:///bus.db"   StoreSource     pages of changes, read beside the store's owner
    "captures/orders"    CaptureSource   the Parquet files that the manifest names
    "captures"           each capture directory in that folder

To read from another kind of store, add its URL scheme to `SOURCES`, with the function that opens it.
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
from unibus.stores.seam.store_view import HistoryReader, change_before

STORE_PIECE_EVENTS: Final = 200_000
"""Events of a store that one reader takes at once."""


class CaptureSource:
    """A capture directory, also while a capture writes to it."""

    def __init__(self, folder: str) -> None:
        self.where = self.named = os.path.abspath(local_folder(folder, "a capture"))
        self._seen = (-1, -1)
        self._manifest = Manifest.load(self.where)
        self.domain = self._manifest.domain

    def manifest(self) -> Manifest:
        """The current manifest. Usually only new lines have to be read; a rewritten manifest has another inode."""
        # The stamp is taken before the file is read. What is appended in between is read now or with the next call,
        # never skipped.
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
            # It may have been rewritten since `_stamp`, and then lines end at other offsets. If not, this raises again.
            self._manifest = Manifest.load(self.where)

    def first(self) -> int:
        manifest = self.manifest()
        return manifest.first or (manifest.last + 1 if manifest.last else 0)

    def last(self) -> int:
        return self.manifest().last

    def tail(self, seq: int) -> int:
        """The fingerprint of an event. Callers mostly ask for the end of a segment, which the manifest has."""
        for segment in self.segments(seq - 1, seq):
            if segment.last == seq:
                return segment.tail
            with contextlib.suppress(CaptureDamaged):
                return _tail(self.read(EventPiece(seq, seq, 1, 0), FINGERPRINTED))
        return 0

    def settle(self) -> None:
        """Segments are synced before the manifest names them, but its last line can be read before it is synced."""
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
        """Read by range, not by path: compaction may have moved the rows to another file since."""
        # The manifest is read again here, at the first row: the piece may have been planned long ago, in another
        # process.
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
        """Nothing to do: no file stays open between two reads."""


class StoreSource:
    """A store, read beside the process that owns it."""

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
            # Pruned meanwhile: the caller compares with `gaps`.
            if not page or page[0][0] > piece.last:
                return
            yield page
            after = page[-1][0] + len(page[-1][1]) - 1

    def seq_at(self, ts_us: int) -> int:
        first, last = self._reader.bounds()
        after = max(first - 1, change_before(self._reader, ts_us * 1_000))
        return _seq_at(self.read(EventPiece(after + 1, last, 0, 0), ("seq", "ts")), ts_us, last)

    def close(self) -> None:
        self._reader.close()


def _bodies_file(segment: Segment) -> str | None:
    return None if segment.bodies is None else segment.bodies.file


def _absolute(url: str) -> str:
    """The URL with an absolute path: tasks of a cluster run in another working directory."""
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
    """Inode and size: they change with every line, and when the manifest is rewritten."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size


def open_source(where: str) -> EventSource:
    """Open a capture directory or the URL of a store. StoreUnavailable if it is neither, UsageError for an unknown
    scheme."""
    if not is_store_scheme(scheme_of(where)):
        return CaptureSource(where)
    if not has_history(where):
        raise StoreUnavailable(
            f"{where} can only be read by the bus that owns it",
            f"name a capture directory, or a store of {history_schemes()}",
        )
    return StoreSource(where)


def open_sources(where: str | Sequence[str], keep_damaged: bool = False) -> list[EventSource]:
    """Open several sources; a folder of capture directories opens each of them. DomainTaken if two have the same
    domain. With `keep_damaged` a damaged one becomes an UnopenedSource."""
    opened: list[EventSource] = []
    given = [where] if isinstance(where, str) else where
    names = [_named(each) for each in given]
    places: dict[str, str] = {}
    for name in names:
        for place in _expanded(name):
            # Each place once, also if a folder and a capture inside of it are both named.
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
    except OSError as error:  # Else a capture of the folder would be left out silently.
        raise StoreUnavailable(
            f"{error.filename} cannot be read: {error.strerror}", "check its permissions, then try again"
        ) from error
    if not found:
        raise StoreUnavailable(f"{where} holds no capture", "`unibus capture URL DIR` creates one")
    return found


def check_distinct(opened: Sequence[EventSource]) -> None:
    """DomainTaken if two sources have the same domain."""
    known: dict[str, str] = {}
    for source in opened:
        if isinstance(source, UnopenedSource):  # Its domain may be unknown, or damaged too.
            continue
        other = known.setdefault(source.domain, source.where)
        if other != source.where:
            raise DomainTaken(
                f"{other} and {source.where} both have domain {source.domain!r}",
                "give each bus a domain of its own: sqlite:///file.db?domain=… when its store is created",
            )
