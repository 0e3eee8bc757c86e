"""A manifest is true after any crash: what a torn line leaves, what compaction leaves, what damage is."""

from pathlib import Path

import msgspec
import pytest

from unibus.capture import manifest as manifest_module
from unibus.capture.manifest import (
    FORMAT,
    LINES,
    Begin,
    BodiesFile,
    CaptureMetadata,
    Gap,
    Manifest,
    ManifestWriter,
    Removed,
    RemovedBodies,
    Segment,
    file_of,
    save_about,
)
from unibus.errors import CaptureDamaged, StoreUnavailable, StoreVersion
from unibus.stores.files.disk import RealFiles


class Quick(RealFiles):
    """A disk without power cuts."""

    def sync(self, handle: int) -> None: ...

    def sync_folder(self, path: str) -> None: ...


FILES = Quick()


def segment(first: int, last: int, bodies: bool = False) -> Segment:
    kept = BodiesFile(file_of("bodies", first, last), 1, 2, 3) if bodies else None
    return Segment(
        first=first,
        last=last,
        rows=last - first + 1,
        bytes=10,
        crc32=1,
        from_us=first,
        to_us=last,
        sealed_us=last,
        file=file_of("segments", first, last),
        bodies=kept,
    )


@pytest.fixture
def folder(tmp_path: Path) -> str:
    save_about(str(tmp_path), CaptureMetadata(FORMAT, "local", "", 1), FILES)
    return str(tmp_path)


def writer(folder: str) -> ManifestWriter:
    return ManifestWriter(Manifest.load(folder), FILES)


def ranges(manifest: Manifest) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in manifest.segments]


def test_what_was_appended_is_read(folder: str) -> None:
    lines = writer(folder)
    assert (lines.manifest.first, lines.manifest.last) == (0, 0)
    lines.append(segment(1, 5, bodies=True))
    lines.append(Gap(6, 9))
    lines.append(segment(10, 12))
    for manifest in (lines.manifest, Manifest.load(folder)):
        assert ranges(manifest) == [(1, 5), (10, 12)]
        assert manifest.gaps == [(6, 9)]
        assert (manifest.first, manifest.last, manifest.domain) == (1, 12, "local")
        assert manifest.names() == {
            file_of("segments", 1, 5),
            file_of("bodies", 1, 5),
            file_of("segments", 10, 12),
        }


def test_retention_does_not_move_the_end(folder: str) -> None:
    lines = writer(folder)
    lines.append(segment(1, 5, bodies=True), segment(6, 7, bodies=True))
    lines.append(RemovedBodies(file_of("bodies", 6, 7)))
    lines.append(Removed(1, 5, file_of("segments", 1, 5)))
    manifest = Manifest.load(folder)
    assert ranges(manifest) == [(6, 7)]
    assert manifest.segments[0].bodies is None
    assert (manifest.first, manifest.last) == (6, 7)
    lines.append(Removed(6, 7, file_of("segments", 6, 7)))
    assert (Manifest.load(folder).first, Manifest.load(folder).last) == (0, 7)


def test_a_manifest_torn_at_every_byte_is_one_of_those_before(folder: str) -> None:
    lines = writer(folder)
    path = Path(folder) / LINES
    known = {0: []}
    for step in ([segment(1, 5, True)], [segment(6, 7)], [Gap(8, 9)], [segment(10, 20)]):
        lines.append(*step)
        known[path.stat().st_size] = ranges(lines.manifest)
    lines.replace(lines.manifest.segments[:2], segment(1, 7, True))
    known[path.stat().st_size] = ranges(lines.manifest)
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        expected = known[max(size for size in known if size <= cut)]
        assert ranges(Manifest.load(folder)) == expected, cut
        mended = writer(folder)
        assert path.stat().st_size == max([end for end in ends if end <= cut], default=0)
        mended.append(segment(mended.manifest.last + 1, mended.manifest.last + 3))
        assert ranges(Manifest.load(folder))[-1][1] == mended.manifest.last


@pytest.mark.parametrize(
    "garbage", [b"\0" * 40 + b"\n", b"\xff\xfe\n", b"\0", b'{"op":"ad\0\0', b"{", b'{"op":"gap","fi']
)
def test_what_a_crash_leaves_at_the_end_is_cut(folder: str, garbage: bytes) -> None:
    writer(folder).append(segment(1, 5))
    path = Path(folder) / LINES
    whole = path.read_bytes()
    path.write_bytes(whole + garbage)
    assert ranges(Manifest.load(folder)) == [(1, 5)]
    writer(folder)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "junk",
    [b"junk", b"junk\n", b"\n", b"[]\n", b'{"op":"add","first":6}\n', b'{"op":"add"}\n', b'{"opx', b'{"first":6', b" "],
)
def test_text_at_the_end_that_is_no_part_of_a_record_is_damage(folder: str, junk: bytes) -> None:
    lines = writer(folder)
    lines.append(segment(1, 5))
    path = Path(folder) / LINES
    following = Manifest.load(folder)
    path.write_bytes(whole := path.read_bytes() + junk)
    with pytest.raises(CaptureDamaged, match=r"manifest\.jsonl is damaged") as caught:
        Manifest.load(folder)
    assert caught.value.reason == "manifest"
    with pytest.raises(CaptureDamaged):
        following.follow()
    assert path.read_bytes() == whole


def test_garbage_before_a_line_that_counts_is_damage(folder: str) -> None:
    writer(folder).append(segment(1, 5))
    path = Path(folder) / LINES
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with pytest.raises(CaptureDamaged, match="line 1"):
        Manifest.load(folder)


def test_a_torn_compaction_takes_nothing_away(folder: str) -> None:
    """Also where the disk wrote a later line of it and lost one before."""
    lines = writer(folder)
    lines.append(segment(1, 5), segment(6, 7), segment(8, 9))
    before = (Path(folder) / LINES).read_bytes()
    lines.replace(lines.manifest.segments[:2], segment(1, 7))
    assert ranges(Manifest.load(folder)) == [(1, 7), (8, 9)]
    after = (Path(folder) / LINES).read_bytes()[len(before) :]
    first, second, _added = after.splitlines(keepends=True)
    (Path(folder) / LINES).write_bytes(before + b"\0" * len(first) + b"\n" + second)
    assert ranges(Manifest.load(folder)) == [(1, 5), (6, 7), (8, 9)]
    again = writer(folder)
    again.replace(again.manifest.segments[1:], segment(6, 9))
    assert ranges(Manifest.load(folder)) == [(1, 5), (6, 9)]


@pytest.mark.parametrize("line", [segment(7, 9), segment(5, 9), segment(9, 7), Gap(5, 6), Gap(8, 9)])
def test_lines_that_do_not_follow_are_damage(folder: str, line: Segment | Gap) -> None:
    writer(folder).append(segment(1, 5))
    path = Path(folder) / LINES
    path.write_bytes(path.read_bytes() + msgspec.json.encode(line) + b"\n")
    with pytest.raises(CaptureDamaged, match="event 6 has to follow"):
        Manifest.load(folder)


def test_a_replacement_of_another_range_is_damage(folder: str) -> None:
    lines = writer(folder)
    lines.append(segment(1, 5), segment(6, 7))
    with pytest.raises(CaptureDamaged, match="does not cover the range"):
        lines.replace(lines.manifest.segments, segment(1, 6))


def test_a_line_of_a_newer_version_is_not_torn(folder: str) -> None:
    writer(folder).append(segment(1, 5))
    path = Path(folder) / LINES
    path.write_bytes(path.read_bytes() + b'{"op":"split","first":1}\n')
    with pytest.raises(StoreVersion, match="split"):
        Manifest.load(folder)


def test_fields_of_a_newer_version_are_ignored(folder: str) -> None:
    path = Path(folder) / LINES
    record = msgspec.json.decode(msgspec.json.encode(segment(1, 5))) | {"colour": "red"}
    path.write_bytes(msgspec.json.encode(record) + b"\n")
    assert ranges(Manifest.load(folder)) == [(1, 5)]


def test_other_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no capture directory"):
        Manifest.load(str(tmp_path))
    (tmp_path / "capture.json").write_text("{")
    with pytest.raises(CaptureDamaged):
        Manifest.load(str(tmp_path))
    (tmp_path / "capture.json").write_text('{"format":9,"domain":"x"}')
    with pytest.raises(StoreVersion, match="format 9"):
        Manifest.load(str(tmp_path))


# Rewriting


def test_a_long_manifest_is_written_anew_with_what_counts(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "LINES_MIN", 10)
    lines = writer(folder)
    lines.append(Gap(1, 3), segment(4, 4), Gap(5, 5))
    for at in range(6, 40):
        lines.append(segment(at, at))
        lines.append(Removed(at - 2, at - 2, file_of("segments", at - 2, at - 2)))
    lines.append(Gap(40, 41), segment(42, 43, bodies=True))
    lines.append(Removed(4, 4, file_of("segments", 4, 4), at_us=7), Removed(5, 5, "old", at_us=6))
    before = Manifest.load(folder)
    assert lines.shorten(since_us=6)
    assert not lines.shorten(since_us=6)
    after = Manifest.load(folder)
    assert after.removed == {file_of("segments", 4, 4): 7}
    assert after.lines == 5
    assert (after.segments, after.gaps, after.last) == (before.segments, before.gaps, before.last)
    assert ranges(after) == [(38, 38), (39, 39), (42, 43)]
    lines.append(segment(44, 44))
    assert ranges(Manifest.load(folder))[-1] == (44, 44)
    assert lines.manifest.whole_bytes == (Path(folder) / LINES).stat().st_size


def test_a_manifest_of_which_nothing_is_left_still_knows_where_it_stands(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "LINES_MIN", 2)
    lines = writer(folder)
    lines.append(msgspec.structs.replace(segment(1, 9), tail=7))
    lines.append(Removed(1, 9, file_of("segments", 1, 9)))
    assert Manifest.load(folder).tail == 7
    assert lines.shorten(0)
    manifest = Manifest.load(folder)
    assert (manifest.segments, manifest.last, manifest.tail) == ([], 9, 7)
    lines.append(Gap(10, 11))
    assert (Manifest.load(folder).last, Manifest.load(folder).tail) == (11, 0)


def test_it_begins_only_once(folder: str) -> None:
    writer(folder).append(segment(1, 5))
    path = Path(folder) / LINES
    path.write_bytes(path.read_bytes() + msgspec.json.encode(Begin(5)) + b"\n")
    with pytest.raises(CaptureDamaged, match="is not the first line"):
        Manifest.load(folder)


def test_following_is_the_same_as_loading(folder: str) -> None:
    """Byte by byte: a reader that looks while a line is written sees it when it is whole."""
    lines = writer(folder)
    lines.append(segment(1, 5), segment(6, 7, True), Gap(8, 9), segment(10, 11))
    lines.replace(lines.manifest.segments[:2], segment(1, 7, True))
    lines.append(RemovedBodies(file_of("bodies", 1, 7)))
    path = Path(folder) / LINES
    whole = path.read_bytes()
    path.write_bytes(b"")
    following = Manifest.load(folder)
    for cut in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:cut])
        following.follow()
        fresh = Manifest.load(folder)
        assert (following.segments, following.gaps, following.last) == (fresh.segments, fresh.gaps, fresh.last)
    path.write_bytes(whole)
    following.follow()
    assert following == Manifest.load(folder)
