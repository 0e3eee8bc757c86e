"""The manifest of a capture directory: its segments in order, and the gaps between them. A file that the manifest does
not name is not part of the capture.

    DIR/capture.json      metadata of the source; written to a temporary file, synced, renamed
    DIR/manifest.jsonl    append-only, one JSON object per line, synced after each append

The field "op" says what a line does:

    add             a segment is part of the capture
    gap             the store pruned these events before they were captured
    remove          a segment is no longer part of the capture
    remove_bodies   its bodies are deleted, the segment stays
    begin           only as the first line of a rewritten manifest (below)

Invariant: adds and gaps are contiguous, each begins where the one before it ended.

Compaction removes several segments and adds one that covers the same range. A crash between these lines must not remove
anything, so such a `remove` names in "by" the new file, and has no effect until that file is added.

A manifest that has grown long is rewritten to a temporary file and renamed, with the effective lines only. Its first
line is then `begin`: the end of the range that is no longer listed, the gaps in that range, and the removed files that
readers may still have open.

A line that a crash cut short can only be the last one: the beginning of a record, or bytes that are no text, which a
disk left in a block that was never synced. Readers ignore it and the writer cuts it off. Any other text at the end was
not written by us; that, and an unreadable line before lines that have an effect, is CaptureDamaged.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from unibus.errors import CaptureDamaged, StoreUnavailable, StoreVersion
from unibus.stores.files.disk import Files, RealFiles, replace
from unibus.stores.files.local_folder import local_folder

FORMAT: Final = 1
ABOUT: Final = "capture.json"
LINES: Final = "manifest.jsonl"
LINES_MIN: Final = 1_000
"""A manifest with fewer lines is not rewritten."""
SEGMENTS: Final = "segments"
BODIES: Final = "bodies"


class CaptureMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """capture.json: one directory is one source, one store, one sequence space."""

    format: int
    domain: str
    store: str = ""
    made_us: int = 0
    settings: dict[str, object] = {}
    """The policy of the capture, for the next start: see settings.py."""
    changed: list[dict[str, object]] = []
    """When they were changed, and what they were before."""


class BodiesFile(msgspec.Struct, frozen=True):
    file: str
    rows: int
    bytes: int
    crc32: int


class Segment(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="add"):
    """An `add` line: this file covers events first..last, and may have fewer rows. `file` is a relative path."""

    first: int
    last: int
    rows: int
    bytes: int
    crc32: int
    from_us: int
    to_us: int
    sealed_us: int
    file: str
    bodies: BodiesFile | None = None
    tail: int = 0
    """A fingerprint of the last row, which identifies the store that was read. 0: there is none."""

    @property
    def newest_us(self) -> int:
        """When its newest event happened, for retention. At most the time of sealing: an event stamped by a clock that
        was ahead would keep the segment for too long."""
        return min(self.to_us, self.sealed_us)


class Gap(msgspec.Struct, frozen=True, tag_field="op", tag="gap"):
    first: int
    last: int


class Removed(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="remove"):
    first: int
    last: int
    file: str
    by: str = ""
    at_us: int = 0


class Begin(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="begin"):
    """Only as the first line: events up to `last` are no longer part of the capture."""

    last: int
    gaps: list[tuple[int, int]] = []
    removed: dict[str, int] = {}
    tail: int = 0
    """The fingerprint of the event `last`, if it was captured."""


class RemovedBodies(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="remove_bodies"):
    file: str
    at_us: int = 0


Line = Segment | Gap | Removed | RemovedBodies | Begin
_decode: Final[Callable[[bytes], Line]] = msgspec.json.Decoder(Line).decode
_decode_about: Final = msgspec.json.Decoder(CaptureMetadata).decode
_KNOWN: Final = frozenset({"add", "gap", "remove", "remove_bodies", "begin"})
_HEADS: Final = tuple(f'{{"op":"{op}",'.encode() for op in sorted(_KNOWN))
"""The first bytes of a record, as `_encoded` writes them."""
_TEXT_CONTROLS: Final = b"\t\r"


def file_of(kind: str, first: int, last: int) -> str:
    return f"{kind}/{first:020}-{last:020}.parquet"


def is_capture(folder: str) -> bool:
    """Whether the folder is a capture directory. OSError if the folder cannot be read."""
    try:
        os.stat(os.path.join(folder, ABOUT))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@dataclass
class Manifest:
    """The current content of the capture. `last` is its position, which retention does not change."""

    folder: str
    about: CaptureMetadata
    segments: list[Segment] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    last: int = 0
    tail: int = 0
    """The fingerprint of the event `last`, also after its segment was removed. 0: that event is in a gap."""
    whole_bytes: int = 0
    """The size of manifest.jsonl without a torn last line."""
    removed: dict[str, int] = field(default_factory=dict)
    """Removed files and when they were removed: readers may still have them open. 0: may be deleted at once."""
    lines: int = 0
    void: dict[str, list[Removed]] = field(default_factory=dict)
    """Compactions whose `add` line is not written yet, by the file that it will name."""

    @property
    def domain(self) -> str:
        return self.about.domain

    @property
    def first(self) -> int:
        """The first event that can be read; 0 if there is none."""
        return self.segments[0].first if self.segments else 0

    def path(self, file: str) -> str:
        return os.path.join(self.folder, file)

    def names(self) -> set[str]:
        """Every file that is part of the capture."""
        bodies = {each.bodies.file for each in self.segments if each.bodies is not None}
        return bodies | {each.file for each in self.segments}

    @staticmethod
    def load(folder: str, files: Files | None = None) -> "Manifest":
        """Read the manifest of a folder. StoreUnavailable if there is none, CaptureDamaged if it is inconsistent."""
        files = files or RealFiles()
        folder = local_folder(folder, "a capture")
        manifest = Manifest(folder, load_about(folder, files))
        manifest.follow(files)
        return manifest

    def follow(self, files: Files | None = None) -> None:
        """Read the lines that were appended since the last call."""
        files = files or RealFiles()
        path = self.path(LINES)
        # Only complete lines count: a reader may see the beginning of a line that the writer is appending. It is read
        # again at the next call.
        if files.size(path) > self.whole_bytes:
            lines, size = _lines(files.read(path, self.whole_bytes), path)
            for line in lines:
                self._take(line)
            self.whole_bytes += size

    def _take(self, line: Line) -> None:
        if isinstance(line, Removed) and line.by:
            # No effect until the new file is added: a crash between the two lines leaves the old segments valid.
            self.void.setdefault(line.by, []).append(line)
            self.lines += 1
        else:
            self.take(line, self.void.pop(line.file, []) if isinstance(line, Segment) else [])

    def take(self, line: Line, replaced: Sequence[Removed] = ()) -> None:
        """Apply one line that has an effect. `replaced` are the segments that it replaces, with compaction."""
        self.lines += 1
        if isinstance(line, Begin):
            if self.last:
                raise self._damaged('a line "begin" is not the first line')
            # Retention has removed everything up to there. The position of the capture must not be lost with it.
            self.last, self.tail = line.last, line.tail
            self.gaps, self.removed = list(line.gaps), dict(line.removed)
        elif isinstance(line, Gap):
            self._follows(line.first, line.last, 0)
            self.gaps.append((line.first, line.last))
        elif isinstance(line, Segment):
            self._add(line, replaced)
        elif isinstance(line, Removed):
            self.segments = [each for each in self.segments if each.file != line.file]
            self.removed[line.file] = line.at_us
        else:
            self.segments = [_without_bodies(each, line.file) for each in self.segments]
            # Bodies are removed for privacy: without a grace period for readers.
            self.removed[line.file] = 0

    def _add(self, segment: Segment, replaced: Sequence[Removed]) -> None:
        until = {each.file: each.at_us for each in replaced}
        gone = [each for each in self.segments if each.file in until]
        self.removed.update(until)
        self.removed.update({each.bodies.file: until[each.file] for each in gone if each.bodies is not None})
        if not gone:
            self._follows(segment.first, segment.last, segment.tail)
            self.segments.append(segment)
            return
        # Else rows would be lost or exist twice.
        if (gone[0].first, gone[-1].last) != (segment.first, segment.last):
            raise self._damaged(f"{segment.file} does not cover the range of the segments that it replaces")
        at = self.segments.index(gone[0])
        self.segments[at : at + len(gone)] = [segment]

    def _follows(self, first: int, last: int, tail: int) -> None:
        # The invariant that makes the manifest a cursor: no hole and no overlap, whatever the writer did.
        if first != self.last + 1 or last < first:
            raise self._damaged(f"a line has events {first} to {last}, but event {self.last + 1} has to follow")
        self.last, self.tail = last, tail

    def _damaged(self, what: str) -> CaptureDamaged:
        return _damaged(os.path.join(self.folder, LINES), what)


def _without_bodies(segment: Segment, file: str) -> Segment:
    if segment.bodies is None or segment.bodies.file != file:
        return segment
    return msgspec.structs.replace(segment, bodies=None)


def load_about(folder: str, files: Files | None = None) -> CaptureMetadata:
    files = files or RealFiles()
    folder = local_folder(folder, "a capture")
    path = os.path.join(folder, ABOUT)
    if files.size(path) < 0:
        raise StoreUnavailable(f"{folder} is no capture directory", "`unibus capture URL DIR` creates one")
    try:
        about = _decode_about(files.read(path))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    if about.format > FORMAT:
        raise StoreVersion(f"{path} has format {about.format}, and this version reads {FORMAT}", "upgrade unibus")
    return about


def save_about(folder: str, about: CaptureMetadata, files: Files) -> None:
    replace(files, os.path.join(folder, ABOUT), msgspec.json.format(msgspec.json.encode(about), indent=1) + b"\n")


def _lines(data: bytes, path: str) -> tuple[list[Line], int]:
    """The lines without a torn tail, and the offset where that begins."""
    lines: list[Line] = []
    whole = 0
    rows = data.split(b"\n")
    for number, row in enumerate(rows[:-1]):  # What follows the last line end is nothing, or torn.
        line = _line(row, path)
        if line is None:
            later = rows[number + 1 : -1]
            # Bytes that are no text, with nothing effective after them, are what a power cut leaves in unsynced blocks.
            # Everything else was written by another program, or damaged.
            if _is_text(row) or any(_has_effect(_line(each, path)) for each in later):
                raise _damaged(path, f"line {number + 1} cannot be decoded")
            return lines, whole
        lines.append(line)
        whole += len(row) + 1
    if not _is_torn(rows[-1]):
        raise _damaged(path, f"{rows[-1][:60]!r} after its last line is not the beginning of a line")
    return lines, whole


def _is_torn(row: bytes) -> bool:
    """Whether a crash can have left these bytes: the beginning of a record without its line end."""
    return not _is_text(row) or any(row.startswith(head) or head.startswith(row) for head in _HEADS)


def _is_text(row: bytes) -> bool:
    """False for what only a disk can leave: zeros, or the former content of a block."""
    try:
        row.decode()
    except UnicodeDecodeError:
        return False
    return all(byte >= 0x20 or byte in _TEXT_CONTROLS for byte in row)


def _line(row: bytes, path: str) -> Line | None:
    try:
        return _decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        _check_known(row, path)
        return None


def _check_known(row: bytes, path: str) -> None:
    """A line that a newer version wrote is not torn: StoreVersion."""
    try:
        read = msgspec.json.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    if isinstance(read, dict) and isinstance(read.get("op"), str) and read["op"] not in _KNOWN:
        raise StoreVersion(f"{path} has a line {read['op']!r}, which this version does not know", "upgrade unibus")


def _has_effect(line: Line | None) -> bool:
    return line is not None and not (isinstance(line, Removed) and line.by)


def _damaged(path: str, what: str) -> CaptureDamaged:
    return CaptureDamaged(f"{path} is damaged: {what}", "restore it from a backup, or capture into a new directory")


class ManifestWriter:
    """Appends lines, each durable before the call returns, and keeps `manifest` up to date with the file."""

    def __init__(self, manifest: Manifest, files: Files) -> None:
        self.manifest = manifest
        self._files = files
        self._path = manifest.path(LINES)
        self._cut_torn_tail()

    def _cut_torn_tail(self) -> None:
        """Remove a torn last line. The file is replaced, not truncated: a crash could undo a truncation."""
        size = self._files.size(self._path)
        if size < 0:
            replace(self._files, self._path, b"")
        elif size > self.manifest.whole_bytes:
            replace(self._files, self._path, self._files.read(self._path, 0, self.manifest.whole_bytes))

    def append(self, *lines: Line) -> None:
        """Append all lines in one write."""
        # Disk first, then memory: after an error memory still agrees with what is durable.
        self._write(lines)
        for line in lines:
            self.manifest.take(line)

    def replace(self, gone: Sequence[Segment], segment: Segment) -> None:
        """Replace several segments by one. Atomic: after a crash either the old ones or the new one are effective."""
        at_us = time.time_ns() // 1_000
        removed = [Removed(each.first, each.last, each.file, segment.file, at_us) for each in gone]
        # The order matters: without the second write these lines have no effect.
        self._write(removed)
        self._write([segment])
        self.manifest.lines += len(removed)
        self.manifest.take(segment, removed)

    def shorten(self, since_us: int) -> bool:
        """Rewrite the manifest if most of its lines have no effect any more. Keeps the names of files that were removed
        after `since_us`, because readers may have them open."""
        manifest = self.manifest
        if manifest.lines < LINES_MIN or manifest.lines < 4 * (len(manifest.segments) + len(manifest.gaps)):
            return False
        # Everything before the first segment is described by the one `begin` line.
        first = manifest.first or manifest.last + 1
        # A file whose grace period is over was deleted by `sweep`, or will be: it is not named anywhere then.
        manifest.removed = {file: at_us for file, at_us in manifest.removed.items() if at_us > since_us}
        tail = manifest.tail if first > manifest.last else 0
        begin = Begin(first - 1, [gap for gap in manifest.gaps if gap[0] < first], manifest.removed, tail)
        later: list[Segment | Gap] = [Gap(*gap) for gap in manifest.gaps if gap[0] >= first]
        listed = sorted([*manifest.segments, *later], key=lambda line: line.first)
        data = _encoded([begin, *listed])
        # Through a temporary file and a rename. Readers notice it by the new inode (sources.py).
        replace(self._files, self._path, data)
        manifest.lines, manifest.whole_bytes = 1 + len(listed), len(data)
        return True

    def _write(self, lines: Sequence[Line]) -> None:
        data = _encoded(lines)
        # Opened for each append: the file may have been replaced by `shorten`, and appends are rare.
        handle = self._files.open(self._path)
        try:
            self._files.write(handle, data)
            self._files.sync(handle)
        finally:
            self._files.close(handle)
        self.manifest.whole_bytes += len(data)


def _encoded(lines: Sequence[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
