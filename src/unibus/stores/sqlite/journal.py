"""The journal in one SQLite file, through apsw.

    append ──▶ groups.py       one row of the table log per group commit [+ slice of a snapshot, block of the index]
           ──▶ checkpoints.py  now and then: copy SQLite's write-ahead log into the file
    load_snapshot ──▶ load.py  the snapshot tables; `changes_after` reads the rows of log after it
    trim   ──▶                 delete rows of log from the old end

A row of `log` has all changes of a group as one blob. So a group is one call into SQLite, whatever its size: each call
releases the interpreter lock and may have to wait for it afterwards (decision 0011). The file is in WAL mode and not
locked exclusively: other processes may read it.

`_mutex` is held during every call into SQLite: the connection is not used by two threads at once, and a fork waits for
it (seam/forked.py).
"""

import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import apsw
import msgspec

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFailed, StoreFull
from unibus.limits import HISTORY_AGE_S_DEFAULT, HISTORY_BYTES_DEFAULT
from unibus.safe_log import SafeLogger
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.forked import hold_at_fork
from unibus.stores.seam.journal import Covered, GroupFate, SnapshotSlice
from unibus.stores.seam.log_end import NOT_IN_ORDER, NOT_LOADED, OLDEST, REACHED
from unibus.stores.sql.bodies import SqlBodies
from unibus.stores.sql.index import SqlIndex
from unibus.stores.sql.load import SqlLoading, changes_after, changes_at, groups_after
from unibus.stores.sql.rows import checksum, pack
from unibus.stores.sql.tables import SqlTables, damaged
from unibus.stores.sqlite.checkpoints import Checkpoints
from unibus.stores.sqlite.file import (
    PAGE_BYTES,
    SqliteTransaction,
    close_after_error,
    is_no_space,
    open_file,
    translated,
)
from unibus.stores.sqlite.groups import Groups
from unibus.stores.sqlite.outside_cursors import shown_cursors
from unibus.stores.sqlite.place import own_file
from unibus.stores.sqlite.wal_preallocation import WalPreallocation

log = SafeLogger("unibus")

CHECKPOINT_BYTES: Final = 16_000_000
"""How large the write-ahead log may grow before it is copied into the file."""

_ROW_BYTES: Final = 4 * PAGE_BYTES
"""About what a row takes in the write-ahead log besides its content: partly filled pages, and inner pages of the
tree."""

TRIM_ROWS: Final = 500
TRIM_PAGES: Final = 2_000
"""Groups, and pages of their data, that one step of a trim deletes: a commit may have to wait for it. The file shrinks
by what was freed, so that its size follows the limit of history."""


class SqliteJournal:
    """`vfs` and `exclusive` are for tests on a simulated disk without shared memory."""

    snapshots = True

    def __init__(
        self,
        path: str,
        *,
        domain: str = "local",
        history_age_s: float = HISTORY_AGE_S_DEFAULT,
        history_bytes: int = HISTORY_BYTES_DEFAULT,
        reserve: Reserve | None = None,
        vfs: str | None = None,
        exclusive: bool = False,
    ) -> None:
        self.url = f"sqlite:///{path}"
        self.durability = Durability.D2
        self.identity = ""
        # The real path: all names of the store lead to the same files beside it.
        self._path = path if vfs is not None else os.path.realpath(path)
        self._name = Path(path).name
        self.domain = domain
        self._history_age_ns = round(history_age_s * 1e9)
        self._history_bytes = history_bytes
        self._mutex = threading.RLock()
        hold_at_fork(self._mutex)
        # Under `_mutex`. The numbers after it change only under the committer's lock `committing`; other threads read
        # them one at a time, without a lock.
        self._synced = True
        self.size_bytes = 0
        self.last = 0
        self._reached = NOT_LOADED  # The last change that the file records as written (log_end.py).
        self._failed = False  # After a failed write nothing more is written, not even at close.
        self.oldest = 1
        self._preallocation = None if vfs is not None else WalPreallocation(self._path, CHECKPOINT_BYTES)
        self.held = HeldFiles()
        self.reserve = reserve or Reserve("", 0)
        connection: apsw.Connection | None = None
        # The owner's lock comes first: before it nothing is created or changed beside the file, except the lock file.
        self._owner = None if vfs is not None else own_file(self._path)
        try:
            self.reserve.open()
            connection = open_file(self._path, domain, vfs, exclusive)
            self._connection = connection
            self._tables = SqlTables(self._connection, self._path)
            self._bodies = SqlBodies(self._tables)
            with self._mutex:
                self._checkpoints = Checkpoints(self._connection, self._path, self.reserve)
            self._groups = Groups(self._connection, self._tables, self.reserve, self._checkpoints)
        except BaseException:
            # The caller has no journal to close, so release everything here.
            if connection is not None:
                close_after_error(connection)
            if self._owner is not None:
                self._owner.release()
            raise

    def load_snapshot(self, state: StoreState) -> Covered:
        with self._using_file():
            loading = SqlLoading(self._tables, state)
            covered = loading.load_snapshot()
            if self._reached == NOT_LOADED:  # Else a check loads another state.
                # By the primary key: groups end where a snapshot begins, so these are all groups after it.
                after = self._tables.value(self._tables.sql.bytes_after, (covered.seq,))
                self.size_bytes = loading.log_bytes + cast(int, after or 0)
                self.domain = loading.domain
                self.identity = loading.identity
                self.last = loading.log_end(covered.seq)
        return covered

    def _begin(self, last: int) -> None:
        """The end of recovery: make durable what it has read, up to change `last`, and prepare for writing."""
        with self._using_file():
            oldest = self._tables.value(self._tables.sql.oldest)
            self._groups.index = SqlIndex(self._tables, last, self._groups_after)
            # Recovery may have read pages that are only in the kernel's cache, because a sync of the process before
            # failed. The checkpoint and the synced write make them durable before anything is built on them. The
            # write also follows directly on the valid frames of the write-ahead log: frames that recovery has
            # ignored after them can never become valid again.
            self._checkpoints.run(CHECKPOINT_BYTES, must=True)
            self._groups.write_meta("opened", time.time_ns(), REACHED, last)
        self.last = self._reached = last
        self.oldest = last + 1 if oldest is None else cast(int, oldest)
        if self._owner is not None:
            # After the write above: it has created -wal and -shm if they did not exist.
            self.held.hold(self._path, f"{self._path}-wal", f"{self._path}-shm", f"{self._path}.lock")
        # Last: recovery itself may have needed the space.
        self.reserve.refill()

    # Writing

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        if self._reached == NOT_LOADED:
            self._begin(first_seq - 1)
            if not changes:
                return
        # Outside of `_mutex`, so that readers can use the file meanwhile.
        records = pack(changes)
        crc = checksum(records)
        last = first_seq + len(changes) - 1
        # A crash before `write` returns leaves nothing of the group: SQLite ignores frames without a commit. After it
        # the group survives the process; with `sync` also a power cut.
        try:
            with self._mutex:
                self.held.check()
                # In WAL mode FULL syncs the log at each commit, NORMAL only before a checkpoint. An empty slice is how
                # the committer asks for a sync of earlier groups.
                self._sync(sync or part is not None)
                # Only synced groups gain from preallocated space; a D1 group would pay for it and not wait for any
                # sync.
                if sync and self._preallocation is not None and self._preallocation.is_due(self._checkpoints.wal_bytes):
                    self._preallocation.extend(self._checkpoints.wal_bytes)
                row = (first_seq, last, changes[0].at_ns if changes else 0, crc, records)
                self._groups.write(row if changes else None, part, self.oldest, self.size_bytes, last, sync)
                if self._groups.index is not None:
                    # After the write: the index has only changes that the log has.
                    self._groups.index.add(changes)
                self._checkpoints.wal_bytes += len(records) + _ROW_BYTES
                # A checkpoint that fails for another reason than space fails the append, although the group is written:
                # after a failed sync nothing may be built on the file.
                if self._checkpoints.is_due(CHECKPOINT_BYTES):
                    self._checkpoints.run(CHECKPOINT_BYTES)
        except apsw.Error as error:
            # At close nothing may be written after a failed write: SQLite would sync again, and a second sync after a
            # failed one may report success without having written.
            self._failed = True
            raise self._failure(error) from error
        self.last = last
        if changes:  # Else there was no row: only a slice of a snapshot, or a sync.
            self.size_bytes += len(records)

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        return GroupFate.UNKNOWN  # A second sync after a failed one may report success without having written.

    @property
    def is_quick(self) -> bool:
        """See Journal: nothing slow is due, and no reader holds `_mutex` at this moment."""
        if self._checkpoints.is_near(CHECKPOINT_BYTES) or self._groups.is_index_due():
            return False
        wal_bytes = self._checkpoints.wal_bytes
        if (self._preallocation is not None and self._preallocation.is_due(wal_bytes)) or not self._mutex.acquire(
            blocking=False
        ):
            return False
        self._mutex.release()
        return True

    def _sync(self, sync: bool) -> None:
        # A pragma is a call into SQLite, so it is left out while the level stays the same.
        if sync != self._synced:
            self._connection.execute("PRAGMA synchronous = FULL" if sync else "PRAGMA synchronous = NORMAL")
            self._synced = sync

    def _failure(self, error: apsw.Error) -> Exception:
        if is_no_space(error, self._connection):
            return StoreFull(
                f"{self._name} could not be written: the disk is full",
                "nothing of the last calls was stored; free space, and open the bus again",
            )
        return StoreFailed(
            f"{self._name} could not be written: {error}",
            "the last calls may or may not have taken effect; free space or repair the disk, and open the bus again",
        )

    def _groups_after(self, seq: int) -> Iterator[tuple[int, list[Change]]]:
        return groups_after(self._tables, seq)

    # Reading

    def read_bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        with self._using_file():
            return {entry: self._bodies.of(entry) for entry in entries}

    @contextmanager
    def _using_file(self) -> Iterator[None]:
        """Holds `_mutex`, and raises errors of the driver as ours."""
        try:
            with self._mutex:
                yield
        except apsw.Error as error:
            raise translated(error, self._path) from error
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise damaged(self._path, f"a row is not what was written: {error}") from error

    def find(self, message_id: str) -> list[int]:
        with self._using_file():
            return [] if self._groups.index is None else self._groups.index.find(message_id, self.oldest)

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        with self._using_file():
            return changes_at(self._tables, seqs)

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        with self._using_file():
            # A suspended generator keeps `_mutex`. So callers read it to its end or close it, in the same thread.
            yield from changes_after(self._tables, seq)

    # History and its readers

    def cursors(self, moved: Mapping[str, int] | None = None) -> dict[str, int]:
        with self._using_file():
            for name, seq in (moved or {}).items():
                # A reader may act on the position that it has stored, so it must survive a power cut.
                self._sync(True)
                self._tables.execute(self._tables.sql.move_cursor, (name, seq, time.time_ns()))
            return dict(self._tables.execute(self._tables.sql.cursors)) | shown_cursors(self._path)

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        """Delete rows from the old end while they are too old or the log is too large; a few per call.

        `up_to_seq` is covered by a snapshot, so a crash at any point leaves what recovery needs.
        """
        cut, freed, rows, is_more = 0, 0, 0, False
        with self._using_file():
            for last, at_ns, size in self._tables.execute(self._tables.sql.oldest_groups, (up_to_seq, TRIM_ROWS)):
                # From the old end only, and the first row that stays ends the search: the log must not get a gap.
                if at_ns >= now_ns - self._history_age_ns and self.size_bytes - freed <= self._history_bytes:
                    break
                cut, freed, rows = last, freed + size, rows + 1
                is_more = rows == TRIM_ROWS or freed >= TRIM_PAGES * PAGE_BYTES
                if is_more:
                    break
            if cut:
                self._prune(cut, freed)
                # The vacuum writes moved pages to the write-ahead log. The file gets shorter only at a checkpoint, and
                # an idle store has no commit that would run one.
                self._checkpoints.wal_bytes += freed // 2
                if self._checkpoints.is_due(CHECKPOINT_BYTES):
                    self._checkpoints.run(CHECKPOINT_BYTES)
        return is_more

    def _prune(self, cut: int, freed: int) -> None:
        with SqliteTransaction(self._connection):
            # One transaction: the rows, the index, and the recorded beginning of the log. Without the last one recovery
            # could not tell a log that was pruned completely from one that was lost.
            self._tables.execute(self._tables.sql.prune_log, (cut,))
            if self._groups.index is not None:
                self._groups.index.prune(cut)
            self._tables.replace("meta", ("log_bytes", self.size_bytes - freed, OLDEST, cut + 1), 2)
        # After the commit only: memory must not be ahead of a transaction that is rolled back.
        self.oldest = cut + 1
        self.size_bytes -= freed
        self._bodies.clear_cache()
        # In a transaction of its own: it may fail for want of space, and the pruning is valid without it. `fetchall`
        # runs the statement to its end: it frees one page per step.
        self._connection.execute(f"PRAGMA incremental_vacuum({2 * TRIM_PAGES})").fetchall()

    def close(self) -> None:
        with self._mutex:
            try:
                # Nothing is written if a file was replaced: the connection still leads to the old one, and the number
                # would be recorded where no process looks for it.
                if not self.held.release_all():
                    self._write_reached()
                # A close runs a last checkpoint. If the write-ahead log was deleted, SQLite copies it into the file. If
                # the file itself was replaced, SQLite does not remove the files beside the new one.
                try:
                    self._connection.close()
                except apsw.FullError as error:
                    # Nothing is lost: it is read at open.
                    log.warning("%s keeps its write-ahead log: %s", self._name, error)
                self.reserve.close()
            except apsw.Error as error:
                raise translated(error, self._path) from error
            finally:
                # Last: from here on another process may open the file.
                if self._owner is not None:
                    self._owner.release()
                    self._owner = None

    def _write_reached(self) -> None:
        """The last write of an orderly close. Its sync covers everything before it in the file."""
        if NOT_LOADED < self._reached < self.last and not self._failed:
            self._reached = self.last  # Set first: a second `close` does not write it again.
            try:
                self._sync(True)
                self._tables.replace("meta", (REACHED, self.last), 2)
            except apsw.Error as error:
                log.warning(NOT_IN_ORDER, self._name, error)
