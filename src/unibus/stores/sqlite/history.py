"""The whole history of a SQLite store, read beside its owner: HistoryReader of seam/store_view.py."""

import os
from collections.abc import Iterable

from unibus.core.lifecycle.state.changes import Change
from unibus.errors import StoreFailed
from unibus.stores.seam.store_view import PAGE_BYTES, PAGE_CHANGES
from unibus.stores.sql.rows import changes_of
from unibus.stores.sqlite.look import ReadOnlyFile
from unibus.stores.sqlite.outside_cursors import show_cursor
from unibus.stores.sqlite.reader import EntityNames


class SqliteHistory:
    """For one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = ReadOnlyFile(path)
        self._file.on_replaced = self._start_again
        self._names = EntityNames(self._file)

    def _start_again(self) -> None:
        self._names = EntityNames(self._file)

    def close(self) -> None:
        self._file.close()

    @property
    def domain(self) -> str:
        with self._file.look():
            return str(self._file.meta("domain") or "local")

    def identity(self) -> object:
        with self._file.look():
            return self._file.identity

    def bounds(self) -> tuple[int, int]:
        with self._file.look():
            last = self._file.last()
            return self._file.oldest() or (last + 1 if last else 0), last

    def groups_after(self, seq: int, changes_max: int = PAGE_CHANGES) -> list[tuple[int, list[Change]]]:
        """Rows are only copied inside the read transaction, and decoded after it."""
        with self._file.look():
            rows = self._file.rows_after(seq, changes_max, PAGE_BYTES)
        groups = [(row[0], changes_of(self._path, *row)) for row in rows]
        # The first group may begin before the reader's position, if that was in the middle of a group.
        if groups and groups[0][0] <= seq:
            first, changes = groups[0]
            groups[0] = (seq + 1, changes[seq + 1 - first :])
        return groups

    def names_of(self, entities: Iterable[int]) -> dict[int, str]:
        if not self._names.know(entities):
            with self._file.look():
                self._names.learn()
        return self._names.known

    def settle(self) -> None:
        """Sync the write-ahead log. SQLite holds no POSIX locks on it, so opening and closing it here drops none; on
        the database file itself it would.

        What was read is in the log, or a checkpoint has copied it into the file; a checkpoint syncs the file before the
        log is overwritten. So after this all of it is on disk, also if the owner does not sync its commits.
        """
        try:
            file = os.open(f"{os.path.realpath(self._path)}-wal", os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except FileNotFoundError:
            return  # The last process that closed the store has copied everything into the file and synced it.
        except OSError as error:
            raise StoreFailed(
                f"{self._path}-wal could not be synced: {error.strerror or error}", "repair the disk, and start again"
            ) from error

    def show_cursor(self, name: str, seq: int) -> None:
        show_cursor(self._path, name, seq)
