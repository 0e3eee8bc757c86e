"""The write-ahead log in JSON Lines, in segments: `wal/000000000001.jsonl` begins with change 1.

A group of changes is one write, and one sync if a call asks for it. Only the last segment can have a torn end, because
a segment is synced before the next one is created. A segment that a snapshot covers is history, and is deleted as a
whole.

    append ──▶ lines of the group ──▶ one write at the end of the last segment ──▶ sync ──▶ acknowledged
    roll   ──▶ sync the last segment ──▶ create the next one ──▶ sync the folder
    begin  ──▶ at each opening: the last segment is replaced by a synced copy without its torn end

**The end of the log.** Recovery has to tell a torn write from damage:

    line 1  line 2  li…               a line with a wrong checksum, or a group without its last line, at the end:
                                      the process died while it wrote. Nothing of the group was acknowledged: cut it off
    line 1  l##e 2  line 3 synced=N   a later line says that the bytes up to N were on disk when it was written: line 2
                                      was durable once, and perhaps acknowledged. The file is damaged: StoreDamaged
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from unibus.core.lifecycle.state.changes import Change, Passed, Sent
from unibus.errors import DAMAGED_HINT, StoreDamaged
from unibus.stores.files.disk import Files, append_whole, replace
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.jsonfile.lines import JsonLine, is_whole, line_of, read_line

SEGMENT_BYTES = 8_000_000  # Not final: tests make small segments.
_HINT_BYTES: Final = 65_536
_NAME_DIGITS: Final = 12
_ENDING: Final = ".jsonl"
_STEPS: Final = 4
"""On a nearly full disk a segment is 1/4 of the reserve long."""


class LogPosition(NamedTuple):
    """A line of a segment."""

    offset: int
    number: int
    line: JsonLine


class LogSegment:
    """`hints` are positions to start reading from: (seq, offset, number of the line), each at the start of a group."""

    def __init__(self, folder: str, first: int, size: int) -> None:
        self.first = first
        self.path = f"{folder}/{first:0{_NAME_DIGITS}d}{_ENDING}"
        self.size = size
        self.last_ns = 0  # The time of its last change; 0 if it was not read yet.
        self.hints: list[tuple[int, int, int]] = [(first, 0, 1)]

    def hint(self, seq: int, offset: int, number: int) -> None:
        if offset - self.hints[-1][1] >= _HINT_BYTES:
            self.hints.append((seq, offset, number))

    def begin_at(self, seq: int) -> tuple[int, int]:
        """The nearest hint at or before the change: offset and line."""
        _, offset, number = self.hints[bisect_right(self.hints, (seq, 1 << 62, 0)) - 1]
        return offset, number


class JsonLog:
    """The segments of one folder. The caller makes sure that one thread at a time uses it."""

    def __init__(
        self, files: Files, folder: str, reserve: Reserve | None = None, held: HeldFiles | None = None
    ) -> None:
        """`reserve` and `held` are for the journal; a reader, and a repair that writes a new folder, need neither."""
        self.last = 0
        self.reached = 0  # The last change that recovery has found in the log.
        self.segments: list[LogSegment] = []
        self._files = files
        self._folder = folder
        self._reserve = reserve or Reserve("", 0)
        self._held = held or HeldFiles()
        self._look_at = 0  # The segment size at which to ask the file system for its free space.
        self._is_low = False
        self._handle = -1
        # Written into each line: recovery uses it to tell a torn end from damage (`_check_end`).
        self._synced = 0  # How many bytes of the last segment are on disk.
        self._lines = 0  # How many lines it has.
        # Messages whose data is only in the log: seq, offset and length of each line.
        self._seqs, self._offsets, self._lengths = array("q"), array("q"), array("q")

    # Opening

    def find(self) -> None:
        """List the segments of the folder."""
        self.segments.clear()
        names = sorted(name for name in self._files.list(self._folder) if is_segment(name))
        for name in names:
            size = self._files.size(f"{self._folder}/{name}")
            self.segments.append(LogSegment(self._folder, int(name.removesuffix(_ENDING)), size))

    def recover(self, after: int) -> Iterator[tuple[int, Change]]:
        """The changes after one, with their seqs. A torn group at the end is left out; `begin` cuts it off."""
        self.last = after
        for segment in self.segments[self._index_of(after + 1) :]:
            # Segments are created in order and deleted from the front, so a gap in the middle cannot come from a crash.
            if segment.first > self.last + 1:
                raise damaged(segment.path, 1, f"changes {self.last + 1} to {segment.first - 1} are missing before it")
            yield from self._recover(segment, segment is self.segments[-1])

    def _recover(self, segment: LogSegment, may_end: bool) -> Iterator[tuple[int, Change]]:
        data = self._files.read(segment.path)
        group: list[LogPosition] = []
        end, number, expected = 0, 1, segment.first
        for place in positions_of(data, segment.path, expected):
            number = place.number + 1
            # A group counts only with its last line, whose `group` is its own seq. So a write that was cut between two
            # lines leaves no half of a group.
            group.append(place)
            if place.line.group == place.line.seq:
                expected = place.line.seq + 1
                end = data.index(b"\n", place.offset) + 1
                segment.hint(group[0].line.seq, group[0].offset, group[0].number)
                yield from self._take(group, end)
                group = []
        # Bytes after the last complete group: torn by a crash, or damaged.
        if end != len(data):
            self._check_end(segment, data, end, number, may_end)
        # `expected` counts also groups that the snapshot covers, so this is the end of the log itself (log_end.py).
        self.reached = expected - 1
        # From here on the torn bytes are not part of the segment; they are still in the file until `begin`.
        segment.size = end
        self._synced = end
        self._lines = data.count(b"\n", 0, end)

    def _take(self, group: list[LogPosition], end: int) -> list[tuple[int, Change]]:
        """The changes of a group that the snapshot does not cover."""
        changes = []
        for index, place in enumerate(group):
            if place.line.seq > self.last:
                next_offset = group[index + 1].offset if index + 1 < len(group) else end
                self._index_body(place.line.seq, place.line.change, place.offset, next_offset - place.offset)
                changes.append((place.line.seq, place.line.change))
        self.last += len(changes)
        return changes

    def _check_end(self, segment: LogSegment, data: bytes, end: int, number: int, may_end: bool) -> None:
        """There is no complete group after `end`, because of line `number`. StoreDamaged if it was durable once.

        `synced` of a later line is how many bytes were on disk when that line was written.
        """
        if not may_end:
            raise damaged(segment.path, number, "it is not what was written, and the log goes on after it")
        # Any complete line after the damage can prove it, also one of an incomplete group: `synced` was true when the
        # line was written. Without such a line the end is taken for torn: what was never synced was never acknowledged
        # as D2.
        for offset, line in lines_of(data, end):
            if is_whole(line) and read_line(line, segment.path, 0).synced > end:
                later = data.count(b"\n", 0, offset) + 1
                raise damaged(segment.path, number, f"it is not what was written, but was synced before line {later}")

    def begin(self) -> None:
        """Prepare for writing: replace the last segment by a synced copy of its complete groups.

        After that, data that a failed sync had left in the kernel's cache only is on disk, and a torn group is gone. A
        crash during the copy leaves the old segment, and the next opening does the same again.
        """
        if not self.segments:
            self._create(self.last + 1)
            return
        segment = self.segments[-1]
        # A copy and not a truncation plus a sync: pages that an earlier process could not write may be marked clean in
        # the kernel's cache, and a sync would not write them again. New pages are certainly dirty.
        replace(self._files, segment.path, self._files.read(segment.path, 0, segment.size))
        self._handle = self._files.open(segment.path)
        self._held.hold(segment.path)
        self._synced = segment.size

    def _create(self, first: int) -> None:
        """Create the next segment. If that fails, the segment before stays the last one.

        The folder is synced before the first line is written: a power cut must not lose the name of a file that has
        acknowledged lines.
        """
        segment = LogSegment(self._folder, first, 0)
        # An administrator may have opened the log to a group of users: the next segment gets the same mode.
        handle = self._files.create(segment.path, self.segments[-1].path if self.segments else "")
        self._files.sync_folder(self._folder)
        # From here on nothing can fail for want of space. Until here the old segment is still the last one.
        before, self._handle = self._handle, handle
        if before >= 0:
            self._held.release(self.segments[-1].path)
            self._files.close(before)
        self._held.hold(segment.path)
        self.segments.append(segment)
        self._synced, self._lines = 0, 0
        self._look_at, self._is_low = 0, False

    # Writing

    def append(self, first_seq: int, changes: Sequence[Change], names: dict[int, str]) -> None:
        """Write a group. Raises OSError: without space nothing of the group was written, else the outcome is
        unknown."""
        segment = self.segments[-1]
        last = first_seq + len(changes) - 1
        group = last if len(changes) > 1 else 0
        offset = segment.size
        # All lines before the write: an error in one of them leaves the file untouched.
        lines = [
            line_of(seq, change, names.get(change.entity, ""), group, self._synced)
            for seq, change in enumerate(changes, first_seq)
        ]
        # One write for the whole group. Everything below changes memory only, after the write has succeeded.
        append_whole(self._files, self._handle, b"".join(lines), segment.size)
        segment.hint(first_seq, offset, self._lines + 1)
        for seq, change in enumerate(changes, first_seq):
            length = len(lines[seq - first_seq])
            self._index_body(seq, change, offset, length)
            offset += length
        segment.size = offset
        segment.last_ns = changes[-1].at_ns
        self._lines += len(lines)
        self.last = last
        if self._reserve.wanted and offset >= self._look_at:
            self._look_at = offset + self._reserve.wanted // _STEPS
            self._is_low = self._reserve.is_low(2 * SEGMENT_BYTES)

    def sync(self) -> None:
        # Nothing written since the last sync: nothing to do. After a failed sync this is never called again, because
        # the journal stops.
        if self._synced < self.segments[-1].size:
            self._files.sync(self._handle)
            self._synced = self.segments[-1].size

    def is_full(self) -> bool:
        """On a nearly full disk segments are short, because opening the folder copies the last one."""
        size = self.segments[-1].size
        return size >= SEGMENT_BYTES or (self._is_low and size >= self._reserve.wanted // _STEPS)

    def roll(self) -> None:
        """Start a new segment, unless this one is empty. This one is synced first: only the last one can be torn."""
        if self.segments[-1].first > self.last:
            return
        # Without this, a power cut could tear this segment while the next one has acknowledged lines: recovery would
        # have to take the tear for damage.
        self.sync()
        self._create(self.last + 1)

    def close(self) -> None:
        if self._handle >= 0:
            # First the field: a second `close` must not close a number that another file has by then.
            handle, self._handle = self._handle, -1
            self._files.close(handle)

    # Reading

    def changes_after(self, seq: int) -> Iterator[tuple[int, Change]]:
        """Changes after `seq`. Everything up to here was recovered or written, so an incomplete line is damage."""
        index = self._index_of(seq + 1)
        while index < len(self.segments):
            segment = self.segments[index]
            for found, text in self._read(segment, max(seq + 1, segment.first)):
                yield found, _change_of(segment, found, text)
            index += 1

    def changes_with(self, mentioned: bytes) -> list[tuple[int, Change]]:
        """The changes whose lines have `mentioned` in them; only these are decoded."""
        return [
            (seq, _change_of(segment, seq, text))
            for segment in self.segments
            for seq, text in self._read(segment, segment.first)
            if mentioned in text
        ]

    def changes_at(self, seqs: Sequence[int]) -> Iterator[tuple[int, Change]]:
        """The changes with these seqs that exist. `seqs` ascend, so each segment is read once."""
        wanted = iter([seq for seq in seqs if self.segments[0].first <= seq <= self.last])
        seq = next(wanted, 0)
        while seq:
            segment = self.segments[self._index_of(seq)]
            for found, text in self._read(segment, seq):
                if found == seq:
                    yield seq, _change_of(segment, seq, text)
                    seq = next(wanted, 0)
                    if not seq or self.segments[self._index_of(seq)] is not segment:
                        break

    def _read(self, segment: LogSegment, first: int) -> Iterator[tuple[int, bytes]]:
        """The lines from a change on, undecoded. A line has one change, so its number gives the seq."""
        base, number = segment.begin_at(first)
        data = self._files.read(segment.path, base, segment.size - base)
        end, seq = 0, segment.first + number - 1
        for offset, text in lines_of(data, 0):
            if seq >= first:
                yield seq, text
            end = offset + len(text) + 1
            seq += 1
        # Every line that was recovered or written ends in a line break, so the file was changed under the open store.
        if base + end != segment.size:
            raise damaged(segment.path, seq - segment.first + 1, "it is not what was written")

    def _index_of(self, seq: int) -> int:
        """The index of the segment that has the change, or would have it."""
        return max(0, bisect_right(self.segments, seq, key=_first_of) - 1)

    # Messages whose data is in the log only

    def _index_body(self, seq: int, change: Change, offset: int, length: int) -> None:
        if isinstance(change, (Sent, Passed)) and change.data:
            self._seqs.append(seq)
            self._offsets.append(offset)
            self._lengths.append(length)

    def body(self, seq: int) -> bytes:
        at = bisect_right(self._seqs, seq) - 1
        segment = self.segments[self._index_of(seq)]
        if at < 0 or self._seqs[at] != seq:
            raise StoreDamaged(f"{segment.path} has no message in change {seq}", "restore a backup")
        offset = self._offsets[at]
        # Checked again at each read: the disk may have changed since, and a receiver must never get a damaged message.
        text = self._files.read(segment.path, offset, self._lengths[at])
        line = read_line(text[:-1], segment.path, 0) if is_whole(text[:-1]) else None
        if line is None or line.seq != seq or not isinstance(line.change, (Sent, Passed)):
            number = self._files.read(segment.path, 0, offset).count(b"\n") + 1
            raise damaged(segment.path, number, "it is not what was written")
        return line.change.data

    def forget_bodies(self, up_to: int) -> None:
        """The snapshot has the data up to this change now."""
        # The columns ascend, because changes are appended in order: the covered ones are the front.
        at = bisect_right(self._seqs, up_to)
        for column in (self._seqs, self._offsets, self._lengths):
            del column[:at]

    # History

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def last_ns(self, segment: LogSegment) -> int:
        """The time of the last change of a segment."""
        if not segment.last_ns:
            last = deque(self._read(segment, segment.first), 1)
            for seq, text in last:
                segment.last_ns = _change_of(segment, seq, text).at_ns
        return segment.last_ns

    def drop_before(self, oldest: int) -> None:
        """Delete the segments that end before this change."""
        while len(self.segments) > 1 and self.segments[1].first <= oldest:
            # Removed from the front, one by one: a crash in between leaves a log without a gap. The folder is not
            # synced: a file that a power cut restores is deleted at the next opening (`cursors.json` has `oldest`).
            self._files.remove(self.segments[0].path)
            del self.segments[0]


def _change_of(segment: LogSegment, seq: int, text: bytes) -> Change:
    """Its checksum was right when it was recovered or written; it is checked again each time it is decoded."""
    number = seq - segment.first + 1
    line = read_line(text, segment.path, number) if is_whole(text) else None
    if line is None or line.seq != seq:
        raise damaged(segment.path, number, "it is not what was written")
    return line.change


def _first_of(segment: LogSegment) -> int:
    return segment.first


def is_segment(name: str) -> bool:
    stem = name.removesuffix(_ENDING)
    return name.endswith(_ENDING) and stem.isascii() and stem.isdigit()


def lines_of(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Every line that ends in a line break, with its offset."""
    end = data.find(b"\n", start)
    while end >= 0:
        yield start, data[start:end]
        start = end + 1
        end = data.find(b"\n", start)


def positions_of(data: bytes, path: str, expected: int) -> Iterator[LogPosition]:
    """The lines of a segment, up to the first one with a wrong checksum or a gap in the seqs."""
    for index, (offset, text) in enumerate(lines_of(data, 0)):
        if not is_whole(text):
            return
        line = read_line(text, path, index + 1)
        if line.seq != expected + index:
            return
        yield LogPosition(offset, index + 1, line)


def damaged(path: str, number: int, what: str) -> StoreDamaged:
    where = f"{path}, line {number}" if number else path
    return StoreDamaged(f"{where} is damaged: {what}", DAMAGED_HINT)
