"""Segments: what is written is what is read, one writer at a time, and what is wrong with a file has a name."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.capture.rows import plain, rows_of
from unibus.capture import schema, segments
from unibus.capture.manifest import Manifest, Segment
from unibus.capture.segments import SegmentWriter, batches, check
from unibus.core.lifecycle.events import Event
from unibus.errors import CaptureBusy, CaptureDamaged, CaptureMismatch, UsageError


def events(first: int, last: int, domain: str = "local") -> list[Event]:
    return [
        Event(seq, 1_000 + seq, domain, f"c{seq % 3}", "sent", seq, f"m{seq}", size=1, attrs={"priority": "50"})
        for seq in range(first, last + 1)
    ]


def table(first: int, last: int) -> pa.Table:
    return schema.table_of(events(first, last))


def write(folder: Path, *ranges: tuple[int, int]) -> list[Segment]:
    writer = SegmentWriter(str(folder))
    try:
        return [writer.write(table(*each)) for each in ranges]
    finally:
        writer.close()


def test_a_segment_is_what_was_written(tmp_path: Path) -> None:
    one, two = write(tmp_path, (1, 10), (11, 12))
    manifest = Manifest.load(str(tmp_path))
    assert manifest.segments == [one, two]
    assert (two.first, two.last, two.rows, two.from_us, two.to_us) == (11, 12, 2, 1_011, 1_012)
    assert one.bytes == (tmp_path / one.file).stat().st_size
    found = pq.read_table(tmp_path / one.file)
    assert found.schema.equals(schema.EVENTS)
    assert plain(found) == rows_of(events(1, 10))
    assert check(str(tmp_path), one) is None


def test_rows_may_be_fewer_than_the_range(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path))
    segment = writer.write(table(3, 4), last=9)
    writer.close()
    assert (segment.first, segment.last, segment.rows) == (1, 9, 2)
    again = SegmentWriter(str(tmp_path))
    assert again.last == 9
    again.close()


@pytest.mark.parametrize(("first", "last", "to"), [(1, 3, None), (5, 9, 8)])
def test_rows_that_do_not_follow_are_refused(tmp_path: Path, first: int, last: int, to: int | None) -> None:
    write(tmp_path, (1, 4))
    writer = SegmentWriter(str(tmp_path))
    with pytest.raises(UsageError):
        writer.write(table(first, last), last=to)
    with pytest.raises(UsageError):
        writer.write(schema.EVENTS.empty_table())
    writer.close()
    assert Manifest.load(str(tmp_path)).last == 4


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path))
    with pytest.raises(CaptureBusy, match=f"process {os.getpid()}") as caught:
        SegmentWriter(str(tmp_path))
    assert "another directory" in caught.value.hint
    writer.close()
    SegmentWriter(str(tmp_path)).close()


def test_a_directory_is_one_domain(tmp_path: Path) -> None:
    SegmentWriter(str(tmp_path), "here").close()
    with pytest.raises(CaptureMismatch, match="'here', not of 'there'"):
        SegmentWriter(str(tmp_path), "there")
    SegmentWriter(str(tmp_path), "here", store="one").close()


def test_files_that_nobody_names_are_removed(tmp_path: Path) -> None:
    [segment] = write(tmp_path, (1, 4))
    for name in ("segments/x.parquet", "segments/x.parquet.new", "bodies/y.parquet"):
        (tmp_path / name).write_bytes(b"half")
    SegmentWriter(str(tmp_path)).close()
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet*")]
    assert left == [segment.file]


def test_a_replaced_segment_stays_for_those_who_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, (1, 4), (5, 8))
    writer = SegmentWriter(str(tmp_path))
    old = list(writer.manifest.segments)
    writer.join(old)
    writer.close()
    writer = SegmentWriter(str(tmp_path))
    assert all((tmp_path / each.file).exists() for each in old)
    monkeypatch.setattr(segments, "GRACE_US", -1)
    writer.sweep()
    writer.close()
    assert not any((tmp_path / each.file).exists() for each in old)
    assert [(each.first, each.last) for each in Manifest.load(str(tmp_path)).segments] == [(1, 8)]


@pytest.mark.parametrize("seqs", [[5, 7, 6], [5, 5], [5, 6, 6, 7], [6, 5]])
def test_rows_out_of_order_are_refused_and_nothing_is_written(tmp_path: Path, seqs: list[int]) -> None:
    write(tmp_path, (1, 4))
    writer = SegmentWriter(str(tmp_path))
    before = sorted(path for path in tmp_path.rglob("*"))
    rows = pa.concat_tables([table(seq, seq) for seq in seqs])  # One chunk each, and all in one.
    for each in (rows, rows.combine_chunks()):
        with pytest.raises(UsageError, match="sort rows by seq"):
            writer.write(each, last=max(seqs))
        with pytest.raises(UsageError, match="sort rows by seq"):
            writer.write(table(5, 7), bodies(*seqs))
    with pytest.raises(UsageError, match="sort rows by seq"):
        writer.write(table(5, 7), bodies(5, 8))
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert writer.last == 4
    writer.close()


def bodies(*seqs: int, body: bytes = b"x") -> pa.Table:
    rows = [
        {
            "seq": seq,
            "domain": "local",
            "channel": "c",
            "channel_key": 1,
            "sequence": seq,
            "body": body,
            "redacted": False,
        }
        for seq in seqs
    ]
    return pa.Table.from_pylist(rows, schema.BODIES)


def test_segments_are_joined_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of the new one are as large as they may be, by rows or by bytes, and never all of it in memory."""
    monkeypatch.setattr(segments, "GROUP_ROWS", 10)
    monkeypatch.setattr(segments, "GROUP_BYTES", 5_000)
    writer = SegmentWriter(str(tmp_path))
    for first in range(1, 49, 4):
        writer.write(table(first, first + 3), bodies(*range(first, first + 3), body=b"y" * 1_000))
    old = list(writer.manifest.segments)
    new = writer.join(old)
    assert new == Manifest.load(str(tmp_path)).segments[0]
    assert (new.first, new.last, new.rows, new.tail) == (1, 48, 48, old[-1].tail)
    assert (new.from_us, new.to_us, new.sealed_us) == (1_001, 1_048, old[-1].sealed_us)
    assert plain(writer.read(new)) == rows_of(events(1, 48))
    assert new.bodies is not None
    assert writer.read_bodies(new)["seq"].to_pylist() == [seq for seq in range(1, 49) if seq % 4]
    writer.close()
    file = pq.ParquetFile(tmp_path / new.bodies.file)
    groups = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert groups == [6] * 6
    assert max(pq.ParquetFile(tmp_path / new.file).metadata.row_group(at).num_rows for at in range(5)) <= 10


def test_rows_of_a_range_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "GROUP_ROWS", 10)
    [segment] = write(tmp_path, (1, 100))
    path = str(tmp_path / segment.file)
    assert pq.ParquetFile(path).num_row_groups == 10
    for first, last in ((1, 100), (15, 15), (10, 31), (101, 200)):
        found = list(batches(path, first, last, ("channel", "seq"), schema.EVENTS))
        rows = [row for batch in found for row in batch.to_pylist()]
        assert rows == [{"seq": each, "channel": f"c{each % 3}"} for each in range(first, min(100, last) + 1)]
    [only] = batches(path, 3, 4, ("channel",), schema.EVENTS)
    assert only.to_pylist() == [{"channel": "c0"}, {"channel": "c1"}]


def test_a_segment_may_be_older_than_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [segment] = write(tmp_path, (1, 5))
    wider = schema.EVENTS.append(pa.field("added_later", pa.string()))
    monkeypatch.setattr(schema, "EVENTS", wider)
    assert check(str(tmp_path), segment) is None
    path = str(tmp_path / segment.file)
    [batch] = batches(path, 2, 3, ("seq", "added_later"), wider)
    assert batch.to_pylist() == [{"seq": 2, "added_later": None}, {"seq": 3, "added_later": None}]
    writer = SegmentWriter(str(tmp_path))
    assert writer.read(segment)["added_later"].null_count == 5
    writer.close()


def test_what_is_wrong_has_a_name(tmp_path: Path) -> None:
    [segment] = write(tmp_path, (1, 50))
    path = tmp_path / segment.file
    whole = path.read_bytes()

    def reason() -> str:
        found = check(str(tmp_path), segment)
        assert isinstance(found, CaptureDamaged)
        assert segment.file in found.what
        return found.reason

    path.write_bytes(whole[:-1])
    assert reason() == "size"
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    assert reason() == "crc"
    path.unlink()
    assert reason() == "missing"


def test_a_file_that_is_no_segment_has_a_reason(tmp_path: Path) -> None:
    import zlib

    import msgspec

    [segment] = write(tmp_path, (1, 50))
    path = tmp_path / segment.file

    def reason(data: bytes) -> str:
        path.write_bytes(data)
        other = msgspec.structs.replace(segment, bytes=len(data), crc32=zlib.crc32(data))
        found = check(str(tmp_path), other)
        return "" if found is None else found.reason

    whole = path.read_bytes()
    assert reason(whole) == ""
    assert reason(b"PAR1 no PAR1") == "unreadable"
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"seq": list(range(50))}), out)
    assert reason(out.getvalue().to_pybytes()) == "schema"
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"seq": [1]}), out)
    assert reason(out.getvalue().to_pybytes()) == "unreadable"


def test_the_fingerprint_tells_rows_apart() -> None:
    rows = table(1, 9)
    assert len({segments.fingerprint(rows, at) for at in range(9)}) == 9
    assert segments.fingerprint(table(2, 3), 0) == segments.fingerprint(rows, 1)


@pytest.mark.skipif(os.name != "posix", reason="modes mean nothing there")
def test_a_directory_that_exists_keeps_its_mode_and_so_does_its_manifest(tmp_path: Path) -> None:
    write(tmp_path / "capture", (1, 10))
    (tmp_path / "capture").chmod(0o750)
    (tmp_path / "capture" / "manifest.jsonl").chmod(0o640)
    write(tmp_path / "capture", (11, 12))
    assert (tmp_path / "capture").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "capture" / "manifest.jsonl").stat().st_mode & 0o777 == 0o640
