"""The journal in a folder of JSON files that people can read.

    state.json                        the root: format, domain, sequences, sessions, dedup keys, list of valid files
    entities/queues.json, …           declared entities
    messages/queue_orders.json, …     the messages at the last snapshot
    wal/000000000001.jsonl, …         every change since then, one line each; before that, history
    cursors.json                      positions of history readers

A group is written to the log first, and synced if a call asks for it; the other files follow with a snapshot. What is
acknowledged is in the log. One process owns the folder (`state.json.lock`).

`_mutex` protects the log, the snapshot and the cursors: one thread at a time reads or writes the files.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from unibus.core.lifecycle.events import is_about
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import BusError, StoreFailed, StoreFull
from unibus.limits import HISTORY_AGE_S_DEFAULT, HISTORY_BYTES_DEFAULT
from unibus.safe_log import SafeLogger
from unibus.stores.files.disk import Files, RealFiles, has_no_space
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.owner import Owner
from unibus.stores.files.reserve import Reserve
from unibus.stores.jsonfile.folder import begin, check_place, own, unavailable
from unibus.stores.jsonfile.forms import instant_text
from unibus.stores.jsonfile.lines import mentions
from unibus.stores.jsonfile.load import JsonLoading
from unibus.stores.jsonfile.log import JsonLog
from unibus.stores.jsonfile.snapshot import PART, Snapshots
from unibus.stores.jsonfile.state import (
    CURSORS,
    STATE,
    CursorRecord,
    Cursors,
    State,
    read_cursors,
    read_state,
    write_cursors,
    write_state,
)
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Covered, GroupFate, SnapshotSlice
from unibus.stores.seam.log_end import NOT_IN_ORDER, NOT_LOADED

log = SafeLogger("unibus")

TRIM_SEGMENTS: Final = 8
"""Segments that one step of a trim deletes: a commit may have to wait for it."""


class JsonFileJournal:
    """`files` is for tests on a simulated disk, which has no owner's lock."""

    snapshots = True

    def __init__(
        self,
        path: str,
        *,
        domain: str = "local",
        history_age_s: float = HISTORY_AGE_S_DEFAULT,
        history_bytes: int = HISTORY_BYTES_DEFAULT,
        reserve: Reserve | None = None,
        files: Files | None = None,
    ) -> None:
        self.url = f"jsonfile:///{path}"
        self.durability = Durability.D2
        self.identity = ""
        self._folder = path if files is not None else os.path.realpath(path)
        self._name = Path(path).name
        self.domain = domain
        self._history_age_ns = round(history_age_s * 1e9)
        self._history_bytes = history_bytes
        self._mutex = threading.RLock()
        self._failure = ""
        self._reached = NOT_LOADED  # The last change that state.json records as written (log_end.py).
        self._names: dict[int, str] = {}
        self._found: State | None = None  # state.json as recovery has read it, until it ends.
        self._cursors = Cursors()
        self._owner: Owner | None = None
        self._files: Files = RealFiles() if files is None else files
        self.held = HeldFiles(self._files.identity)
        self.reserve = reserve or Reserve("", 0)
        self._log = JsonLog(self._files, f"{self._folder}/wal", self.reserve, self.held)
        self._snapshots = Snapshots(self._files, self._folder)
        try:
            # Order: checks that change nothing, the folder, the owner's lock, and only then files in it.
            check_place(self._files, self._folder)
            self._files.make_folder(self._folder)
            if files is None:
                self._owner = own(self._folder)
            self.reserve.open()
            self.domain = begin(self._files, self._folder, domain)
        except OSError as error:
            self.close()
            raise unavailable(self._folder, error) from error
        except BaseException:
            self.close()
            raise

    # Opening

    def load_snapshot(self, state: StoreState) -> Covered:
        if self._reached != NOT_LOADED:
            # A check of the open store. New objects: those of the journal have the state of the current write.
            with self._reading():
                folder_state = read_state(self._files, self._folder)
                snapshots = Snapshots(self._files, self._folder)
                return JsonLoading(self._files, self._folder, folder_state, snapshots).load_snapshot(state)
        with self._opening():
            self._found = folder_state = read_state(self._files, self._folder)
            self._cursors = read_cursors(self._files, self._folder)
            self._log.find()
            # The live dict of the state: names of new entities appear in the lines without another call.
            self._names = state.known
            return JsonLoading(self._files, self._folder, folder_state, self._snapshots).load_snapshot(state)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Holds `_mutex`, and raises errors of the operating system as those of an opening."""
        try:
            with self._mutex:
                yield
        except StoreFailed:
            raise  # It is an OSError, too.
        except OSError as error:
            raise unavailable(self._folder, error) from error

    def _begin(self) -> None:
        """The end of recovery, which has read and accepted everything: only now is anything written."""
        with self._opening():
            self._settle(self._found or read_state(self._files, self._folder))
            self._found = None
            self.held.hold(self._folder, f"{self._folder}/{STATE}")
            if self._owner is not None:
                self.held.hold(f"{self._folder}/{STATE}.lock")
            self.reserve.refill()

    def _settle(self, folder_state: State) -> None:
        """Write again what recovery has read, or what depends on it; from the reserve if the disk is full.

        After a failed sync the kernel's cache may have data that is not on disk, and reading cannot show that. So
        nothing is built on such data before it is written and synced once more.
        """
        # The log first: `reached` must not count a change that a power cut could still undo.
        self._from_reserve(self._log.begin)
        # A store of an earlier version has no identity yet.
        folder_state.identity = self.identity = folder_state.identity or uuid4().hex
        folder_state.written = instant_text(time.time_ns())
        folder_state.reached = self._reached = self._log.last
        self._from_reserve(lambda: write_state(self._files, self._folder, folder_state))
        if self._cursors.readers or self._cursors.oldest > 1:
            self._from_reserve(lambda: write_cursors(self._files, self._folder, self._cursors))
        # The steps that a crash may have interrupted, each idempotent: renames and deletions of a snapshot, the slices
        # of one that was not finished, segments that were pruned.
        self._snapshots.tidy(folder_state)
        if self._files.size(f"{self._folder}/{PART}") >= 0:
            self._files.remove(f"{self._folder}/{PART}")
        self._log.drop_before(self._cursors.oldest)

    # Writing

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        if self._reached == NOT_LOADED:
            self._begin()
        # The order: log, sync, then the slice. A crash before the write is complete leaves a group without its last
        # line, which recovery ignores. After it the group survives the process, after the sync a power cut. The slice
        # is not valid before state.json names its files, so a crash inside it leaves the snapshot before.
        with self._mutex, self._writing():
            self.held.check()
            if changes:
                # A write without space was cut off again (`append_whole`), so the same group can be written once more.
                self._from_reserve(lambda: self._log.append(first_seq, changes, self._names))
            if sync or part is not None:
                self._log.sync()
            if part is not None and not part.is_empty():
                # The group is written and perhaps synced already. A slice that fails for want of space only waits; any
                # other error leaves the files of the snapshot in an unknown state, so it stops the store.
                part.put_off = not _try_beside(self.reserve, lambda: self._take(part))
            elif self._log.is_full():
                _try_beside(self.reserve, self._log.roll)

    def _take(self, part: SnapshotSlice) -> None:
        if not self._snapshots.is_running():
            self._log.roll()  # The snapshot covers whole segments: they can be deleted when history is pruned.
        self._snapshots.take(part)
        if part.last is not None:
            # Everything that the snapshot covers is synced in the log by `append`, so state.json never refers to a
            # change that a power cut could remove.
            try:
                self._snapshots.finish(part.last, instant_text(time.time_ns()))
            finally:
                # The name leads to a new file now, also if a step after the switch has failed for want of space:
                # without this the next check would report it as replaced.
                self.held.hold(f"{self._folder}/{STATE}")
            # After the switch: until then readers of these messages need their lines in the log.
            self._log.forget_bodies(part.last.seq)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """After an error it is unknown what is on disk: nothing more is written, and a sync is never tried again."""
        if self._failure:
            raise failed(self._failure)
        try:
            yield
        except OSError as error:
            self._failure = f"{self._name} could not be written: {error.strerror or error}"
            raise failed(self._failure) from error
        except BaseException as error:
            # Also Ctrl-C: it may have interrupted a write at any byte.
            self._failure = f"{self._name} could not be written: {error}"
            raise

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        return GroupFate.UNKNOWN  # A second sync after a failed one may report success without having written.

    @property
    def is_quick(self) -> bool:
        if not self._mutex.acquire(blocking=False):
            return False
        try:
            # A full segment is followed by a roll, which syncs twice.
            return not self._log.is_full()
        finally:
            self._mutex.release()

    # Reading

    def read_bodies(self, entries: Iterable[StoredMessage]) -> dict[StoredMessage, bytes]:
        found: dict[StoredMessage, bytes] = {}
        with self._reading():
            for entry in entries:
                if entry.home_entity:
                    found[entry] = self._snapshots.body(entry.home_entity, entry.home_sequence)
                else:
                    found[entry] = self._log.body(entry.home_sequence)
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Holds `_mutex`, and raises errors of the operating system as ours."""
        try:
            with self._mutex:
                yield
        except StoreFailed:
            raise  # It is an OSError, too.
        except OSError as error:
            raise StoreFailed(
                f"{self._name} could not be read: {error.strerror or error}", "repair the disk, and open the bus again"
            ) from error

    def find(self, message_id: str) -> list[int]:
        """Reads the whole history, but decodes only lines that have the id in them."""
        with self._reading():
            return [seq for seq, change in self._log.changes_with(mentions(message_id)) if is_about(change, message_id)]

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        if self._reached == NOT_LOADED:
            with self._opening():
                yield from self._log.recover(seq)
        else:
            with self._reading():
                yield from self._log.changes_after(seq)

    def changes_at(self, seqs: Sequence[int]) -> list[tuple[int, Change]]:
        with self._reading():
            return list(self._log.changes_at(seqs))

    # History and its readers

    def cursors(self, moved: Mapping[str, int] | None = None) -> dict[str, int]:
        with self._mutex:
            if moved:
                # A new dict: `_keep_cursors` changes memory only after the write, so the old one must stay unchanged
                # until then.
                readers = {name: CursorRecord(seq) for name, seq in moved.items()}
                self._keep_cursors(self._cursors.oldest, {**self._cursors.readers, **readers})
            return {name: cursor.seq for name, cursor in self._cursors.readers.items()}

    def _keep_cursors(self, oldest: int, readers: dict[str, CursorRecord]) -> None:
        """Write to disk first, then change memory: a power cut must not undo a position that a reader has seen.

        An error does not stop the store, because the log is not touched: the next try writes a new file.
        """
        cursors = Cursors(oldest=oldest, readers=readers)
        try:
            write_cursors(self._files, self._folder, cursors)
        except OSError as error:
            if has_no_space(error):
                raise StoreFull(
                    f"{self._name}/{CURSORS} could not be written: the disk is full", "free space"
                ) from error
            raise failed(f"{self._name}/{CURSORS} could not be written: {error.strerror or error}") from error
        self._cursors = cursors

    def trim(self, now_ns: int, up_to_seq: int) -> bool:
        """Delete segments from the old end while they are too old or the log is too large; a few per call."""
        with self._reading():
            kept = self._log
            oldest, left, count = 0, kept.size_bytes(), 0
            for segment, after in zip(kept.segments[:TRIM_SEGMENTS], kept.segments[1:], strict=False):
                # A segment is deleted only if the snapshot covers it to its last change, which is the one before the
                # next segment. The last segment has no next one, so it always stays.
                if after.first - 1 > up_to_seq:
                    break
                if left <= self._history_bytes and kept.last_ns(segment) >= now_ns - self._history_age_ns:
                    break
                oldest, left, count = after.first, left - segment.size, count + 1
            if oldest:
                # Recorded before anything is deleted. A crash in between leaves segments that `oldest` excludes: the
                # next opening deletes them.
                self._keep_cursors(oldest, self._cursors.readers)
                kept.drop_before(oldest)
        return count == TRIM_SEGMENTS

    # Read without `_mutex`: health must work while a write hangs. The last segment is never removed.

    @property
    def oldest(self) -> int:
        return self._log.segments[0].first if self._log.segments else self._log.last + 1

    @property
    def last(self) -> int:
        return self._log.reached if self._reached == NOT_LOADED else self._log.last

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes()

    def close(self) -> None:
        with self._mutex:
            try:
                # Nothing is written or deleted if a file was replaced: the names may lead to another store by now.
                if not self.held.release_all():
                    self._write_reached()
                    self._snapshots.abandon()
                    self.reserve.close()
                try:
                    self._snapshots.close()
                finally:
                    self._log.close()
            except OSError as error:
                raise StoreFailed(f"{self._name}: {error.strerror or error}", "repair the disk") from error
            finally:
                # Last: from here on another process may open the folder.
                if self._owner is not None:
                    self._owner.release()
                    self._owner = None

    def _write_reached(self) -> None:
        """The last write of an orderly close: how far the log reaches. The log is synced before it (log_end.py)."""
        if NOT_LOADED < self._reached < self._log.last and not self._failure:
            self._reached = self._log.last  # Set first: a second `close` does not write it again.
            try:
                self._log.sync()
                # From the file, not from memory: the last snapshot has written it, and everything but this number
                # stays.
                folder_state = read_state(self._files, self._folder)
                folder_state.reached = self._reached
                write_state(self._files, self._folder, folder_state)
            except (OSError, BusError) as error:
                log.warning(NOT_IN_ORDER, self._name, error)

    def _from_reserve(self, write: Callable[[], None]) -> None:
        """Repeat the write, each time with one more piece of the reserve, until it finds space or none is left."""
        while True:
            try:
                write()
                return
            except OSError as error:
                if not has_no_space(error):
                    raise
                if not self.reserve.release():
                    raise StoreFull(
                        f"{self._name} could not be written: {error.strerror}",
                        "nothing of the last calls was stored; free space, and open the bus again",
                    ) from error


def failed(what: str) -> StoreFailed:
    return StoreFailed(
        what, "the last calls may or may not have taken effect; free space or repair the disk, and open the bus again"
    )


def _try_beside(reserve: Reserve, write: Callable[[], None]) -> bool:
    """Write something besides a group, which is written already. False if there is no space for it.

    The reserve is for groups only, so on a full disk it is not tried.
    """
    if reserve.full:
        return False
    try:
        write()
    except OSError as error:
        if not has_no_space(error):
            raise
        return False
    return True
