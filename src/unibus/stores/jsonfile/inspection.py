"""What `unibus check` and `unibus repair` need of a JSON folder: read its files without changing them, and write a new
one."""

import time
from collections.abc import Iterator, Sequence

from unibus.core.lifecycle.state.changes import Passed, Sent
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreDamaged, StoreFailed, StoreUnavailable, StoreVersion
from unibus.stores.files.disk import Files, RealFiles
from unibus.stores.jsonfile.folder import begin, check_place, unavailable
from unibus.stores.jsonfile.forms import instant_text
from unibus.stores.jsonfile.lines import JsonLine, is_whole, read_line
from unibus.stores.jsonfile.load import JsonLoading
from unibus.stores.jsonfile.log import JsonLog, LogSegment, damaged, lines_of
from unibus.stores.jsonfile.snapshot import Snapshots
from unibus.stores.jsonfile.state import STATE, CursorRecord, Cursors, read_cursors, read_state, write_cursors
from unibus.stores.seam.store_files import LoggedGroup, Reader, SalvagedStore


class JsonFiles:
    def __init__(self, folder: str, url: str) -> None:
        self.url = url
        self._files: Files = RealFiles()
        self._folder = folder
        if self._files.is_folder(folder) and self._files.size(f"{folder}/{STATE}") < 0:
            if self._files.is_folder(f"{folder}/wal"):
                raise damaged(f"{folder}/{STATE}", 0, "it is missing")
            raise StoreUnavailable(f"{folder} has no {STATE}: it is not a store of unibus", "name another folder")
        try:
            self._state = read_state(self._files, folder)
            self._log = JsonLog(self._files, f"{folder}/wal")
            self._log.find()
            self._cursors = read_cursors(self._files, folder)
        except OSError as error:
            raise unavailable(folder, error) from error
        self.domain = self._state.domain
        self.reached = self._state.reached
        self._snapshots = Snapshots(self._files, folder)
        # By seq: segment, offset and length of each line of the log, to read the data of messages.
        self._places: dict[int, tuple[LogSegment, int, int]] = {}

    def load_snapshot(self, state: StoreState) -> tuple[int, int]:
        try:
            covered = JsonLoading(self._files, self._folder, self._state, self._snapshots).load_snapshot(state)
        except OSError as error:
            raise unavailable(self._folder, error) from error
        return covered.seq, covered.overlap

    def groups(self, after: int) -> Iterator[LoggedGroup]:
        # Problems are held back until a valid group follows: only then is it known whether they are before `after`,
        # where the snapshot has everything, or after it.
        problems: list[LoggedGroup] = []
        for segment in self._log.segments:
            is_last = segment is self._log.segments[-1]
            for group in self._groups_of(segment, is_last):
                if group.problem:
                    problems.append(group)
                    continue
                if group.first > after + 1:
                    yield from problems
                problems = []  # They are before `after`: the snapshot has everything up to it.
                skipped = max(0, after + 1 - group.first)
                if group.changes[skipped:]:
                    yield group._replace(first=group.first + skipped, changes=group.changes[skipped:])
        yield from problems

    def _groups_of(self, segment: LogSegment, is_last: bool) -> Iterator[LoggedGroup]:
        """Groups of lines with right checksums. A group with another line is a problem, up to where the next one
        begins."""
        data = self._files.read(segment.path)
        pending: list[JsonLine] = []
        broken, broken_end = 0, 0  # The first wrong line of a group, and where it ends.
        skip_to = 0
        for number, (offset, text) in enumerate(lines_of(data, 0), 1):
            line = self._line(segment, number, text)
            # A wrong line may have been any line of a group, so the lines before it that wait for the end of their
            # group are dropped with it.
            if line is None:
                broken, broken_end = broken or number, offset + len(text) + 1
                pending = []
                continue
            self._places[line.seq] = (segment, offset, len(text))
            if broken:
                yield LoggedGroup(0, 0, [], f"{segment.path}, line {broken}: it is not what was written")
                # A line that was written when the broken one was on disk already is of another group. Any other line
                # may be of the same group, which is valid as a whole or not at all.
                skip_to = line.seq if line.synced >= broken_end else line.group + 1
                broken = 0
            if line.seq < skip_to:
                continue
            pending.append(line)
            if line.seq == line.group:
                yield LoggedGroup(pending[0].seq, line.seq, [each.change for each in pending])
                pending = []
        # In the last segment this is a torn end, which a crash leaves and recovery ignores, too.
        if (broken or pending) and not is_last:
            yield LoggedGroup(0, 0, [], f"{segment.path}: its end is not what was written")

    def _line(self, segment: LogSegment, number: int, text: bytes) -> JsonLine | None:
        if not is_whole(text):
            return None
        try:
            return read_line(text, segment.path, number)
        except StoreDamaged:
            return None

    def bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        try:
            return {entry: self._body(entry) for entry in entries}
        except (StoreDamaged, StoreVersion):
            raise
        except OSError as error:
            raise StoreFailed(
                f"{self._folder}: {error.strerror or error}", "check that the disk can be read"
            ) from error

    def _body(self, entry: StoredMessage) -> bytes:
        if entry.home_entity:
            return self._snapshots.body(entry.home_entity, entry.home_sequence)
        segment, offset, length = self._places[entry.home_sequence]
        change = read_line(self._files.read(segment.path, offset, length), segment.path, 0).change
        if not isinstance(change, (Sent, Passed)) or not change.data:
            raise StoreDamaged(f"{segment.path} has no message in change {entry.home_sequence}", "restore a backup")
        return change.data

    def readers(self) -> list[Reader]:
        return [Reader(name, cursor.seq) for name, cursor in self._cursors.readers.items()]

    def close(self) -> None:
        """Nothing is open."""


def write_store(folder: str, store: SalvagedStore) -> None:
    """Write a whole store. A crash leaves a part of one, which never gets the name of a store (repair.py)."""
    disk: Files = RealFiles()
    check_place(disk, folder)
    disk.make_folder(folder)
    begin(disk, folder, store.domain)
    log, snapshots = JsonLog(disk, f"{folder}/wal"), Snapshots(disk, folder)
    try:
        log.last = store.history_from - 1
        log.begin()
        for first, changes in store.groups:
            log.append(first, changes, store.names)
            if log.is_full():
                log.roll()
        log.sync()
        for part in store.slices:
            snapshots.take(part)
        snapshots.finish(store.summary, instant_text(time.time_ns()))
        readers = {each.name: CursorRecord(each.seq) for each in store.readers}
        if readers or store.history_from > 1:
            write_cursors(disk, folder, Cursors(oldest=store.history_from, readers=readers))
    finally:
        log.close()
        snapshots.close()
