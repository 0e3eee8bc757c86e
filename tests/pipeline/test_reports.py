"""Every report says what can be counted by hand from the events it is about."""

import math
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, functions

from tests.pipeline.asked_lake import START_US, Asked, made_in
from unibus.capture.schema import table_of
from unibus.capture.segments import SegmentWriter
from unibus.capture.sources import open_sources
from unibus.core.lifecycle.events import Event
from unibus.errors import CaptureDamaged, LakeIncomplete, QueryInvalid, QueryStopped, UsageError
from unibus.pipeline.lake import Lake, read_parquet
from unibus.pipeline.reports.answer import Answer
from unibus.pipeline.reports.asking import answer
from unibus.pipeline.reports.consumers import worked
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.reports.sql import NAMES
from unibus.pipeline.reports.stuck import last_us
from unibus.pipeline.run import run_all
from unibus.pipeline.serving.server import Answers

CAME = ("sent", "scheduled", "copied", "published")
ALL = 1_000_000
ENDLESS = "SELECT max(sha2(cast(id AS string), 512)) FROM range(10000000000000)"
MIDDLE_US = START_US + 3 * 3_600_000_000


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return made_in(tmp_path_factory.mktemp("asked"))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """Of its own: a SELECT changes settings."""
    return spark.newSession()


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The machine is somewhere else for as long as the test runs."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def iso(us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()


def place(event: dict[str, Any]) -> tuple[str, str]:
    return event["domain"], event["channel"]


def rows_of(found: Answer) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["domain"], each["channel"]): each for each in found.records()}  # type: ignore[misc]


def test_channels(session: SparkSession, asked: Asked) -> None:
    found = answer(session, asked.lake, ReportRequest("channels", limit=ALL))
    came, sizes = Counter(map(place, asked.of(*CAME))), Counter[tuple[str, str]]()
    for each in asked.of(*CAME):
        sizes[place(each)] += each["size"]
    rows = rows_of(found)
    assert {key: row["came"] for key, row in rows.items() if row["came"]} == dict(came)
    assert {key: row["bytes"] for key, row in rows.items() if row["came"]} == dict(sizes)
    for kind in ("delivered", "completed", "returned", "dead_lettered", "expired"):
        assert {key: row[kind] for key, row in rows.items() if row[kind]} == dict(Counter(map(place, asked.of(kind))))
    assert all(sum(row["came_over_time"]) == row["came"] for row in rows.values())
    counts = [row["came"] for row in rows.values()]
    assert counts == sorted(counts, reverse=True)
    assert not found.more


def test_channels_of_a_pattern_since_a_moment_with_a_limit(session: SparkSession, asked: Asked) -> None:
    wanted = asked.of("sent")[0]["channel"]
    pattern = f"{wanted[:4]}*"
    late = [each for each in asked.of(*CAME) if each["ts"] >= MIDDLE_US and each["channel"].startswith(wanted[:4])]
    found = answer(session, asked.lake, ReportRequest("channels", MIDDLE_US, pattern, ALL))
    assert {key: row["came"] for key, row in rows_of(found).items() if row["came"]} == dict(Counter(map(place, late)))
    one = answer(session, asked.lake, ReportRequest("channels", limit=1))
    assert (len(one.rows), one.more) == (1, True)
    assert not answer(session, asked.lake, ReportRequest("channels", channel="no_such%")).rows


def test_latency_out_of_the_histogram(session: SparkSession, asked: Asked) -> None:
    found = answer(session, asked.lake, ReportRequest("latency", limit=ALL))
    took: dict[tuple[str, str], list[int]] = defaultdict(list)
    waited: dict[tuple[str, str], int] = defaultdict(int)
    for each in asked.of("completed"):
        if each["enqueued_us"] is not None and each["first_delivered_us"] is not None:
            waited[place(each)] = max(waited[place(each)], each["first_delivered_us"] - each["enqueued_us"])
        if each["enqueued_us"] is not None:
            took[place(each)].append(each["ts"] - each["enqueued_us"])
    rows = rows_of(found)
    assert {key: row["completed"] for key, row in rows.items()} == {key: len(times) for key, times in took.items()}
    error = 2 ** (1 / 8) + 1e-9
    for key, times in took.items():
        times.sort()
        row = rows[key]
        assert row["max_us"] == times[-1]
        assert row["mean_us"] == pytest.approx(sum(times) / len(times))
        for name, share in (("p50_us", 0.5), ("p95_us", 0.95), ("p99_us", 0.99)):
            exact = max(1, times[math.ceil(share * len(times)) - 1])
            assert exact / error <= max(1, row[name]) <= exact * error, (key, name)
        assert row["waiting_p95_us"] <= waited[key]
        assert sum(row["distribution"]) == len(times)
    assert sum(found.plots[0].values) == sum(map(len, took.values()))
    assert "9%" in found.notes[0]


def test_failures(session: SparkSession, asked: Asked) -> None:
    found = answer(session, asked.lake, ReportRequest("failures", limit=ALL))
    groups: dict[Any, list[int]] = defaultdict(list)
    for each in asked.of("dead_lettered", "expired", "returned"):
        groups[(*place(each), each["kind"], each["reason"], each["signature"])].append(each["ts"])
    rows = {tuple(row[:5]): dict(zip([c.name for c in found.columns], row, strict=True)) for row in found.rows}
    assert {key: row["n"] for key, row in rows.items()} == {key: len(times) for key, times in groups.items()}
    ids = {each["message_id"] for each in asked.events}
    for row in rows.values():
        assert sum(row["over_time"]) == row["n"]
        assert row["sample_message_id"] in ids
        assert row["first_at"] <= row["last_at"]
    assert sum(found.plots[0].values) == sum(map(len, groups.values()))
    assert len(found.plots[0].labels) == len(found.plots[0].values)


def open_messages(asked: Asked) -> dict[tuple[str, str, int], dict[str, Any]]:
    """By the rules of the schema, one event after the other."""
    held: dict[tuple[str, str, int], dict[str, Any]] = {}
    ends = {"completed", "cancelled", "expired", "dead_lettered", "routed", "purged", "moved"}
    for each in asked.events:
        key = (*place(each), each["sequence"])
        attrs = dict(each["attrs"] or ())
        if each["kind"] in ("sent", "scheduled", "copied"):
            held[key] = each
        elif each["kind"] in ends:
            held.pop(key, None)
        elif each["kind"] == "activated" and "new_sequence" in attrs:
            held[(*place(each), int(attrs["new_sequence"]))] = held.pop(key)
        elif each["kind"] == "dropped":
            for other in [other for other in held if other[:2] == place(each)]:
                del held[other]
    return held


def test_stuck(session: SparkSession, asked: Asked) -> None:
    found = answer(session, asked.lake, ReportRequest("stuck", limit=ALL))
    held = open_messages(asked)
    keys = {(row["domain"], row["channel"], row["sequence"]) for row in found.records()}
    assert keys
    assert keys <= held.keys()
    lake = asked.lake.folder("messages")
    later = [row for row in lake.read([file for file in lake.files() if file.open]).to_pylist() if row["due_at"]]
    assert len(held) - len(keys) <= len(later)  # What is due later is not stuck.
    ages = [row["age_us"] for row in found.records()]
    assert ages == sorted(ages, reverse=True)  # type: ignore[type-var]
    assert sum(found.plots[0].values) <= len(keys)
    dead = [row for row in found.records() if str(row["channel"]).endswith("$DeadLetterQueue")]
    assert {row["why"] for row in dead} == {"dead-lettered: it waits for an operator"}
    old = answer(session, asked.lake, ReportRequest("stuck", MIDDLE_US, limit=ALL))
    assert {tuple(row[:3]) for row in old.rows} < {tuple(row[:3]) for row in found.rows}


def test_consumers(session: SparkSession, asked: Asked) -> None:
    found = answer(session, asked.lake, ReportRequest("consumers", limit=ALL))
    done = Counter((*place(each), each["consumer"]) for each in asked.of("completed") if each["consumer"])
    rows = {(row["domain"], row["channel"], row["consumer"]): row for row in found.records()}
    assert {key: row["completed"] for key, row in rows.items() if row["completed"]} == dict(done)
    longest: dict[Any, int] = defaultdict(int)
    for each in asked.of("completed"):
        if each["consumer"] and each["first_delivered_us"]:
            key = (*place(each), each["consumer"])
            longest[key] = max(longest[key], each["ts"] - each["first_delivered_us"])
    assert longest
    assert all(rows[key]["work_max_us"] >= most for key, most in longest.items())  # type: ignore[operator]


def test_who_has_no_name_counts_as_a_consumer(session: SparkSession) -> None:
    moments = "timestamp'2026-01-05 00:00:01Z' AS first_delivered_at, timestamp'2026-01-05 00:00:02Z' AS last_at"
    ended = "false AS open, '' AS state, 'completed' AS outcome, 1 AS delivery_count"
    names = "stack(3, 'ann', '', cast(null AS string)) AS consumer"
    rows = session.sql(f"SELECT 'd' AS domain, 'c' AS channel, {ended}, {moments}, {names}")
    untouched = rows.withColumn("first_delivered_at", functions.lit(None).cast("timestamp")).where("consumer = ''")
    found = worked(rows.unionAll(untouched)).orderBy("consumer").collect()
    assert [(row["consumer"], row["completed"], row["work_max_us"]) for row in found] == [
        (None, 2, 1_000_000),
        ("ann", 1, 1_000_000),
    ]


def test_ages_count_from_the_last_event_though_its_message_was_forgotten(session: SparkSession) -> None:
    left = session.sql("SELECT 'd' AS domain, timestamp'2026-01-05 00:00:01.5Z' AS last_at")
    minutes = session.sql("SELECT 'd' AS domain, timestamp'2026-01-05 00:05:00Z' AS minute")
    known_us = [last_us(left, minutes), last_us(left, minutes.limit(0)), last_us(left.limit(0), minutes.limit(0))]
    assert [{domain: iso(us) for domain, us in each.items()} for each in known_us] == [
        {"d": "2026-01-05T00:05:00+00:00"},
        {"d": "2026-01-05T00:00:01.500000+00:00"},
        {},
    ]


def test_ages_count_from_the_last_event_of_their_own_domain(session: SparkSession, tmp_path: Path) -> None:
    """One of two buses stopped a month before the other: its messages are not a month older for that."""
    hour_us, month_us = 3_600_000_000, 30 * 86_400_000_000
    for domain, began_us in (("early", START_US), ("late", START_US + month_us)):
        about = {"domain": domain, "channel": "orders", "size": 1}
        events = [
            Event(1, began_us, kind="sent", sequence=1, message_id="a", **about),
            Event(2, began_us + hour_us, kind="sent", sequence=2, message_id="b", **about),
            Event(
                3,
                began_us + hour_us,
                kind="delivered",
                sequence=2,
                message_id="b",
                attrs={"until_us": str(began_us + 2 * hour_us)},
                **about,
            ),
        ]
        with closing(SegmentWriter(str(tmp_path / "captures" / domain), domain)) as writer:
            writer.write(table_of(events))
    lake = Lake(str(tmp_path / "lake"))
    list(run_all(None, lake, open_sources(str(tmp_path / "captures"))))
    found = answer(session, lake, ReportRequest("stuck"))
    ages = {(row["domain"], row["sequence"]): (row["age_us"], row["untouched_us"]) for row in found.records()}
    # What is locked until an hour after the last event of its domain is in the hands of its consumer.
    assert ages == {("early", 1): (hour_us, hour_us), ("late", 1): (hour_us, hour_us)}
    assert iso(START_US + hour_us)[:10] in found.notes[0]
    assert iso(START_US + month_us)[:10] in found.notes[0]


@pytest.mark.parametrize("table", ["messages", "events"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_cannot_be_read_is_named(
    table: str, is_there: bool, session: SparkSession, asked: Asked, tmp_path: Path
) -> None:
    shutil.copytree(asked.path, tmp_path / "lake")
    shutil.copytree(asked.captures, tmp_path / "captures")
    lake = Lake(str(tmp_path / "lake"))
    lake.remember(open_sources(str(tmp_path / "captures")))
    path = lake.files(table)[0] if table == "messages" else str(next((tmp_path / "captures").glob("*/segments/*")))
    with open(path, "r+b") as file:
        file.truncate(1_000)
    if not is_there:
        Path(path).unlink()
    requests = [ReportRequest("sql", text=f"SELECT min(domain), count(*) FROM {table}")]
    if table == "messages":
        requests.append(ReportRequest("stuck"))
    for request in requests:
        with pytest.raises((LakeIncomplete, CaptureDamaged)) as told:
            answer(session, lake, request)
        assert path in told.value.what
        assert told.value.what.endswith("is damaged" if is_there else "is missing")
        assert told.value.hint == "restore it, or run `unibus pipeline rebuild`"


@pytest.mark.parametrize("zone", ["Asia/Tokyo"], indirect=True)
@pytest.mark.usefixtures("zone")
def test_where_the_machine_is_changes_no_moment(session: SparkSession, asked: Asked) -> None:
    rows = rows_of(answer(session, asked.lake, ReportRequest("channels", limit=ALL)))
    assert all(sum(row["came_over_time"]) == row["came"] for row in rows.values())
    assert any(row["came"] for row in rows.values())
    failed = answer(session, asked.lake, ReportRequest("failures", limit=ALL))
    times = [each["ts"] for each in asked.of("dead_lettered", "expired", "returned")]
    assert min(row["first_at"] for row in failed.records()) == iso(min(times))  # type: ignore[type-var]
    assert max(row["last_at"] for row in failed.records()) == iso(max(times))  # type: ignore[type-var]
    assert sum(failed.plots[0].values) == len(times)
    held = open_messages(asked)
    stuck = answer(session, asked.lake, ReportRequest("stuck", limit=ALL))
    for row in stuck.records():
        event = held[(row["domain"], row["channel"], row["sequence"])]  # type: ignore[index]
        assert row["enqueued_at"] in (iso(event["ts"]), iso(event["enqueued_us"] or 0))
    last = iso(max(each["ts"] for each in asked.events))
    assert stuck.notes[0].endswith(f"{last[:10]} {last[11:19]} UTC")
    seen = answer(session, asked.lake, ReportRequest("consumers", limit=ALL)).records()
    done = [each["ts"] for each in asked.events if each["consumer"]]
    assert max(str(row["last_seen"]) for row in seen) == iso(max(done))


# SQL


def sql(session: SparkSession, asked: Asked, text: str, **more: Any) -> Answer:
    return answer(session, asked.lake, ReportRequest("sql", text=text, **more))


def test_all_tables_can_be_asked(session: SparkSession, asked: Asked) -> None:
    counts = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in NAMES)
    found = {row[0]: row[1] for row in sql(session, asked, counts).rows}
    assert found.keys() == set(NAMES)
    assert found["events"] == len(asked.events)
    assert found["bodies"] == len(asked.of("sent", "scheduled", "published"))
    assert found["batches"] == asked.lake.done()
    assert found["quarantine"] == 0
    names = {place(each) for each in asked.events}
    assert found["channels"] == len(names)


def test_a_query_has_columns_rows_and_a_limit(session: SparkSession, asked: Asked) -> None:
    found = sql(session, asked, "SELECT channel AS c, n, minute FROM channel_minute -- all", limit=3)
    assert ([column.name for column in found.columns], len(found.rows), found.more) == (["c", "n", "minute"], 3, True)
    assert [column.kind for column in found.columns] == ["text", "number", "instant"]
    typed = sql(session, asked, "SELECT map('a', 1), X'00ff', NULL, 1.50BD, timestamp'2026-01-01', array(1, 2)")
    assert typed.rows == [[{"a": 1}, "00ff", None, 1.5, "2026-01-01T00:00:00+00:00", [1, 2]]]


@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
@pytest.mark.usefixtures("zone")
def test_moments_of_a_query_are_those_of_spark(session: SparkSession, asked: Asked) -> None:
    """Both are half past one there, on the day when clocks go back; the third is an hour that its clocks leave out."""
    early, late, left_out = "2026-11-01T05:30:00", "2026-11-01T06:30:00", "2026-03-08T02:30:00.500000"
    query = f"""SELECT timestamp'{early}Z' AS t, timestamp'{late}Z' AS t, timestamp_ntz'{left_out}', date'2026-11-01',
        named_struct('a', array(timestamp'{late}Z', NULL), 'b', timestamp_ntz'{late}'),
        map(timestamp'{early}Z', timestamp'{late}Z'), timestamp'0001-01-01', date_add(date'9999-12-31', 1),
        interval '1-2' year to month, CAST(NULL AS timestamp), time'12:30:00'"""
    found = sql(session, asked, query)
    utc = "+00:00"
    assert found.rows[0][:6] == [
        early + utc,
        late + utc,
        left_out,
        "2026-11-01",
        {"a": [late + utc, None], "b": late},
        {early + utc: late + utc},
    ]
    first, beyond, *_, nothing, clock = found.rows[0][6:]
    assert (first, beyond, nothing, clock) == ("0001-01-01T00:00:00" + utc, "+10000-01-01", None, "12:30:00")
    assert [column.kind for column in found.columns[:3]] == ["instant", "instant", "text"]


def test_what_java_raises_is_told_in_one_line(session: SparkSession, asked: Asked) -> None:
    with pytest.raises(QueryInvalid, match=r"^java\.lang\.StackOverflowError$") as refused:
        sql(session, asked, "SELECT regexp_replace(repeat('a', 1000000), '(a|b)*', 'x')")
    assert "\n" not in str(refused.value)


def test_a_text_is_no_name_whatever_was_set(session: SparkSession, asked: Asked) -> None:
    session.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    with pytest.raises(QueryInvalid, match="syntax error in the SQL"):
        sql(session, asked, """SELECT "reflect"('java.lang.System', 'getenv', 'HOME')""")


@pytest.mark.parametrize(
    ("text", "told", "hint"),
    [
        ("SELECT chanel FROM messages", "there is no column 'chanel'", "did you mean channel?"),
        ("SELECT * FROM mesages", "there is no table 'mesages'", "did you mean messages?"),
        ("SELECT * FROM nothing", "there is no table 'nothing'", "there are messages, "),
        ("SELECT nosuch(1)", "there is no function 'nosuch'", "Spark SQL"),
        ("SELECT 1 GROUP ORDER", "syntax error in the SQL", "Spark SQL"),
        ("SELECT 1) LIMIT 1; (SELECT 2", "has more than one query", ""),
        ("SELECT * FROM text.`/etc/hostname`", "there is no table", ""),
        ("SELECT 1 + 'a'", "", ""),
    ],
)
def test_a_wrong_query_is_told_in_one_line(
    session: SparkSession, asked: Asked, text: str, told: str, hint: str
) -> None:
    with pytest.raises(QueryInvalid) as refused:
        sql(session, asked, text)
    assert told in refused.value.what
    assert hint in refused.value.hint
    assert "\n" not in refused.value.what
    assert "SQLSTATE" not in refused.value.what


def test_a_query_that_takes_too_long_is_stopped(session: SparkSession, asked: Asked) -> None:
    # Compiled to one loop it would compute on behind our back, and all other tests would wait for it.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        with pytest.raises(QueryStopped, match="time limit of 1 s"):
            sql(session, asked, ENDLESS, time_s=1.0)
    finally:
        session.conf.unset("spark.sql.codegen.wholeStage")
    assert sql(session, asked, "SELECT 1 AS a").rows == [[1]]


def test_a_query_ends_when_nobody_waits_for_it(spark: SparkSession, asked: Asked) -> None:
    gone = threading.Event()
    gone.set()
    answers = Answers(spark, asked.lake)
    for each in answers._sessions.queue:
        each.conf.set("spark.sql.codegen.wholeStage", "false")  # As above.
    reply = answers(ReportRequest("sql", text=ENDLESS, time_s=3_600), gone)
    assert reply.refusal is not None
    assert (reply.refusal.kind, "has disconnected" in reply.refusal.what) == ("QueryStopped", True)


def test_brackets_do_not_lead_out_of_the_query(session: SparkSession, asked: Asked) -> None:
    assert sql(session, asked, "SELECT 1) UNION ALL SELECT * FROM (SELECT 2").rows == [[1], [2]]
    with pytest.raises(QueryInvalid):
        sql(session, asked, "SELECT 1); DROP VIEW messages; (SELECT 1")


def test_a_path_is_no_pattern(session: SparkSession, tmp_path: Path) -> None:
    """Beside each folder is another that the name would match if it were a pattern."""
    names = {"a[1]": "a1", "b{x,y}": "bx", "c*": "cc", "d?": "dd", "e\\[": "e[", "100%": "100"}
    for number, name in enumerate([*names, *names.values()]):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [number]}), tmp_path / name / "rows.parquet")
    columns, paths = pa.schema([("n", pa.int64())]), [str(tmp_path / name / "rows.parquet") for name in names]
    found = read_parquet(session, columns, paths).orderBy("n").collect()
    assert [row["n"] for row in found] == list(range(len(names)))


def test_nothing_else_can_be_asked(session: SparkSession, asked: Asked) -> None:
    with pytest.raises(UsageError, match="there is no report 'rm'"):
        answer(session, asked.lake, ReportRequest("rm"))
