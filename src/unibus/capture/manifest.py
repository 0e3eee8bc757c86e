"""The manifest: which segments of a capture directory count, in which order, and what is missing between them.

    DIR/capture.json      which source it is; written beside, synced, renamed
    DIR/manifest.jsonl    append-only, one JSON object a line, synced after each append

Lines, told apart by "op": `add` (a segment counts), `gap` (the store forgot history before it was read), `remove` (a
segment does not count any more), `remove_bodies` (its bodies are gone, the segment stays). Adds and gaps follow each
other without a hole.

Compaction takes several segments away and adds one over their union. A crash between the lines must not take anything
away, so such a `remove` names in "by" the file that follows it, and is void until that file is added.

A manifest that has grown long is written anew, beside and renamed, with what counts. Its first line is then `begin`:
the end of what is not told any more, the gaps in that, and which files may still be read.

A line that was cut by a crash is the last one: the first part of a record, or bytes that are no text, which a disk left
where nothing was synced. Readers ignore it, the writer cuts it off. Any other text there was written by something else:
damage, as is a bad line with others after it that had an effect, and damage is named.
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
"""A manifest of fewer lines is not worth writing anew."""
SEGMENTS: Final = "segments"
BODIES: Final = "bodies"


class CaptureMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """capture.json: one directory is one source, one store, one sequence space."""

    format: int
    domain: str
    store: str = ""
    made_us: int = 0
    settings: dict[str, object] = {}
    """What the capture was told to do, for the next start: see settings.py."""
    changed: list[dict[str, object]] = []
    """When they were changed, and what they were before."""


class BodiesFile(msgspec.Struct, frozen=True):
    file: str
    rows: int
    bytes: int
    crc32: int


class Segment(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="add"):
    """An `add` line: rows first..last of history are in this file, or fewer than that. `file` is relative."""

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
    """A fingerprint of the last row: whether a store still is the one that was read. 0: there is none."""

    @property
    def newest_us(self) -> int:
        """When its newest event happened, for retention. No later than it was sealed, whatever a clock said that was
        ahead: such a segment would stay for ever."""
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
    """Only as the first line: what was up to `last` does not count any more."""

    last: int
    gaps: list[tuple[int, int]] = []
    removed: dict[str, int] = {}
    tail: int = 0
    """Of the event `last`, where it was captured."""


class RemovedBodies(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="remove_bodies"):
    file: str
    at_us: int = 0


Line = Segment | Gap | Removed | RemovedBodies | Begin
_decode: Final[Callable[[bytes], Line]] = msgspec.json.Decoder(Line).decode
_decode_about: Final = msgspec.json.Decoder(CaptureMetadata).decode
_KNOWN: Final = frozenset({"add", "gap", "remove", "remove_bodies", "begin"})
_HEADS: Final = tuple(f'{{"op":"{op}",'.encode() for op in sorted(_KNOWN))
"""How records begin, as `_encoded` writes them."""
_TEXT_CONTROLS: Final = b"\t\r"


def file_of(kind: str, first: int, last: int) -> str:
    return f"{kind}/{first:020}-{last:020}.parquet"


def is_capture(folder: str) -> bool:
    """OSError where nobody can tell."""
    try:
        os.stat(os.path.join(folder, ABOUT))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@dataclass
class Manifest:
    """What counts now. `last` is where the capture stands: retention does not move it."""

    folder: str
    about: CaptureMetadata
    segments: list[Segment] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    last: int = 0
    tail: int = 0
    """The fingerprint of the event `last`, also when its segment is gone. 0: it was not captured, but forgotten."""
    whole_bytes: int = 0
    """Of manifest.jsonl, without a line that was cut."""
    removed: dict[str, int] = field(default_factory=dict)
    """Files that counted once, and until when. Readers may still be at them. 0: nobody should."""
    lines: int = 0
    void: dict[str, list[Removed]] = field(default_factory=dict)
    """Compactions whose last line is not there yet, by its file."""

    @property
    def domain(self) -> str:
        return self.about.domain

    @property
    def first(self) -> int:
        """Of what can be read; 0 when there is nothing."""
        return self.segments[0].first if self.segments else 0

    def path(self, file: str) -> str:
        return os.path.join(self.folder, file)

    def names(self) -> set[str]:
        """Every file that counts."""
        bodies = {each.bodies.file for each in self.segments if each.bodies is not None}
        return bodies | {each.file for each in self.segments}

    @staticmethod
    def load(folder: str, files: Files | None = None) -> "Manifest":
        """StoreUnavailable where there is none, CaptureDamaged where it contradicts itself."""
        files = files or RealFiles()
        folder = local_folder(folder, "a capture")
        manifest = Manifest(folder, load_about(folder, files))
        manifest.follow(files)
        return manifest

    def follow(self, files: Files | None = None) -> None:
        """Take the lines that came since the last time."""
        files = files or RealFiles()
        path = self.path(LINES)
        if files.size(path) > self.whole_bytes:
            lines, size = _lines(files.read(path, self.whole_bytes), path)
            for line in lines:
                self._take(line)
            self.whole_bytes += size

    def _take(self, line: Line) -> None:
        if isinstance(line, Removed) and line.by:
            self.void.setdefault(line.by, []).append(line)
            self.lines += 1
        else:
            self.take(line, self.void.pop(line.file, []) if isinstance(line, Segment) else [])

    def take(self, line: Line, replaced: Sequence[Removed] = ()) -> None:
        """One line that has an effect. `replaced` are those that it stands for, with compaction."""
        self.lines += 1
        if isinstance(line, Begin):
            if self.last:
                raise self._damaged("it begins in the middle")
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
        if (gone[0].first, gone[-1].last) != (segment.first, segment.last):
            raise self._damaged(f"{segment.file} does not stand for what it replaces")
        at = self.segments.index(gone[0])
        self.segments[at : at + len(gone)] = [segment]

    def _follows(self, first: int, last: int, tail: int) -> None:
        if first != self.last + 1 or last < first:
            raise self._damaged(f"{first} to {last} does not follow {self.last}")
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
        raise StoreUnavailable(f"{folder} is no capture directory", "`unibus capture URL DIR` makes one")
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
    """All of them but a torn tail, and where that begins."""
    lines: list[Line] = []
    whole = 0
    rows = data.split(b"\n")
    for number, row in enumerate(rows[:-1]):  # What follows the last line end is nothing, or torn.
        line = _line(row, path)
        if line is None:
            later = rows[number + 1 : -1]
            if _is_text(row) or any(_has_effect(_line(each, path)) for each in later):
                raise _damaged(path, f"line {number + 1}")
            return lines, whole
        lines.append(line)
        whole += len(row) + 1
    if not _is_torn(rows[-1]):
        raise _damaged(path, f"{rows[-1][:60]!r} after its last line is no part of a record")
    return lines, whole


def _is_torn(row: bytes) -> bool:
    """Whether a crash can have left it of a record, without the end of its line."""
    return not _is_text(row) or any(row.startswith(head) or head.startswith(row) for head in _HEADS)


def _is_text(row: bytes) -> bool:
    """False for what only a disk leaves: zeros, or what was in a block before."""
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
    """A line of a newer version is not torn."""
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
    """Appends lines, each durable before the call returns, and keeps `manifest` as a reader would see it."""

    def __init__(self, manifest: Manifest, files: Files) -> None:
        self.manifest = manifest
        self._files = files
        self._path = manifest.path(LINES)
        self._mend()

    def _mend(self) -> None:
        """Cut off what a crash has left. The file is written anew: cutting it in place could be undone by a crash."""
        size = self._files.size(self._path)
        if size < 0:
            replace(self._files, self._path, b"")
        elif size > self.manifest.whole_bytes:
            replace(self._files, self._path, self._files.read(self._path, 0, self.manifest.whole_bytes))

    def append(self, *lines: Line) -> None:
        """All of them in one write."""
        self._write(lines)
        for line in lines:
            self.manifest.take(line)

    def replace(self, gone: Sequence[Segment], segment: Segment) -> None:
        """One segment for several: what a crash leaves of it counts as a whole or not at all."""
        at_us = time.time_ns() // 1_000
        removed = [Removed(each.first, each.last, each.file, segment.file, at_us) for each in gone]
        self._write(removed)
        self._write([segment])
        self.manifest.lines += len(removed)
        self.manifest.take(segment, removed)

    def shorten(self, since_us: int) -> bool:
        """Write it anew with what counts, if most of it does not, and with the files that were removed since then."""
        manifest = self.manifest
        if manifest.lines < LINES_MIN or manifest.lines < 4 * (len(manifest.segments) + len(manifest.gaps)):
            return False
        first = manifest.first or manifest.last + 1
        manifest.removed = {file: at_us for file, at_us in manifest.removed.items() if at_us > since_us}
        tail = manifest.tail if first > manifest.last else 0
        begin = Begin(first - 1, [gap for gap in manifest.gaps if gap[0] < first], manifest.removed, tail)
        later: list[Segment | Gap] = [Gap(*gap) for gap in manifest.gaps if gap[0] >= first]
        told = sorted([*manifest.segments, *later], key=lambda line: line.first)
        data = _encoded([begin, *told])
        replace(self._files, self._path, data)
        manifest.lines, manifest.whole_bytes = 1 + len(told), len(data)
        return True

    def _write(self, lines: Sequence[Line]) -> None:
        data = _encoded(lines)
        handle = self._files.open(self._path)
        try:
            self._files.write(handle, data)
            self._files.sync(handle)
        finally:
            self._files.close(handle)
        self.manifest.whole_bytes += len(data)


def _encoded(lines: Sequence[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
