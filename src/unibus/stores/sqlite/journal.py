"""The journal in one SQLite file, through apsw.

    append ──▶ groups.py       one row of the table log per group commit [+ slice of a snapshot, block of the index]
           ──▶ checkpoints.py  now and then: copy SQLite's write-ahead log into the file
    load   ──▶ load.py         snapshot tables, then the rows of log after it
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
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import apsw
import msgspec

from unibus.core.lifecycle.events import Event, event_of, is_about, kind_of
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
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.seam.log_end import NOT_IN_ORDER, NOT_LOADED, OLDEST, REACHED
from unibus.stores.sqlite.bodies import GROUP, SqliteBodies
from unibus.stores.sqlite.checkpoints import Checkpoints
from unibus.stores.sqlite.file import (
    PAGE_BYTES,
    SqliteTransaction,
    close_after_error,
    damaged,
    is_no_space,
    open_file,
    translated,
)
from unibus.stores.sqlite.groups import Groups
from unibus.stores.sqlite.index import SqliteIndex
from unibus.stores.sqlite.load import SqliteLoading, rows_after
from unibus.stores.sqlite.outside_cursors import shown_cursors
from unibus.stores.sqlite.place import own_file
from unibus.stores.sqlite.rows import (
    changes_of,
    checksum,
    insert,
    pack,
)
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
        self._domain = domain
        self._history_age_ns = round(history_age_s * 1e9)
        self._history_bytes = history_bytes
        self._mutex = threading.RLock()
        hold_at_fork(self._mutex)
        # Under `_mutex`. The numbers after it change only under the committer's lock `committing`; other threads read
        # them one at a time, without a lock.
        self._synced = True
        self._log_bytes = 0
        self._last = 0
        self._reached = NOT_LOADED  # The last change that the file records as written (log_end.py).
        self._failed = False  # After a failed write nothing more is written, not even at close.
        self._oldest = 1
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
            self._bodies = SqliteBodies(self._connection, self._path)
            with self._mutex:
                self._checkpoints = Checkpoints(self._connection, self._path, self.reserve)
            self._groups = Groups(self._connection, self.reserve, self._checkpoints)
        except BaseException:
            # The caller has no journal to close, so release everything here.
            if connection is not None:
                close_after_error(connection)
            if self._owner is not None:
                self._owner.release()
            raise

    def load(self, state: StoreState) -> int:
        try:
            with self._mutex:
                loading = SqliteLoading(self._connection, self._path, state)
                # Raises StoreDamaged before recovery writes anything: a damaged file stays as it is, for a repair.
                covered = loading.run()
                oldest = self._connection.execute("SELECT min(seq) FROM log").get
                self._groups.index = SqliteIndex(self._connection, state.seq, self._rows_after)
                # Recovery may have read pages that are only in the kernel's cache, because a sync of the process before
                # failed. The checkpoint and the synced write make them durable before anything is built on them. The
                # write also follows directly on the valid frames of the write-ahead log: frames that recovery has
                # ignored after them can never become valid again.
                self._checkpoints.run(CHECKPOINT_BYTES, must=True)
                self._groups.write_meta("opened", time.time_ns(), REACHED, state.seq)
        except apsw.Error as error:
            raise translated(error, self._path) from error
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise damaged(self._path, f"a row is not what was written: {error}") from error
        self._log_bytes = loading.log_bytes
        self._domain = loading.domain
        self.identity = loading.identity
        self._last = self._reached = state.seq
        self._oldest = state.seq + 1 if oldest is None else cast(int, oldest)
        if self._owner is not None:
            # After the write above: it has created -wal and -shm if they did not exist.
            self.held.hold(self._path, f"{self._path}-wal", f"{self._path}-shm", f"{self._path}.lock")
        # Last: recovery itself may have needed the space.
        self.reserve.refill()
        return covered

    def reload(self, state: StoreState) -> bool:
        with self._using_file():
            SqliteLoading(self._connection, self._path, state).run()
        return True

    # Writing

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
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
                self._groups.write(row if changes else None, part, self._oldest, self._log_bytes, last, sync)
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
        self._last = last
        if changes:  # Else there was no row: only a slice of a snapshot, or a sync.
            self._log_bytes += len(records)

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

    def _rows_after(self, seq: int) -> Iterator[tuple[int, list[Change], int]]:
        return rows_after(self._connection, self._path, seq)

    # Reading

    def bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
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

    def events_after(
        self, seq: int, limit: int, names: dict[int, str], kinds: Collection[str] = ()
    ) -> tuple[list[Event], int]:
        rows: list[Event] = []
        with self._using_file():
            for number, change in self.changes_after(seq):
                if len(rows) >= limit:
                    break
                if not kinds or kind_of(change) in kinds:
                    rows.append(event_of(number, change, self._domain, names))
            return rows, self._last

    def events_of(self, message_id: str, names: dict[int, str]) -> list[Event]:
        with self._using_file():
            seqs = [] if self._groups.index is None else self._groups.index.find(message_id, self._oldest)
            found = [(seq, change) for seq, change in self.changes_at(seqs) if is_about(change, message_id)]
        return [event_of(seq, change, self._domain, names) for seq, change in found]

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        found: list[tuple[int, Change]] = []
        # Neighbours are mostly in one group, so the last decoded group is kept.
        first, changes = 0, list[Change]()
        with self._using_file():
            for seq in seqs:
                if not first <= seq < first + len(changes):
                    row = self._connection.execute(GROUP, (seq,)).fetchone()
                    if row is None or row[1] < seq:
                        continue
                    first, changes = row[0], changes_of(self._path, *row)
                found.append((seq, changes[seq - first]))
        return found

    def changes_after(self, seq: int) -> Iterator[tuple[int, Change]]:
        with self._using_file():
            # A suspended generator keeps `_mutex`. So callers read it to its end or close it, in the same thread.
            for first, changes, _ in rows_after(self._connection, self._path, seq):
                for index, change in enumerate(changes):
                    if first + index > seq:
                        yield first + index, change

    # History and its readers

    def cursors(self) -> dict[str, int]:
        with self._using_file():
            return dict(self._connection.execute("SELECT name, seq FROM cursors")) | shown_cursors(self._path)

    def move_cursor(self, name: str, seq: int) -> None:
        sql = (
            "INSERT INTO cursors VALUES (?, ?, ?, 0)"
            " ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, at_ns = excluded.at_ns"
        )
        with self._using_file():
            # A reader may act on the position that it has stored, so it must survive a power cut.
            self._sync(True)
            self._connection.execute(sql, (name, seq, time.time_ns()))

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        """Delete rows from the old end while they are too old or the log is too large; a few per call.

        `up_to_seq` is covered by a snapshot, so a crash at any point leaves what recovery needs.
        """
        sql = "SELECT last, at_ns, length(records) FROM log WHERE last <= ? ORDER BY seq LIMIT ?"
        cut, freed, rows, is_more = 0, 0, 0, False
        with self._using_file():
            for last, at_ns, size in self._connection.execute(sql, (up_to_seq, TRIM_ROWS)):
                # From the old end only, and the first row that stays ends the search: the log must not get a gap.
                if at_ns >= now_ns - self._history_age_ns and self._log_bytes - freed <= self._history_bytes:
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
            # One transaction: the rows, what readers miss because of it, the index, and the recorded beginning of the
            # log. Without the last one recovery could not tell a log that was pruned completely from one that was lost.
            self._connection.execute(
                "UPDATE cursors SET missed = missed + ? - max(seq, ?) WHERE seq < ?", (cut, self._oldest - 1, cut)
            )
            self._connection.execute("DELETE FROM log WHERE last <= ?", (cut,))
            if self._groups.index is not None:
                self._groups.index.prune(cut)
            insert(self._connection, "meta", ("log_bytes", self._log_bytes - freed, OLDEST, cut + 1), 2)
        # After the commit only: memory must not be ahead of a transaction that is rolled back.
        self._oldest = cut + 1
        self._log_bytes -= freed
        self._bodies.clear_cache()
        # In a transaction of its own: it may fail for want of space, and the pruning is valid without it. `fetchall`
        # runs the statement to its end: it frees one page per step.
        self._connection.execute(f"PRAGMA incremental_vacuum({2 * TRIM_PAGES})").fetchall()

    def missed(self, name: str) -> int:
        """How many events were pruned before this reader had read them."""
        with self._using_file():
            return cast(int, self._connection.execute("SELECT missed FROM cursors WHERE name = ?", (name,)).get or 0)

    def size_bytes(self) -> int:
        return self._log_bytes

    def oldest_seq(self) -> int:
        return self._oldest

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
        if NOT_LOADED < self._reached < self._last and not self._failed:
            self._reached = self._last  # Set first: a second `close` does not write it again.
            try:
                self._sync(True)
                insert(self._connection, "meta", (REACHED, self._last), 2)
            except apsw.Error as error:
                log.warning(NOT_IN_ORDER, self._name, error)
