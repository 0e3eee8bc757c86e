"""One interface over capture directories and stores: the same rows from each of them."""

import itertools
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.capture.histories import working
from tests.unit.capture.rows import read_all, rows_of
from tests.unit.capture.test_segments import events, table, write
from unibus.capture import sources
from unibus.capture.event_source import EventPiece
from unibus.capture.manifest import Manifest
from unibus.capture.segments import SegmentWriter
from unibus.capture.sources import CaptureSource, StoreSource, open_source, open_sources
from unibus.errors import CaptureDamaged, DomainTaken, StoreUnavailable, UsageError
from unibus.sync import MessageBus


def test_a_directory_gives_its_rows_in_pieces(tmp_path: Path) -> None:
    write(tmp_path, (1, 4), (5, 8))
    with closing(open_source(str(tmp_path))) as source:
        assert isinstance(source, CaptureSource)
        assert (source.first(), source.last(), source.domain) == (1, 8, "local")
        one, two = source.pieces(2, 7)
        assert (one.first, one.last, one.rows, two.first, two.last, two.rows) == (3, 4, 2, 5, 7, 3)
        assert one.path == str(tmp_path / "segments" / f"{1:020}-{4:020}.parquet")
        assert read_all(source, 2, 7) == rows_of(events(3, 7))
        assert read_all(source) == rows_of(events(1, 8))
        assert source.pieces(8, 99) == []


def test_it_sees_what_comes_and_what_is_put_together(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path))
    source = CaptureSource(str(tmp_path))
    assert (source.first(), source.last()) == (0, 0)
    writer.write(table(1, 3))
    writer.gap(4, 5)
    writer.write(table(6, 9))
    assert (source.first(), source.last()) == (1, 9)
    assert source.gaps(0, 99) == [(4, 5)]
    assert source.gaps(4, 99) == [(5, 5)]
    assert source.gaps(5, 99) == []
    pieces = source.pieces(0, 99)
    writer.write(table(10, 12))
    writer.join(writer.manifest.segments[1:])
    for file in (tmp_path / "segments").glob("*-00000000000000000009.parquet"):
        file.unlink()
    found = [row for piece in pieces for batch in source.read(piece) for row in batch["seq"].to_pylist()]
    assert found == [1, 2, 3, 6, 7, 8, 9]
    writer.close()


def test_a_store_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "STORE_PIECE_EVENTS", 17)
    with working(tmp_path / "bus.db", domain="shop") as work:
        work.steps(80)
        with closing(open_source(work.url)) as source:
            assert isinstance(source, StoreSource)
            last = work.last()
            assert (source.first(), source.last(), source.domain) == (1, last, "shop")
            pieces = source.pieces(5, last - 3)
            assert (pieces[0].first, pieces[-1].last) == (6, last - 3)
            assert all(one.last + 1 == two.first for one, two in itertools.pairwise(pieces))
            assert read_all(source) == rows_of(work.events())
            assert read_all(source, 5, last - 3) == rows_of(work.events()[5 : last - 3])
            bodies = [row for piece in pieces for batch in source.read_bodies(piece) for row in batch.to_pylist()]
            brought = [each for each in work.events()[5 : last - 3] if each.kind in ("sent", "scheduled", "published")]
            assert [row["seq"] for row in bodies] == [each.seq for each in brought]
            assert [row["message_id"] for row in bodies] == [each.message_id for each in brought]


def test_columns_are_those_that_were_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "capture", (1, 4))
    with working(tmp_path / "bus.db") as work:
        work.steps(5)
        for where in (work.url, str(tmp_path / "capture")):
            with closing(open_source(where)) as source:
                [batch] = source.read(EventPiece(2, 3, 2, 0), ("kind", "seq"))
                assert batch.schema.names == ["seq", "kind"]
                assert batch["seq"].to_pylist() == [2, 3]


def test_a_moment_is_a_place_in_history(tmp_path: Path) -> None:
    write(tmp_path / "capture", (1, 4), (5, 8))
    with closing(open_source(str(tmp_path / "capture"))) as source:
        found = [source.seq_at(1_000 + seq) for seq in (-5, 1, 2, 5, 7, 8, 9)]
        assert found == [0, 0, 1, 4, 6, 7, 8]
    with working(tmp_path / "bus.db") as work:
        work.steps(60)
        rows = work.events()
        with closing(open_source(work.url)) as source:
            for at in (0, 1, 7, len(rows) // 2, len(rows) - 1):
                expected = next(each.seq for each in rows if each.ts >= rows[at].ts) - 1
                assert source.seq_at(rows[at].ts) == expected
            assert source.seq_at(rows[-1].ts + 1) == rows[-1].seq


def test_what_a_store_has_forgotten_is_a_gap(tmp_path: Path) -> None:
    with working(tmp_path / "bus.db", history_bytes=0, history_age_s=0.0) as work:
        work.steps(40)
        work.clock.advance(10)
        work.forget()
        work.rig.send("a", 1)
        with closing(open_source(work.url)) as source:
            first, last = source.first(), source.last()
            assert 1 < first <= last
            assert source.gaps(0, last) == [(1, first - 1)]
            assert source.pieces(0, last)[0].first == first


def test_a_folder_of_directories_is_each_of_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        SegmentWriter(str(tmp_path / name), name).close()
    (tmp_path / "empty").mkdir()
    assert [each.domain for each in open_sources(str(tmp_path))] == ["one", "two"]
    assert [each.domain for each in open_sources([str(tmp_path / "two"), str(tmp_path)])] == ["two", "one"]


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        SegmentWriter(str(tmp_path / name), "same").close()
    with pytest.raises(DomainTaken, match="both have domain 'same'") as caught:
        open_sources(str(tmp_path))
    assert "?domain=" in caught.value.hint


def test_other_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no capture directory"):
        open_source(str(tmp_path / "nowhere"))
    with pytest.raises(StoreUnavailable, match="holds no capture"):
        open_sources(str(tmp_path))
    with pytest.raises(StoreUnavailable, match="only be read by the bus that owns it"):
        open_source("jsonfile:///x")
    with pytest.raises(StoreUnavailable, match="cannot open"):
        open_source(f"sqlite:///{tmp_path}/nothing.db")


def test_a_scheme_that_is_no_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="s3:// is not supported"):
        open_source("s3://bucket/history")
    with pytest.raises(UsageError, match="s3:// is not supported"):
        open_sources(["s3://bucket/history"])
    with pytest.raises(UsageError, match="s3:// is not supported"):
        SegmentWriter("s3://bucket/history")
    with pytest.raises(UsageError, match="s3:// is not supported"):
        Manifest.load("s3://bucket/history")
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "my history"
    write(folder, (1, 4))
    url = "file://" + str(folder).replace(" ", "%20")
    for source in (open_source(url), *open_sources([url]), *open_sources(url.replace(":///", ":/"))):
        assert (source.where, source.last()) == (str(folder), 4)
    [other] = open_sources("file://" + str(tmp_path))
    assert (other.where, other.named) == (str(folder), str(tmp_path))
    SegmentWriter(url).close()
    assert Manifest.load(url).last == 4


def test_a_damaged_piece_is_an_error(tmp_path: Path) -> None:
    [segment] = write(tmp_path, (1, 40))
    source = CaptureSource(str(tmp_path))
    [piece] = source.pieces(0, 40)
    (tmp_path / segment.file).write_bytes(b"nothing")
    with pytest.raises(CaptureDamaged) as caught:
        list(source.read(piece))
    assert caught.value.reason == "unreadable"
    (tmp_path / segment.file).unlink()
    with pytest.raises(CaptureDamaged) as caught:
        list(source.read(piece))
    assert caught.value.reason == "missing"


def test_a_store_is_known_by_where_it_is_not_by_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with MessageBus("sqlite:///the%20bus.db?domain=here") as bus:
        bus.send("q", 1)
    with closing(open_source("sqlite:///the%20bus.db")) as source:
        where = source.where
    monkeypatch.chdir("/")
    with closing(open_source(where)) as source:
        assert (source.domain, source.last() > 0) == ("here", True)
