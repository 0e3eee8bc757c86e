"""One effect per row: staging and publishing, asked in the way Spark asks them, without a session."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from tests.pipeline.histories import url_of
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import (
    BusError,
    EntityDisabled,
    NameInvalid,
    PriorityInvalid,
    QuotaExceeded,
    SerializationFailed,
    StoreBusy,
    StoreDamaged,
    StoreUnavailable,
    TransactionInvalid,
    UsageError,
)
from unibus.pipeline.connector.names import file_name
from unibus.pipeline.connector.options import write_options
from unibus.pipeline.connector.publishing import BATCH_SHIFT, Effect, PublishProgress, publish
from unibus.pipeline.connector.sink import BatchWriter, StreamWriter
from unibus.pipeline.connector.staging import Staging

COLUMNS = pa.schema([("channel", pa.string()), ("body", pa.int64())])


def numbers(first: int, last: int, channel: str = "out") -> list[pa.RecordBatch]:
    """What one task gets: a row for each number, in two batches."""
    half = (first + last) // 2
    spans = [range(first, half + 1), range(half + 1, last + 1)]
    return [pa.record_batch([[channel] * len(span), list(span)], schema=COLUMNS) for span in spans]


def peeked(bus_path: Path, channel: str = "out") -> list[Message]:
    with SyncMessageBus(url_of(bus_path)) as bus:
        return bus.peek(channel, 100_000)


def bodies(bus_path: Path, channel: str = "out") -> list[Any]:
    return [message.body for message in peeked(bus_path, channel)]


def checkpoint(folder: Path) -> str:
    """What Spark makes when a stream begins, as far as the sink looks at it."""
    folder.mkdir(exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": f"id-of-{folder.name}"}))
    return str(folder)


def stream_writer(tmp_path: Path, schema: pa.Schema = COLUMNS, **options: str) -> StreamWriter:
    given = {"url": url_of(tmp_path / "bus.db"), "query": "q", "staging": str(tmp_path / "staging"), **options}
    given.setdefault("checkpointLocation", checkpoint(tmp_path / "checkpoint"))
    return StreamWriter(
        write_options({key: text for key, text in given.items() if text}), from_arrow_schema(schema), False
    )


def batch_writer(tmp_path: Path, schema: pa.Schema = COLUMNS, **options: str) -> BatchWriter:
    given = {"url": url_of(tmp_path / "bus.db"), **options}
    return BatchWriter(write_options(given), from_arrow_schema(schema), False)


@pytest.fixture
def bus_path(tmp_path: Path) -> Path:
    path = tmp_path / "bus.db"
    with SyncMessageBus(url_of(path)) as bus:
        bus.create_queue("out")
    return path


# Rows


def test_a_row_becomes_a_message(tmp_path: Path, bus_path: Path) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    row = {
        "channel": "out",
        "body": {"n": 1, "at": later, "tags": ["a"]},
        "message_id": "m1",
        "correlation_id": "c1",
        "session_id": None,
        "subject": "s",
        "headers": [("k", "v")],
        "priority": 7,
        "ttl": 60.0,
        "trace_id": "t1",
    }
    schema = pa.schema(
        [
            ("channel", pa.string()),
            (
                "body",
                pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]),
            ),
            *((name, pa.string()) for name in ("message_id", "correlation_id", "session_id", "subject")),
            ("headers", pa.map_(pa.string(), pa.string())),
            ("priority", pa.int32()),
            ("ttl", pa.float64()),
            ("trace_id", pa.string()),
        ]
    )
    writer = batch_writer(tmp_path, schema)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist([row], schema)]))])
    (message,) = peeked(bus_path)
    assert message.body == {"n": 1, "at": "2100-01-01T00:00:00Z", "tags": ["a"]}
    assert (message.id, message.correlation_id, message.session_id) == ("m1", "c1", None)
    assert (message.subject, message.headers, message.priority) == ("s", {"k": "v"}, 7)
    assert message.trace_id == "t1"
    assert 0 < message.expires_ns - message.timestamp_ns < 70 * 10**9


@pytest.mark.parametrize(
    ("kind", "value", "content_type", "wanted"),
    [
        (pa.string(), "text", None, "text"),
        (pa.string(), '{"a": 1}', None, '{"a": 1}'),
        (pa.string(), '{"a": 1}', "application/json", {"a": 1}),
        (pa.binary(), b'{"a": 1}', "application/vnd.x+json; charset=utf-8", {"a": 1}),
        (pa.binary(), b"\x00", None, b"\x00"),
        (pa.binary(), b"{", "application/octet-stream", b"{"),
        (pa.list_(pa.int64()), [1, None], None, [1, None]),
        (pa.map_(pa.string(), pa.float64()), [("a", 1.5)], None, {"a": 1.5}),
        (pa.bool_(), True, None, True),
        (pa.string(), None, None, None),
    ],
)
def test_a_body_of_each_kind(
    tmp_path: Path, bus_path: Path, kind: pa.DataType, value: object, content_type: str | None, wanted: object
) -> None:
    schema = pa.schema([("body", kind), ("content_type", pa.string())])
    writer = batch_writer(tmp_path, schema, channel="out")
    batch = pa.record_batch([pa.array([value], kind), pa.array([content_type], pa.string())], schema=schema)
    writer.commit([writer.write(iter([batch]))])
    assert bodies(bus_path) == [wanted]


def test_rows_may_be_for_later(tmp_path: Path, bus_path: Path) -> None:
    schema = pa.schema(
        [("body", pa.string()), ("delay", pa.duration("us")), ("scheduled_at", pa.timestamp("us", "UTC"))]
    )
    rows = [
        {"body": "now", "delay": None, "scheduled_at": None},
        {"body": "delay", "delay": 3_600_000_000, "scheduled_at": None},
        {"body": "at", "delay": None, "scheduled_at": datetime(2100, 1, 1, tzinfo=UTC)},
    ]
    writer = batch_writer(tmp_path, schema, channel="out")
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(rows, schema)]))])
    with SyncMessageBus(url_of(bus_path)) as bus:
        info = bus.entities.get("out")
        received = bus.receive_batch("out", 5, 1.0)
        assert [message.body for message in received] == ["now"]
        assert info.scheduled == 2
        for message in received:
            message.complete()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"channel": None}, NameInvalid),
        ({"channel": ""}, NameInvalid),
        ({"priority": 256}, PriorityInvalid),
        ({"ttl": -1.0}, UsageError),
        ({"session_id": "x" * 200}, UsageError),
        ({"message_id": "x" * 200}, UsageError),
        ({"message_id": ""}, UsageError),
        ({"content_type": "application/json", "body": "{"}, SerializationFailed),
    ],
)
def test_a_row_that_no_bus_could_take_leaves_nothing(
    tmp_path: Path, bus_path: Path, row: dict[str, object], error: type[BusError]
) -> None:
    kinds = {"priority": pa.int64(), "ttl": pa.float64()}
    rows = [{"channel": "out", "body": "fine"}, {"channel": "out", "body": "bad", **row}]
    names = dict.fromkeys(["channel", "body", *row])
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    writer = batch_writer(tmp_path, schema)
    with pytest.raises(error):
        writer.write(iter([pa.RecordBatch.from_pylist(rows, schema)]))
    writer.abort([None])
    assert bodies(bus_path) == []
    assert not (tmp_path / "bus.db.staging").exists()


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        ({"channel": pa.string(), "boddy": pa.string()}, {}, "no column 'boddy' .did you mean 'body'"),
        ({"channel": pa.string()}, {}, "no column `body`"),
        ({"body": pa.string()}, {}, "nothing names the channel"),
        ({"body": pa.string(), "channel": pa.string()}, {"channel": "out"}, "a column and an option"),
        ({"body": pa.string(), "channel": pa.int64()}, {}, "'channel' has the wrong type bigint .it has to be text"),
        ({"body": pa.string(), "priority": pa.string()}, {"channel": "a"}, "it has to be a whole number"),
        ({"body": pa.string(), "headers": pa.string()}, {"channel": "a"}, "it has to be a map"),
        ({"body": pa.string(), "scheduled_at": pa.string()}, {"channel": "a"}, "it has to be a timestamp"),
        ({"body": pa.string()}, {"channel": "a", "batch": "1"}, "set the option query too"),
    ],
)
def test_a_wrong_frame_is_refused(tmp_path: Path, schema: dict[str, Any], options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        batch_writer(tmp_path, pa.schema(list(schema.items())), **options)


# Streams


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path, bus_path: Path) -> None:
    for _ in range(2):
        writer = stream_writer(tmp_path)
        writer.commit([writer.write(iter(numbers(1, 250))), writer.write(iter(numbers(251, 300)))], 0)
    assert bodies(bus_path) == list(range(1, 301))
    writer = stream_writer(tmp_path)
    writer.commit([writer.write(iter(numbers(301, 302)))], 1)
    writer.commit([writer.write(iter([]))], 2)
    writer.commit([writer.write(iter(numbers(303, 303)))], 5)
    assert bodies(bus_path) == list(range(1, 304))
    assert not (tmp_path / "staging").exists()


def test_a_transaction_holds_no_more_than_was_asked_for(tmp_path: Path, bus_path: Path) -> None:
    writer = stream_writer(tmp_path, rowsPerTransaction="7")
    writer.commit([writer.write(iter(numbers(1, 30)))], 0)
    with SyncMessageBus(url_of(bus_path)) as bus:
        moments = bus.query_messages("SELECT attrs FROM events WHERE kind = 'advanced' ORDER BY seq").rows
    # In two batches of 15 rows.
    moved = [json.loads(str(attrs)) for (attrs,) in moments]
    steps = [each["position"] for each in moved if each["name"] == "spark/q"]
    assert steps == ["7", "14", "15", "22", "29", str(1 << BATCH_SHIFT)]
    assert len(moved) == len(steps) + 1


def test_a_stream_of_the_same_name_from_its_beginning_is_refused(tmp_path: Path, bus_path: Path) -> None:
    writer = stream_writer(tmp_path)
    for batch in (0, 1):
        writer.commit([writer.write(iter(numbers(batch, batch)))], batch)
    with pytest.raises(UsageError, match=r"has written batch 1, and now writes batch 0.*another name"):
        writer.commit([writer.write(iter(numbers(7, 7)))], 0)
    other = stream_writer(tmp_path, query="other")
    other.commit([other.write(iter(numbers(7, 7)))], 0)
    assert bodies(bus_path) == [0, 1, 7]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_another_checkpoint_under_an_old_name_is_refused(tmp_path: Path, bus_path: Path, number: int) -> None:
    """Its batch may have the number of the last one, which would look like a repetition."""
    writer = stream_writer(tmp_path)
    for batch in (0, 1):
        writer.commit([writer.write(iter(numbers(batch, batch)))], batch)
    anew = checkpoint(tmp_path / "anew")
    second = stream_writer(tmp_path, checkpointLocation=anew)
    staged = [second.write(iter(numbers(7, 8)))]
    with pytest.raises(UsageError, match=r"'q' was written from another checkpoint.*change the option query"):
        second.commit(list(staged), number)
    second.abort(list(staged), number)
    assert bodies(bus_path) == [0, 1]
    named = stream_writer(tmp_path, checkpointLocation=anew, query="q2")
    named.commit([named.write(iter(numbers(7, 8)))], 0)
    writer.commit([writer.write(iter(numbers(2, 2)))], 2)
    assert bodies(bus_path) == [0, 1, 7, 8, 2]


def test_a_name_is_owned_from_the_first_row_on(tmp_path: Path, bus_path: Path) -> None:
    first = stream_writer(tmp_path)
    first.commit([first.write(iter([]))], 0)
    second = stream_writer(tmp_path, checkpointLocation=checkpoint(tmp_path / "anew"))
    second.commit([second.write(iter(numbers(1, 2)))], 0)
    with pytest.raises(UsageError, match="another checkpoint"):
        first.commit([first.write(iter(numbers(3, 3)))], 1)
    assert bodies(bus_path) == [1, 2]


def test_an_empty_batch_of_another_checkpoint_removes_nothing(tmp_path: Path, bus_path: Path) -> None:
    writer = begun(tmp_path)
    other = stream_writer(tmp_path, checkpointLocation=checkpoint(tmp_path / "anew"))
    other.commit([other.write(iter([]))], 5)
    writer.commit([writer.write(iter(numbers(1, 1)))], 0)
    assert bodies(bus_path) == list(range(1, 301))


def test_a_stream_that_nothing_identifies_is_refused(tmp_path: Path, bus_path: Path) -> None:
    writer = stream_writer(tmp_path, checkpointLocation="")
    with pytest.raises(UsageError, match="a retry would write its rows twice"):
        writer.commit([writer.write(iter(numbers(1, 1)))], 0)
    assert bodies(bus_path) == []


KILLED = """
import os, sys
from tests.unit.pipeline.test_sink_publish import numbers, stream_writer
from unibus.pipeline.connector import sink
from unibus.pipeline.connector.publishing import PublishProgress
from pathlib import Path

class Deadly(PublishProgress):
    # Counts after each transaction, and then kills the process.
    def __setattr__(self, name, value):
        if value >= int(sys.argv[2]) > 0:
            os._exit(9)
        super().__setattr__(name, value)

sink.PublishProgress = Deadly
writer = stream_writer(Path(sys.argv[1]), rowsPerTransaction="100")
staged = [writer.write(iter(numbers(1, 500))), writer.write(iter(numbers(501, 1000)))]
if sys.argv[2] == "list":
    writer._staging.list("0", staged)
    os._exit(9)
writer.commit(staged, 0)
"""


@pytest.mark.parametrize("rows", ["list", "600", "1000"])
def test_a_kill_between_transactions_is_made_good(tmp_path: Path, bus_path: Path, rows: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), rows], env=environment, capture_output=True)
    assert done.returncode == 9, done.stderr.decode()
    assert len(bodies(bus_path)) == (0 if rows == "list" else int(rows))
    # Spark computes the batch again, and this time it is another one, in other tasks.
    writer = stream_writer(tmp_path)
    writer.commit([writer.write(iter(numbers(2_001, 2_300)))], 0)
    assert bodies(bus_path) == list(range(2_001, 2_301) if rows == "list" else range(1, 1_001))
    assert not (tmp_path / "staging").exists()


def test_a_batch_that_was_begun_survives_an_abort(tmp_path: Path) -> None:
    """The bus has no space for all rows: a failed commit is followed by an abort."""
    with SyncMessageBus(url_of(tmp_path / "bus.db")) as bus:
        bus.create_queue("out", max_size_mb=1)
    schema = pa.schema([("channel", pa.string()), ("body", pa.string())])
    rows = [{"channel": "out", "body": f"{number} " + "x" * 10_000} for number in range(200)]
    writer = stream_writer(tmp_path, schema, rowsPerTransaction="100")
    staged = [writer.write(iter([pa.RecordBatch.from_pylist(rows, schema)])) for _ in range(1)]
    with pytest.raises(QuotaExceeded):
        writer.commit(list(staged), 0)
    writer.abort(list(staged), 0)
    begun = len(bodies(tmp_path / "bus.db"))
    with SyncMessageBus(url_of(tmp_path / "bus.db")) as bus:
        bus.update_entity("out", max_size_mb=1_024)
    again = stream_writer(tmp_path, schema)
    again.commit([again.write(iter([pa.RecordBatch.from_pylist(rows[:3], schema)]))], 0)
    assert begun == 100
    assert [str(body).split()[0] for body in bodies(tmp_path / "bus.db")] == [str(number) for number in range(200)]


def test_an_abort_leaves_nothing_behind(tmp_path: Path, bus_path: Path) -> None:
    writer = stream_writer(tmp_path)
    writer.abort([writer.write(iter(numbers(1, 10))), None], 0)
    assert not (tmp_path / "staging").exists()
    assert bodies(bus_path) == []


def begun(tmp_path: Path) -> StreamWriter:
    """A batch of 300 rows of which 100 are in the bus."""
    writer = stream_writer(tmp_path)
    staged = [writer.write(iter(numbers(1, 300)))]

    class Stopped(PublishProgress):
        def __setattr__(self, name: str, value: int) -> None:
            if value:
                raise KeyboardInterrupt

    effect = Effect("q", "spark/q", 0, "0", checkpoint="id-of-checkpoint")
    with pytest.raises(KeyboardInterrupt):
        publish(url_of(tmp_path / "bus.db"), effect, writer._staging, staged, 100, Stopped())
    return writer


def test_staged_rows_that_are_gone_are_told(tmp_path: Path, bus_path: Path) -> None:
    writer = begun(tmp_path)
    for file in (tmp_path / "staging").rglob("*.arrow"):
        file.unlink()
    with pytest.raises(StoreDamaged, match="cannot be read"):
        writer.commit([], 0)


def test_staged_rows_that_are_damaged_are_told(tmp_path: Path, bus_path: Path) -> None:
    writer = begun(tmp_path)
    (file,) = (tmp_path / "staging").rglob("*.arrow")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))
    with pytest.raises(StoreDamaged):
        writer.commit([], 0)
    assert bodies(bus_path) == list(range(1, 101))


def test_a_list_that_is_gone_is_told(tmp_path: Path, bus_path: Path) -> None:
    writer = begun(tmp_path)
    Staging(str(tmp_path / "staging"), "q").remove()
    with pytest.raises(StoreDamaged, match="100 rows of 'q', batch 0, are in the bus"):
        writer.commit([writer.write(iter(numbers(1, 300)))], 0)
    with pytest.raises(TransactionInvalid, match="batch 0 of query 'q' is published only in part"):
        writer.commit([writer.write(iter(numbers(1, 300)))], 1)


def test_rows_that_an_executor_staged_elsewhere_are_told(tmp_path: Path, bus_path: Path) -> None:
    elsewhere = stream_writer(tmp_path, staging=str(tmp_path / "its own"))
    staged = elsewhere.write(iter(numbers(1, 3)))
    with pytest.raises(StoreUnavailable, match="a folder that driver and executors share"):
        stream_writer(tmp_path).commit([staged], 0)


@pytest.mark.parametrize("batch", [0, 1, 7, 2**30])
def test_a_position_says_how_far_a_batch_is(batch: int) -> None:
    effect = Effect("q", "p", batch, str(batch))
    assert effect.done(batch << BATCH_SHIFT) == 0
    assert effect.done((batch << BATCH_SHIFT) + 5) == 5
    assert effect.done((batch + 1) << BATCH_SHIFT) is None
    assert effect.done(0) == 0


# Batch writes


def test_a_named_write_happens_once(tmp_path: Path, bus_path: Path) -> None:
    for batch, first in (("1", 1), ("2", 11), ("1", 21), ("2", 31)):
        writer = batch_writer(tmp_path, query="nightly", batch=batch, rowsPerTransaction="4")
        writer.commit([writer.write(iter(numbers(first, first + 9)))])
    assert bodies(bus_path) == list(range(1, 21))


def test_a_batch_that_was_refused_can_be_corrected(tmp_path: Path, bus_path: Path) -> None:
    with SyncMessageBus(url_of(bus_path)) as bus:
        bus.create_queue("closed", status="send_disabled")

    def save(tasks: list[list[pa.RecordBatch]]) -> None:
        writer = batch_writer(tmp_path, query="q", batch="1")
        staged = [writer.write(iter(task)) for task in tasks]
        try:
            writer.commit(list(staged))
        except EntityDisabled:
            writer.abort(list(staged))
            raise

    for _ in range(2):
        with pytest.raises(EntityDisabled):
            save([numbers(1, 3, "closed"), numbers(4, 6, "closed")])
    save([numbers(1, 5)])
    save([numbers(6, 9)])
    assert bodies(bus_path) == [1, 2, 3, 4, 5]
    assert not (tmp_path / "bus.db.staging").exists()


def test_a_batch_that_turns_out_to_be_empty_is_one(tmp_path: Path, bus_path: Path) -> None:
    with SyncMessageBus(url_of(bus_path)) as bus:
        bus.create_queue("closed", status="send_disabled")
    writer = batch_writer(tmp_path, query="q", batch="1")
    with pytest.raises(EntityDisabled):
        writer.commit([writer.write(iter(numbers(1, 3, "closed")))])
    writer.commit([writer.write(iter([]))])
    assert bodies(bus_path, "closed") == []
    assert not (tmp_path / "bus.db.staging").exists()


def test_a_write_without_a_name_is_a_new_one(tmp_path: Path, bus_path: Path) -> None:
    for _ in range(2):
        writer = batch_writer(tmp_path)
        writer.commit([writer.write(iter(numbers(1, 3)))])
    assert bodies(bus_path) == [1, 2, 3, 1, 2, 3]
    with SyncMessageBus(url_of(bus_path)) as bus:
        assert [each for each in bus.query_messages("SELECT kind FROM events").rows if each[0] == "advanced"] == []


def test_a_large_write_without_a_name_tells_how_to_go_on(tmp_path: Path) -> None:
    with SyncMessageBus(url_of(tmp_path / "bus.db")) as bus:
        bus.create_queue("out", max_size_mb=1)
    schema = pa.schema([("channel", pa.string()), ("body", pa.string())])
    rows = pa.RecordBatch.from_pylist([{"channel": "out", "body": "x" * 10_000}] * 200, schema)
    writer = batch_writer(tmp_path, schema, rowsPerTransaction="100")
    staged = [writer.write(iter([rows]))]
    with pytest.raises(QuotaExceeded, match="continue with the option query 'write-") as caught:
        writer.commit(list(staged))
    writer.abort(list(staged))
    with SyncMessageBus(url_of(tmp_path / "bus.db")) as bus:
        bus.update_entity("out", max_size_mb=1_024)
    again = batch_writer(tmp_path, schema, query=caught.value.hint.split("'")[1])
    again.commit([again.write(iter([rows]))])
    assert len(bodies(tmp_path / "bus.db")) == 200
    assert not (tmp_path / "bus.db.staging").exists()


# Names and folders


NAMES = ["q", "Q", "stream", "batch-q", "a.b", "a%2eb", "...x", "é", "e\u0301", "字" * 128, "字" * 127 + "名"]


def test_every_name_has_a_folder_of_its_own_inside_of_staging(tmp_path: Path) -> None:
    stagings = [Staging(str(tmp_path), query, batch) for query in NAMES for batch in [None, *NAMES]]
    folders = [each.folder for each in stagings]
    # Nor are two the same on a file system that ignores case.
    assert len({folder.casefold() for folder in folders}) == len(folders)
    for folder in folders:
        parts = Path(folder).relative_to(tmp_path).parts
        assert len(parts) == 2
        assert all(0 < len(part.encode()) <= 255 and not set(part) & set("./\\") for part in parts)


@pytest.mark.parametrize("text", ["..", ".", "../..", "a/../..", "", "\0", "~"])
def test_no_text_leads_out_of_its_folder(text: str) -> None:
    assert not set(file_name(text)) & set("./\\\0~")


def test_batches_do_not_take_each_others_rows(tmp_path: Path, bus_path: Path) -> None:
    """A batch write that is called as the folder of a stream was."""
    place = str(tmp_path / "staging")
    writer = begun(tmp_path)
    other = batch_writer(tmp_path, query="q", batch="stream", staging=place)
    other.commit([other.write(iter(numbers(1_000, 1_001)))])
    writer.commit([writer.write(iter([]))], 0)
    assert sorted(bodies(bus_path)) == [*range(1, 301), 1_000, 1_001]


def test_nothing_outside_of_staging_is_removed(tmp_path: Path, bus_path: Path) -> None:
    """Whatever made the folder lead elsewhere: here it is a link."""
    kept = tmp_path / "kept" / "stream"
    kept.mkdir(parents=True)
    (kept / "file").touch()
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "q").symlink_to(tmp_path / "kept")
    with pytest.raises(UsageError, match="is outside of"):
        Staging(str(tmp_path / "staging"), "q").remove()
    assert (kept / "file").exists()


# The bus


def test_a_bus_that_somebody_owns_is_told(tmp_path: Path, bus_path: Path) -> None:
    writer = batch_writer(tmp_path)
    staged = [writer.write(iter(numbers(1, 3)))]
    with SyncMessageBus(url_of(bus_path)), pytest.raises(StoreBusy, match=r"in use by process \d+.*one owner"):
        writer.commit(list(staged))
    writer.abort(list(staged))
    assert not (tmp_path / "bus.db.staging").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    options = write_options({"url": url_of(tmp_path / "bus.db"), "query": "q"})
    with pytest.raises(UsageError, match="cannot be overwritten"):
        BatchWriter(options, from_arrow_schema(COLUMNS), True)
    with pytest.raises(UsageError, match="cannot be overwritten"):
        StreamWriter(options, from_arrow_schema(COLUMNS), True)


def test_a_stream_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the query has no name"):
        stream_writer(tmp_path, query="", checkpointLocation="")
    with pytest.raises(UsageError, match="the query has no name"):
        stream_writer(tmp_path, query="", checkpointLocation="hdfs://somewhere/else")
    with pytest.raises(UsageError, match="does not have the id of the query"):
        stream_writer(tmp_path, query="", checkpointLocation=str(tmp_path))
    (tmp_path / "metadata").write_text('{"id": "../.."}')
    with pytest.raises(UsageError, match="does not have the id of the query"):
        stream_writer(tmp_path, query="", checkpointLocation=str(tmp_path))
    with pytest.raises(UsageError, match="the option batch is not for streams"):
        stream_writer(tmp_path, batch="1")
