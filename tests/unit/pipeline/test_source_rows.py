"""The readers themselves, asked in the way Spark asks them, without a session: which rows they give, and which not."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNull, LessThanOrEqual, StringStartsWith
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from tests.pipeline.histories import BEGAN_US, SECOND_US, capture, event, small_bus, spoil
from unibus.capture.event_source import EventPiece
from unibus.capture.manifest import Manifest, Removed
from unibus.capture.schema import BODIES, table_of
from unibus.capture.segments import SegmentWriter
from unibus.capture.sources import StoreSource
from unibus.errors import BusError, CaptureDamaged, DomainTaken, StoreUnavailable, UsageError
from unibus.pipeline.connector.reading import Bodies
from unibus.pipeline.connector.slices import HistorySlice, split
from unibus.pipeline.connector.source import EventReader, EventStreamReader, PushingReader, UnibusSource
from unibus.stores.sqlite.outside_cursors import shown_cursors


def source(where: Path | str, **options: str) -> UnibusSource:
    return UnibusSource({"path": str(where), **options})


def batch_reader(where: Path | str, **options: str) -> EventReader:
    found = source(where, **options)
    reader = found.reader(found.schema())
    assert isinstance(reader, EventReader)
    return reader


def stream_reader(where: Path | str, **options: str) -> EventStreamReader:
    found = source(where, **options)
    reader = found.streamReader(found.schema())
    assert isinstance(reader, EventStreamReader)
    return reader


def rows(reader: EventReader) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist(maps_as_pydicts="strict") if batches else []


def seqs(where: Path | str, **options: str) -> list[int]:
    return [row["seq"] for row in rows(batch_reader(where, columns="seq", **options))]


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """Events 1 to 10 in three segments."""
    return capture(tmp_path / "ten", 4, 3, 3)


# Ranges


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, range(1, 11)),
        ({"startingOffsets": "3"}, range(4, 11)),
        ({"startingOffsets": "3", "endingOffsets": "5"}, range(4, 6)),
        ({"startingOffsets": "latest"}, ()),
        ({"startingOffsets": "5", "endingOffsets": "5"}, ()),
        ({"startingOffsets": "6", "endingOffsets": "5"}, ()),
        ({"startingOffsets": '{"local": 9}'}, [10]),
        ({"startingOffsets": "2026-09-21T14:13:25Z"}, range(6, 11)),
        ({"endingOffsets": "2026-09-21T14:13:25Z"}, range(1, 6)),
        ({"startingOffsets": "-10m"}, ()),
    ],
)
def test_a_range_is_read(ten: Path, options: dict[str, str], wanted: range) -> None:
    assert seqs(ten, **options) == list(wanted)


def test_all_columns_are_those_of_the_events(ten: Path) -> None:
    first = rows(batch_reader(ten))[0]
    wanted = event(1)
    assert first.pop("ts").timestamp() * SECOND_US == BEGAN_US
    assert {name: value for name, value in first.items() if name not in ("channel_key", "kind_code")} == {
        name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "ts"
    }


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"channels": "bills"}, [3, 6, 9]),
        ({"channels": "BILLS, nothing"}, [3, 6, 9]),
        ({"channels": "*s"}, range(1, 11)),
        ({"channels": "o*rs"}, [1, 2, 4, 5, 7, 8, 10]),
        ({"channels": "ord"}, ()),
        ({"kinds": "completed"}, [2, 5, 8]),
        ({"channels": "orders", "kinds": "sent"}, ()),
    ],
)
def test_channels_and_kinds_choose_rows(ten: Path, options: dict[str, str], wanted: range) -> None:
    assert seqs(ten, **options) == list(wanted)


def test_several_domains_are_read_together(tmp_path: Path) -> None:
    capture(tmp_path / "a", 2, domain="a")
    capture(tmp_path / "b", 3, domain="b")
    found = rows(batch_reader(tmp_path, columns="domain,seq", startingOffsets='{"b": 1}'))
    assert [(row["domain"], row["seq"]) for row in found] == [("a", 1), ("a", 2), ("b", 2), ("b", 3)]
    capture(tmp_path / "c", 1, domain="b")
    with pytest.raises(DomainTaken):
        seqs(tmp_path)


def test_a_place_that_is_named_twice_is_read_once(ten: Path) -> None:
    found = UnibusSource({"paths": json.dumps([str(ten), f"{ten}/../ten"]), "columns": "seq"})
    reader = found.reader(found.schema())
    assert isinstance(reader, EventReader)
    assert len(rows(reader)) == 10


def test_the_file_of_a_store_is_read_as_one(tmp_path: Path) -> None:
    url = small_bus(tmp_path / "bus.db")
    assert seqs(tmp_path / "bus.db") == seqs(url) != []


def test_a_store_is_read_with_its_bodies(tmp_path: Path) -> None:
    url = small_bus(tmp_path / "bus.db")
    found = rows(batch_reader(url, bodies="true", kinds="sent,completed"))
    sent = [row for row in found if row["kind"] == "sent"]
    assert [json.loads(row["body"]) for row in sent[:10]] == [{"n": number} for number in range(10)]
    assert [row["headers"] for row in sent[:2]] == [{"number": "0"}, {"number": "1"}]
    assert (sent[10]["body"], sent[10]["content_type"]) == (b"\x00raw", "application/octet-stream")
    assert [row["body"] for row in found if row["kind"] == "completed"] == [None] * 3


# Tasks


def test_small_pieces_share_a_task(ten: Path) -> None:
    (only,) = batch_reader(ten).partitions()
    assert isinstance(only, HistorySlice)
    assert [(piece.first, piece.last) for _, piece in only.parts] == [(1, 4), (5, 7), (8, 10)]


def test_large_pieces_are_cut() -> None:
    store = split(EventPiece(1, 1_000, 1_000, 0), 300)
    assert [(each.first, each.last) for each in store] == [(1, 300), (301, 600), (601, 900), (901, 1_000)]
    # Inside of a row group nothing is gained.
    assert split(EventPiece(1, 1_000, 1_000, 0, "file"), 300) == [EventPiece(1, 1_000, 1_000, 0, "file")]
    large = split(EventPiece(1, 1_000_000, 1_000_000, 0, "file"), 300)
    assert [(each.first, each.rows) for each in large] == [(first, 250_000) for first in range(1, 1_000_000, 250_000)]


# Schemas


def test_a_schema_of_the_user_reads_only_that(ten: Path) -> None:
    found = source(ten)
    whole = found.schema()
    narrow = type(whole)([whole["kind"], whole["seq"]])
    (batch,) = [batch for part in [found.reader(narrow)] for each in part.partitions() for batch in part.read(each)][:1]
    assert batch.schema.names == ["kind", "seq"]


def test_a_column_that_is_not_there_is_refused(ten: Path) -> None:
    with pytest.raises(UsageError, match=r"no column 'chanel' .did you mean 'channel'"):
        source(ten, columns="seq,chanel").schema()
    with_bodies = source(ten, bodies="true").schema()
    with pytest.raises(UsageError, match="set bodies to true"):
        source(ten).reader(with_bodies)
    with pytest.raises(UsageError, match="'seq' has the type bigint, not int"):
        source(ten).reader(type(with_bodies)().add("seq", "integer"))


# Filters


@pytest.mark.parametrize(
    ("filters", "left", "wanted"),
    [
        ([GreaterThan(("seq",), 3), LessThanOrEqual(("seq",), 6)], 0, [4, 5, 6]),
        ([EqualTo(("seq",), 5)], 0, [5]),
        ([In(("seq",), (2, 9, 77))], 0, [2, 9]),
        ([EqualTo(("message_id",), "m7")], 0, [7]),
        ([StringStartsWith(("channel",), "bil")], 0, [3, 6, 9]),
        ([In(("kind",), ("sent",)), EqualTo(("domain",), "x")], 1, [3, 6, 9]),
        ([IsNull(("message_id",)), EqualTo(("seq",), "5")], 2, list(range(1, 11))),
    ],
)
def test_filters_are_taken_over_or_left(ten: Path, filters: list[Any], left: int, wanted: list[int]) -> None:
    reader = batch_reader(ten, columns="seq", pushdown="true")
    assert isinstance(reader, PushingReader)
    assert len(reader.pushFilters(filters)) == left
    assert [row["seq"] for row in rows(reader)] == wanted


def test_a_filter_on_seq_reads_fewer_segments(ten: Path) -> None:
    reader = batch_reader(ten, columns="seq", pushdown="true")
    assert isinstance(reader, PushingReader)
    reader.pushFilters([GreaterThan(("seq",), 8)])
    (only,) = reader.partitions()
    assert isinstance(only, HistorySlice)
    assert [(piece.first, piece.last) for _, piece in only.parts] == [(9, 10)]


# Damage and loss


def test_a_damaged_segment_ends_the_query(ten: Path) -> None:
    spoiled = spoil(ten, 1)
    with pytest.raises(CaptureDamaged, match=f"{spoiled.name} is damaged.*set mode to quarantine"):
        seqs(ten)


def test_a_damaged_segment_is_put_aside(ten: Path, caplog: pytest.LogCaptureFixture) -> None:
    spoiled = spoil(ten, 1)
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            assert seqs(ten, mode="quarantine") == [1, 2, 3, 4, 8, 9, 10]
    (note,) = (ten / "quarantine").iterdir()
    assert json.loads(note.read_text())["reason"] == "crc"
    assert spoiled.name in caplog.text


def test_notes_of_damage_go_where_they_are_wanted(ten: Path, tmp_path: Path) -> None:
    spoil(ten, 0)
    assert seqs(ten, mode="quarantine", quarantinePath=str(tmp_path / "aside")) == list(range(5, 11))
    assert len(list((tmp_path / "aside").iterdir())) == 1
    assert not (ten / "quarantine").exists()


def test_what_can_be_read_of_a_damaged_segment_is_read(ten: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = sorted((ten / "segments").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:100])
    with caplog.at_level(logging.WARNING):
        assert seqs(ten, mode="permissive") == list(range(5, 11))
    assert files[0].name in caplog.text


def test_a_segment_whose_checksum_alone_is_wrong_is_read(ten: Path) -> None:
    manifest = ten / "manifest.jsonl"
    crc = Manifest.load(str(ten)).segments[0].crc32
    manifest.write_text(manifest.read_text().replace(f'"crc32":{crc}', f'"crc32":{crc ^ 1}'))
    assert seqs(ten, mode="permissive") == list(range(1, 11))
    assert seqs(ten, mode="quarantine") == list(range(5, 11))


def test_a_note_of_damage_stays_in_its_folder(tmp_path: Path) -> None:
    folder = capture(tmp_path / "deep" / "capture", 2, 2, domain="../../up")
    spoil(folder, 0)
    before = {path for path in tmp_path.rglob("*") if path.parent != folder}
    assert seqs(folder, mode="quarantine") == [3, 4]
    (note,) = (folder / "quarantine").iterdir()
    assert json.loads(note.read_text())["domain"] == "../../up"
    assert {path for path in tmp_path.rglob("*") if path.parent != folder} == before | {note}


# Bodies


def with_bodies(folder: Path) -> Path:
    """Events 1 to 8 in two segments; those with an even seq have a body."""
    writer = SegmentWriter(str(folder))
    for first in (1, 5):
        events = [event(seq) for seq in range(first, first + 4)]
        found = [
            {"seq": each.seq, "domain": "local", "channel": each.channel, "channel_key": 0, "sequence": each.sequence}
            | {"content_type": "text/plain", "headers": [], "body": str(each.seq).encode(), "redacted": False}
            for each in events
            if each.seq % 2 == 0
        ]
        writer.write(table_of(events), pa.Table.from_pylist(found, BODIES))
    writer.close()
    return folder


def spoiled_bodies(folder: Path, how: str) -> str:
    """Damage the bodies of the first segment. Gives the name of their file."""
    path = sorted((folder / "bodies").iterdir())[0]
    if how == "gone":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data[:100] if how == "cut" else data)
    return path.name


def numbered(where: Path, **options: str) -> list[tuple[int, bytes | None]]:
    return [(row["seq"], row["body"]) for row in rows(batch_reader(where, bodies="true", **options))]


WHOLE = [(1, None), (2, b"2"), (3, None), (4, b"4"), (5, None), (6, b"6"), (7, None), (8, b"8")]


def test_bodies_stand_beside_their_events(tmp_path: Path) -> None:
    folder = with_bodies(tmp_path / "capture")
    assert numbered(folder) == WHOLE
    assert numbered(folder, channels="bills") == [WHOLE[2], WHOLE[5]]
    assert numbered(folder, startingOffsets="3", endingOffsets="6") == WHOLE[3:6]


@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_damaged_bodies(tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """They are damage of their segment where bodies are wanted. Its events can still be had."""
    folder = with_bodies(tmp_path / "capture")
    name = spoiled_bodies(folder, how)
    assert seqs(folder) == list(range(1, 9))
    with pytest.raises(CaptureDamaged, match=f"bodies/{name}.*set mode to quarantine"):
        numbered(folder)
    assert numbered(folder, mode="quarantine") == WHOLE[4:]
    (note,) = (folder / "quarantine").iterdir()
    assert f"bodies/{name}" in json.loads(note.read_text())["what"]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert numbered(folder, mode="permissive") == [(seq, None) for seq in range(1, 5)] + WHOLE[4:]
    assert f"bodies/{name}" in caplog.text
    assert "without their bodies" in caplog.text


@pytest.mark.parametrize("wanted", [[70], list(range(1, 71))])
def test_more_bodies_than_an_array_holds(wanted: list[int]) -> None:
    """70 batches of 32 MB each: an array of bytes ends at 2 GB. They are the same memory, so that it costs nothing."""
    large = pa.array([b"x" * 32_000_000], pa.binary())
    names = ["seq", "content_type", "headers", "body"]
    nulls = [pa.nulls(1, BODIES.field(name).type) for name in names[1:3]]
    batches = (pa.RecordBatch.from_arrays([pa.array([seq]), *nulls, large], names) for seq in range(1, 71))
    events = pa.record_batch({"seq": wanted})
    found = [(part["seq"].to_pylist(), part["body"].null_count) for part in Bodies(batches).beside(events)]
    assert found == [([seq], 0) for seq in wanted]


def forget(folder: Path, number: int, domain: str = "local") -> None:
    """As retention does."""
    writer = SegmentWriter(str(folder), domain)
    segment = writer.manifest.segments[number]
    writer.remove(Removed(segment.first, segment.last, segment.file))
    writer.close()


def test_what_is_gone_is_told(ten: Path, caplog: pytest.LogCaptureFixture) -> None:
    forget(ten, 1)
    with pytest.raises(StoreUnavailable, match=r"events 5 to 7 of 'local' are missing.*failOnDataLoss"):
        seqs(ten)
    with caplog.at_level(logging.WARNING):
        assert seqs(ten, failOnDataLoss="false") == [1, 2, 3, 4, 8, 9, 10]
    assert "3 events are lost" in caplog.text


def test_history_that_began_later_is_no_loss(tmp_path: Path) -> None:
    folder = capture(tmp_path / "late", 3, skip=5)
    assert seqs(folder) == [6, 7, 8]
    with pytest.raises(StoreUnavailable, match="events 1 to 5"):
        seqs(folder, startingOffsets="0")


def test_what_goes_between_planning_and_reading_is_told(ten: Path) -> None:
    reader = batch_reader(ten)
    parts = reader.partitions()
    forget(ten, 0)
    with pytest.raises(StoreUnavailable, match="events 1 to 4"):
        list(reader.read(parts[0]))


@pytest.mark.parametrize("where", ["nothing", "sqlite:///nothing.db", "redis://somewhere"])
def test_a_wrong_place_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BusError) as caught:
        seqs(where)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


# Streams


def drive(
    reader: EventStreamReader, start: dict[str, object], limit: Any = None
) -> tuple[list[int], dict[str, object]]:
    """One batch, as Spark makes it: offsets go through JSON."""
    end = json.loads(json.dumps(reader.latestOffset(start, limit or reader.getDefaultReadLimit())))
    parts = reader.partitions(start, end)
    found = [seq for part in parts for batch in reader.read(part) for seq in batch["seq"].to_pylist()]
    reader.commit(end)
    return found, end


def test_a_stream_follows(ten: Path) -> None:
    reader = stream_reader(ten, startingOffsets="7", cursor="spark")
    assert shown_cursors(f"{ten}/capture") == {}
    found, at = drive(reader, json.loads(json.dumps(reader.initialOffset())))
    assert found == [8, 9, 10]
    assert drive(reader, at) == ([], at)
    capture(ten, 2)
    assert reader.reportLatestOffset() == {"local": 12}
    assert drive(reader, at) == ([11, 12], {"local": 12})
    assert shown_cursors(f"{ten}/capture") == {"spark": 12}


def test_a_stream_takes_so_many_at_once(ten: Path) -> None:
    reader = stream_reader(ten, maxEventsPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    first, at = drive(reader, reader.initialOffset())
    second, at = drive(reader, at)
    rest, at = drive(reader, at, ReadAllAvailable())
    assert (first, second, rest) == ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10])


def test_a_stream_waits_until_there_is_enough(ten: Path) -> None:
    reader = stream_reader(ten, minEventsPerTrigger="11", maxTriggerDelay="1h")
    assert reader.getDefaultReadLimit() == ReadMinRows(11)
    start = reader.initialOffset()
    assert drive(reader, start) == ([], start)
    capture(ten, 1)
    assert len(drive(reader, start)[0]) == 11


def test_a_stream_does_not_wait_for_ever(ten: Path) -> None:
    reader = stream_reader(ten, minEventsPerTrigger="11", maxTriggerDelay="0")
    assert len(drive(reader, reader.initialOffset())[0]) == 10


def test_what_is_available_now_has_an_end(ten: Path) -> None:
    reader = stream_reader(ten, minEventsPerTrigger="11", maxTriggerDelay="1h")
    reader.prepareForTriggerAvailableNow()
    capture(ten, 5)
    found, at = drive(reader, reader.initialOffset())
    assert found == list(range(1, 11))
    assert drive(reader, at) == ([], at)


def test_a_domain_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    capture(tmp_path / "a", 2, domain="a")
    reader = stream_reader(tmp_path, startingOffsets="latest")
    found, at = drive(reader, reader.initialOffset())
    assert found == []
    capture(tmp_path / "b", 3, domain="b", skip=4)
    assert drive(reader, at)[0] == [5, 6, 7]


def test_what_a_domain_that_came_later_lost_before_a_retry_is_told(tmp_path: Path) -> None:
    capture(tmp_path / "a", 2, domain="a")
    reader = stream_reader(tmp_path)
    _, at = drive(reader, reader.initialOffset())
    capture(tmp_path / "b", 3, 3, domain="b", skip=4)
    found, end = drive(reader, at)
    assert found == list(range(5, 11))
    # Spark ends before the batch is done, and makes it again when it is back. Retention was there meanwhile.
    forget(tmp_path / "b", 0, "b")
    with pytest.raises(StoreUnavailable, match="events 5 to 7 of 'b' are missing"):
        stream_reader(tmp_path).partitions(at, end)
    assert drive(stream_reader(tmp_path), end) == ([], end)


@pytest.mark.parametrize("domain", ["$from", "$initial", "$$from"])
def test_a_domain_may_be_called_like_a_key(tmp_path: Path, domain: str) -> None:
    folder = capture(tmp_path / "capture", 3, domain=domain)
    reader = stream_reader(folder, startingOffsets=json.dumps({f"${domain}": 1}))
    found, at = drive(reader, json.loads(json.dumps(reader.initialOffset())))
    assert found == [2, 3]
    capture(folder, 2, domain=domain)
    assert drive(reader, at)[0] == [4, 5]


def test_a_stream_over_what_retention_has_emptied_waits(ten: Path) -> None:
    reader = stream_reader(ten)
    _, at = drive(reader, reader.initialOffset())
    while Manifest.load(str(ten)).segments:
        forget(ten, 0)
    assert drive(reader, at) == ([], at)
    capture(ten, 2)
    assert drive(reader, at)[0] == [11, 12]


def test_a_stream_whose_history_began_anew_is_ended(ten: Path) -> None:
    reader = stream_reader(ten)
    _, at = drive(reader, reader.initialOffset())
    shutil.rmtree(ten)
    SegmentWriter(str(ten), "local").close()
    with pytest.raises(StoreUnavailable, match="it ends at 0"):
        drive(reader, at)


def test_a_stream_goes_no_further_than_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[object] = []
    monkeypatch.setattr(StoreSource, "settle", lambda source: settled.append(source))
    reader = stream_reader(small_bus(tmp_path / "bus.db"))
    drive(reader, reader.initialOffset())
    assert settled


def test_a_stream_tells_what_it_lost(ten: Path, caplog: pytest.LogCaptureFixture) -> None:
    forget(ten, 1)
    strict, lenient = stream_reader(ten), stream_reader(ten, failOnDataLoss="false")
    with pytest.raises(StoreUnavailable, match="events 5 to 7"):
        drive(strict, strict.initialOffset())
    with caplog.at_level(logging.WARNING):
        assert drive(lenient, lenient.initialOffset())[0] == [1, 2, 3, 4, 8, 9, 10]
    assert "has lost 3 events" in caplog.text


def test_a_history_that_goes_back_is_another_one(ten: Path) -> None:
    with pytest.raises(StoreUnavailable, match="'local' was read up to 99, and it ends at 10 now"):
        drive(stream_reader(ten), {"local": 99})
    with pytest.raises(StoreUnavailable, match="'gone' was read up to 7, and it is missing now"):
        drive(stream_reader(ten), {"local": 1, "gone": 7})
    with pytest.raises(StoreUnavailable, match="'gone' was read up to 7, and it is missing now"):
        stream_reader(ten).partitions({"local": 1}, {"local": 2, "gone": 7})
    with pytest.raises(StoreUnavailable, match="events 11 to 12 of 'local' are missing"):
        stream_reader(ten).partitions({"local": 1}, {"local": 12})
    assert drive(stream_reader(ten, failOnDataLoss="false"), {"local": 99}) == ([], {"local": 99})


def test_options_have_their_place(ten: Path) -> None:
    for option in ("maxEventsPerTrigger", "minEventsPerTrigger", "cursor"):
        with pytest.raises(UsageError, match=f"{option} is only for readStream"):
            batch_reader(ten, **{option: "1"})
    with pytest.raises(UsageError, match="endingOffsets is only for read"):
        stream_reader(ten, endingOffsets="5")
    with pytest.raises(UsageError, match="pushdown is only for read"):
        stream_reader(ten, pushdown="true")
    with pytest.raises(UsageError, match=r"no kind of event 'send' .did you mean 'sent'"):
        batch_reader(ten, kinds="send")
