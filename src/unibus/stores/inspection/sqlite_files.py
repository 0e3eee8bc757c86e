"""The files of a SQLite store, read without changing them."""

import os
from collections.abc import Iterator, Sequence
from typing import cast

import apsw
import msgspec

from unibus.core.life.book import Book
from unibus.core.life.entity import Entry
from unibus.errors import StoreDamaged
from unibus.stores.inspection.files import LoggedGroup, Reader
from unibus.stores.journals.sqlite_bodies import Bodies
from unibus.stores.journals.sqlite_file import damaged, translated
from unibus.stores.journals.sqlite_load import Loading
from unibus.stores.journals.sqlite_look import open_read_only
from unibus.stores.journals.sqlite_rows import changes_of

_ROWS = "SELECT seq, last, crc, records FROM log WHERE last > ? ORDER BY seq"


class SqliteFiles:
    """One read transaction from the beginning to the end, so that all is of one moment beside a running owner too.

    `path` is what is read and `url` what is reported: a repair reads a copy. `is_owned`: a process may change the file
    meanwhile.
    """

    def __init__(self, path: str, url: str, is_owned: bool = True) -> None:
        self.url = url
        self.reached = 0
        self._path = path
        has_wal = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
        self._connection = open_read_only(path, immutable=not is_owned and not has_wal)
        try:
            self._connection.execute("BEGIN")
            self.domain = str(self._connection.execute("SELECT value FROM meta WHERE key = 'domain'").get or "local")
        except apsw.Error as error:
            self._connection.close()
            raise translated(error, path) from error
        self._bodies = Bodies(self._connection, path)

    def load_snapshot(self, book: Book) -> tuple[int, int]:
        loading = Loading(self._connection, self._path, book)
        try:
            covered, overlap = loading.load_snapshot()
        except apsw.Error as error:
            raise translated(error, self._path) from error
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise damaged(self._path, f"a row of the snapshot is not what was written: {error}") from error
        self.reached = loading.reached
        return covered, overlap

    def groups(self, after: int) -> Iterator[LoggedGroup]:
        first = last = 0
        try:
            for first, last, crc, records in self._connection.execute(_ROWS, (after,)):
                yield self._group(after, first, last, crc, records)
        except apsw.Error as error:
            yield LoggedGroup(0, 0, [], f"the log cannot be read behind change {last}: {error}")

    def _group(self, after: int, first: int, last: int, crc: int, records: bytes) -> LoggedGroup:
        try:
            changes = changes_of(self._path, first, last, crc, records)
        except (StoreDamaged, TypeError):
            what = f"change {first} is" if first == last else f"changes {first} to {last} are"
            return LoggedGroup(first, last, [], f"{what} not what was written")
        skipped = max(0, after + 1 - first)
        return LoggedGroup(first + skipped, last, changes[skipped:])

    def bodies(self, entries: Sequence[Entry]) -> dict[Entry, bytes]:
        try:
            return {entry: self._bodies.of(entry) for entry in entries}
        except apsw.Error as error:
            raise translated(error, self._path) from error

    def readers(self) -> list[Reader]:
        rows = self._connection.execute("SELECT name, seq, missed FROM cursors")
        return [Reader(name, seq, missed) for name, seq, missed in cast("Iterator[tuple[str, int, int]]", rows)]

    def close(self) -> None:
        self._connection.close()
