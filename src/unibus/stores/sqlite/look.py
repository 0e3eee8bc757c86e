"""Reading a SQLite store from outside: a read-only connection, and the state of the store as of the last look.

    look() ──▶ BEGIN ──▶ catch_up: replay the new rows of the log ──▶ read ──▶ ROLLBACK

Each look is one read transaction: it sees one moment, and blocks a checkpoint only while it runs. The reader has its
own StoreState, without the data of messages. It is loaded once, as recovery does, and then follows the log. Nothing is
ever written into the file.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast
from uuid import uuid4

import apsw
import msgspec

from unibus.core.lifecycle.claiming import run_due
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreUnavailable, StoreVersion
from unibus.stores.files.owner import check_not_inherited
from unibus.stores.seam.forked import OPENING, hold_at_fork, keep_for_ever, on_fork, opened_by
from unibus.stores.seam.recovery import load
from unibus.stores.sql.bodies import SqlBodies
from unibus.stores.sql.load import ReadOnlyLog, changes_at, groups_after
from unibus.stores.sql.tables import SqlTables, damaged
from unibus.stores.sqlite.file import (
    APPLICATION_ID,
    READABLE_VERSION,
    close_after_error,
    newest_version,
    translated,
)

GRACE_NS: Final = 1_000_000_000
"""A deadline that passed longer ago is not applied by any owner: the store has none now, so the reader applies it."""

BUSY_MS: Final = 5_000
_ROWS: Final = "SELECT seq, last, crc, records FROM log WHERE seq >= ? AND last > ? ORDER BY seq"
_LAST: Final = "SELECT last FROM log ORDER BY seq DESC LIMIT 1"


def open_read_only(path: str, immutable: bool = False) -> apsw.Connection:
    """`immutable` is for a file that no process can change meanwhile: SQLite then creates no file beside it, takes no
    lock, and ignores a write-ahead log."""
    check_not_inherited(path, _stat(path))
    with OPENING:
        return _open_read_only(path, immutable)


def _open_read_only(path: str, immutable: bool) -> apsw.Connection:
    try:
        if immutable:
            name = f"{Path(path).absolute().as_uri()}?immutable=1"
            connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        else:
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise StoreUnavailable(
            f"cannot open {path}: {error}", "check that the file exists and that you may read it"
        ) from error
    try:
        connection.set_busy_timeout(BUSY_MS)
        _check_version(connection, path)
    except apsw.Error as error:
        close_after_error(connection)
        raise translated(error, path) from error
    except BaseException:
        close_after_error(connection)
        raise
    return connection


def _check_version(connection: apsw.Connection, path: str) -> None:
    version = cast(int, connection.pragma("user_version"))
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if connection.pragma("application_id") != APPLICATION_ID and (tables or version):
        raise StoreUnavailable(f"{path} is a SQLite file, but not one of unibus", "choose another file")
    if version > newest_version():
        raise StoreVersion(
            f"{path} has schema {version}, this version of unibus knows {newest_version()}", "install the newer unibus"
        )
    if not tables and not version:
        raise StoreUnavailable(f"{path} is empty: it has never been a store, or lost everything", "name another file")
    if version < READABLE_VERSION:
        raise StoreVersion(
            f"{path} has schema {version}, this version of unibus reads {newest_version()}",
            "open it once as a bus of this version, which brings it up to date",
        )


class ReadOnlyFile:
    """A read-only connection. Calls `on_replaced` when another file has the name."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.connection = open_read_only(path)
        self.on_replaced: Callable[[], None] | None = None
        self._inside = threading.RLock()  # Held during a look, so that a fork waits for it.
        hold_at_fork(self._inside)
        self.identity = _identity(path)
        self._opened_by = 0
        me = weakref.ref(self)
        self._fork_mark = on_fork(lambda pid: _leave_to_parent(me(), pid))

    @contextmanager
    def look(self) -> Iterator[None]:
        """One read transaction, or the open one. Raises errors of the driver as ours."""
        if self._opened_by:
            raise opened_by(self._opened_by)
        # Nested: the caller is inside `moment`, and everything must be of that one transaction.
        if not self.connection.get_autocommit():
            yield
            return
        self._follow()
        try:
            with self._inside:
                # A deferred BEGIN: the snapshot starts with the first read. From then on SQLite's WAL keeps this
                # version of every page, and the owner continues to write.
                self.connection.execute("BEGIN")
                try:
                    yield
                finally:
                    if not self.connection.get_autocommit():
                        self.connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise translated(error, self.path) from error
        except (TypeError, msgspec.MsgspecError) as error:
            raise damaged(self.path, f"a row is not what was written: {error}") from error

    def _follow(self) -> None:
        """Open the file again if another one has its name now: the caller wants to see that one."""
        # Before each transaction, never inside: a look is of one file.
        identity = _identity(self.path)
        if identity != self.identity:
            # Opened before the old one is closed: if the new file cannot be read, the error leaves a reader that still
            # works.
            connection = open_read_only(self.path)
            self.close()
            self.connection, self.identity = connection, identity
            if self.on_replaced is not None:
                self.on_replaced()

    def close(self) -> None:
        if not self._opened_by:
            close_after_error(self.connection)  # An error at close is harmless: a reader has written nothing.

    def leave_to_parent(self, pid: int) -> None:
        """In a forked child: SQLite's memory has locks that only the parent holds."""
        keep_for_ever(self.connection)
        self._opened_by = pid

    def last(self) -> int:
        found = self.connection.execute(_LAST).get
        return self.covered() if found is None else cast(int, found)

    def oldest(self) -> int:
        return cast(int, self.connection.execute("SELECT min(seq) FROM log").get or 0)

    def covered(self) -> int:
        """The seq of the last snapshot: the end of a log that was pruned completely."""
        return cast(int, self.meta("snapshot") or 0)

    def meta(self, key: str) -> object:
        return self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get

    def tables(self) -> SqlTables:
        return SqlTables(self.connection, self.path)  # Not kept: the connection is another one after a replacement.

    def groups_after(self, seq: int) -> Iterator[tuple[int, list[Change]]]:
        return groups_after(self.tables(), seq)

    def rows_after(self, seq: int, changes_max: int, bytes_max: int) -> list[tuple[int, int, int, bytes]]:
        """Undecoded rows of the log after `seq`, until there are enough."""
        rows: list[tuple[int, int, int, bytes]] = []
        begins = cast(int, self.connection.execute("SELECT max(seq) FROM log WHERE seq <= ?", (seq + 1,)).get or 0)
        size = 0
        for row in self.connection.execute(_ROWS, (begins, seq)):
            # A read transaction sees no half of a trim, so a gap is damage.
            if rows and row[0] != rows[-1][1] + 1:
                raise damaged(self.path, f"the log, changes {rows[-1][1] + 1} to {row[0] - 1}: they are missing")
            rows.append(cast("tuple[int, int, int, bytes]", row))
            size += len(row[3])
            if row[1] - seq >= changes_max or size >= bytes_max:
                break
        return rows

    def changes_at(self, seqs: Iterable[int]) -> list[tuple[int, Change]]:
        """The changes with these seqs, without those that were pruned."""
        return changes_at(self.tables(), seqs)


def _identity(path: str) -> tuple[int, int]:
    found = _stat(path)
    return found.st_dev, found.st_ino


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise StoreUnavailable(f"cannot open {path}: {error.strerror}", "does the file exist?") from error


def _leave_to_parent(file: "ReadOnlyFile | None", pid: int) -> None:
    if file is not None:
        file.leave_to_parent(pid)


class FollowedState:
    """The state of the store, brought up to date inside a look."""

    def __init__(self, file: ReadOnlyFile, now_ns: Callable[[], int]) -> None:
        self.state = StoreState(0)  # No data in memory.
        self._file = file
        self._now_ns = now_ns
        self._seq = -1  # The last change that was replayed.
        self._ahead = False  # Deadlines were applied here that the log does not have.
        self._oldest = 0  # The first change of the log when the state was loaded.

    def start_again(self) -> None:
        self._seq = -1

    def with_homes(self) -> StoreState:
        """The state, up to date, with a valid place of each message's data: it may have been in a part of the log that
        was pruned since. Then a snapshot has it, so the state is loaded again."""
        state = self.catch_up()
        if self._file.oldest() != self._oldest:
            self._load()
            state = self.catch_up()
        return state

    def catch_up(self) -> StoreState:
        last = self._file.last()
        # A log that has become shorter means that the file was overwritten in place, for instance by a restored backup.
        # A state that is ahead has applied deadlines itself, and the owner may have decided otherwise: so both are
        # loaded again.
        known = 0 <= self._seq <= last and not (self._ahead and last != self._seq)
        if not known or not self._replay(last):
            self._load()
        now_ns = self._now_ns()
        # With a grace time: a running owner applies its deadlines itself, and its changes arrive in the log a moment
        # later. Without one, both would count.
        while self.state.due.next_ns() <= now_ns - GRACE_NS and self._run_due(now_ns):
            pass
        self.state.gone, self.state.dropped = [], []  # For snapshots, which a reader does not take.
        return self.state

    def _load(self) -> None:
        self.state = StoreState(0)
        self.state.saves = False
        self.state.new_id = uuid4
        self.state.fetch = SqlBodies(self._file.tables()).of  # A rule may read a message that is due.
        load(ReadOnlyLog(self._file.tables()), self.state)
        self._seq, self._ahead, self._oldest = self.state.seq, False, self._file.oldest()

    def _replay(self, last: int) -> bool:
        """Replay the log since the last look. False if a part of it was pruned meanwhile."""
        self.state.replaying = True
        for seq, changes in self._file.groups_after(self._seq):
            # Pruned since the last look: the changes in between are lost to this reader, so it starts from the
            # snapshot.
            if seq != self._seq + 1:
                return False
            for change in changes:
                replay(self.state, change)
            self.state.end_group()
            self._seq = self.state.seq
        self.state.replaying = False
        return self._seq == last

    def _run_due(self, now_ns: int) -> bool:
        """Apply deadlines as the next owner does when it opens the store. True if there may be more."""
        before = self.state.seq
        more = run_due(self.state, now_ns)
        # Never written: the changes only bring this copy of the state up to date.
        self.state.take()
        self._ahead = self._ahead or self.state.seq != before
        return more
