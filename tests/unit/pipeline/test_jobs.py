"""The functions that make the tables, on a handful of events."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.pipeline.lake_histories import BEGAN_US
from unibus.capture.schema import channel_key, table_of
from unibus.core.lifecycle.events import Event
from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.jobs.channel_minutes import minute_rows, minutes_of
from unibus.pipeline.jobs.closed_messages import closed_of
from unibus.pipeline.jobs.failures import failure_rows, failures_of
from unibus.pipeline.jobs.latency import latencies_of, latency_rows
from unibus.pipeline.jobs.names import distinct, names_of
from unibus.pipeline.jobs.open_messages import dropped, dropped_rows, drops_of, merged, open_rows, opened_of
from unibus.pipeline.jobs.traces import events_with, trace_rows, traces_of
from unibus.pipeline.storage.histogram import bucket_of, buckets_of, lower_us, quantile_us, upper_us

MINUTE = 60_000_000


def event(seq: int, kind: str, sequence: int = 1, **more: Any) -> Event:
    channel, after_us = more.pop("channel", "orders"), more.pop("after_us", seq * 1_000)
    about = {"message_id": f"m{sequence}", "size": 10, **more}
    return Event(seq, BEGAN_US + after_us, "local", channel, kind, sequence, **about)


def table(*events: Event) -> pa.Table:
    return table_of(events)


def stands(*events: Event) -> dict[int, tuple[str, int]]:
    """By sequence: the state and the deliveries of what is open."""
    parts, _ends = opened_of(table(*events))
    return {row["sequence"]: (row["state"], row["delivery_count"]) for row in open_rows(parts).to_pylist()}


def test_every_event_is_counted_in_its_minute() -> None:
    events = table(event(1, "sent"), event(2, "sent", 2, after_us=MINUTE), event(3, "sent", 3, size=None))
    rows = minute_rows(minutes_of(events), names_of(events)).to_pylist()
    assert [(row["channel"], row["kind"], row["n"], row["bytes"]) for row in rows] == [
        ("orders", "sent", 2, 10),
        ("orders", "sent", 1, 10),
    ]
    assert (rows[1]["minute"] - rows[0]["minute"]).total_seconds() == 60


def test_a_kind_of_a_newer_version_is_counted_as_unknown() -> None:
    events = table(event(1, "teleported"))
    assert minute_rows(minutes_of(events), names_of(events))["kind"].to_pylist() == ["unknown"]


def test_latency_is_told_by_the_end() -> None:
    times = {"enqueued_us": BEGAN_US, "first_delivered_us": BEGAN_US + 300}
    events = table(
        event(1, "sent"),
        event(2, "completed", **times),
        event(3, "expired", 2, enqueued_us=BEGAN_US, first_delivered_us=None),
        event(4, "purged", 3),
    )
    rows = latency_rows(latencies_of(events), names_of(events)).to_pylist()
    assert sorted((row["outcome"], row["measure"], row["bucket"], row["n"], row["sum_us"]) for row in rows) == [
        ("completed", "total", bucket_of(2_000), 1, 2_000),
        ("completed", "waiting", bucket_of(300), 1, 300),
        ("expired", "total", bucket_of(3_000), 1, 3_000),
    ]


def test_a_clock_that_was_set_back_gives_no_negative_times() -> None:
    events = table(event(1, "completed", enqueued_us=BEGAN_US + 10**9, first_delivered_us=BEGAN_US))
    assert set(latencies_of(events)["sum_us"].to_pylist()) == {0}


@pytest.mark.parametrize("us", [0, 1, 2, 3, 7, 8, 1_000, 1_024, 65_536, 10**6, 2**40, 2**40 + 1])
def test_a_bucket_holds_what_is_put_into_it(us: int) -> None:
    bucket = bucket_of(us)
    assert buckets_of(np.array([us]))[0] == bucket
    assert lower_us(bucket) <= us * (1 + 1e-9)
    assert us < upper_us(bucket) * (1 + 1e-9)


def test_a_quantile_is_near() -> None:
    counts = [(bucket_of(us), 1) for us in range(1, 1_001)]
    for share, us in ((0.5, 500), (0.99, 990)):
        found = quantile_us(counts, share)
        assert found is not None
        assert 0.82 < found / us < 1.22
    assert quantile_us([], 0.5) is None


def test_failures_by_reason_and_signature() -> None:
    events = table(
        event(1, "dead_lettered", reason="bad", signature="ValueError"),
        event(2, "dead_lettered", 2, reason="bad", signature="ValueError"),
        event(3, "returned", 3, reason="abandoned"),
        event(4, "completed", 4),
    )
    rows = failure_rows(failures_of(events), names_of(events)).to_pylist()
    found = [(row["kind"], row["reason"], row["signature"], row["n"], row["sample_message_id"]) for row in rows]
    assert sorted(found) == [
        ("dead_lettered", "bad", "ValueError", 2, "m2"),
        ("returned", "abandoned", None, 1, "m3"),
    ]


def test_a_trace_goes_over_channels() -> None:
    events = table(
        event(1, "sent", trace_id="t"),
        event(2, "dead_lettered", trace_id="t"),
        event(3, "copied", channel="orders/$dead", trace_id="t"),
        event(4, "sent", 2),
    )
    rows = trace_rows(traces_of(events_with(events, "trace_id"), "trace_id"), "trace", names_of(events)).to_pylist()
    found = [(row["id"], row["channel"], row["events"], row["messages"], row["failed"]) for row in rows]
    assert sorted(found) == [("t", "orders", 2, 1, 1), ("t", "orders/$dead", 1, 1, 0)]


def test_names_are_told_once() -> None:
    events = table(event(1, "sent"), event(2, "sent", channel="bills"), event(3, "sent", 2))
    names = distinct(pa.concat_tables([names_of(events), names_of(events)]))
    assert {(row["channel_key"], row["channel"]) for row in names.to_pylist()} == {
        (channel_key("local", "orders"), "orders"),
        (channel_key("local", "bills"), "bills"),
    }
    assert names.num_rows == 2


def test_adding_up_keeps_null_keys_apart() -> None:
    rows = pa.table({"key": ["a", None, "a", None], "n": [1, 2, 3, 4], "top": [5, 1, 2, 9]})
    assert sorted(added_up(rows, {"n": "sum", "top": "max"}).to_pylist(), key=str) == [
        {"key": "a", "n": 4, "top": 5},
        {"key": None, "n": 6, "top": 9},
    ]


def test_a_closed_message_is_what_its_end_tells() -> None:
    events = table(
        event(1, "sent"), event(2, "completed", delivery_count=2, consumer="w", enqueued_us=BEGAN_US + 1_000)
    )
    (row,) = closed_of(events).to_pylist()
    assert (row["outcome"], row["state"], row["delivery_count"], row["consumer"]) == ("completed", "gone", 2, "w")
    assert (row["last_at"] - row["enqueued_at"]).microseconds == 1_000


@pytest.mark.parametrize(
    ("then", "state"),
    [
        ((), ("active", 0)),
        ((("delivered", 1, {"until_us": "5"}),), ("locked", 1)),
        ((("delivered", 1, None), ("renewed", None, None)), ("locked", 1)),
        ((("delivered", 1, None), ("returned", 1, None)), ("active", 1)),
        ((("delivered", 1, None), ("returned", 0, None)), ("active", 0)),
        ((("delivered", 1, None), ("returned", 1, {"visible_us": "9"})), ("scheduled", 1)),
        (
            (("delivered", 1, None), ("returned", 1, {"visible_us": "9"}), ("activated", None, {"new_sequence": "1"})),
            ("active", 1),
        ),
        ((("delivered", 1, None), ("deferred", 1, None)), ("deferred", 1)),
        (
            (("delivered", 1, None), ("deferred", 1, None), ("delivered", 2, None), ("returned", 2, None)),
            ("deferred", 2),
        ),
    ],
)
def test_where_an_open_message_stands(
    then: tuple[tuple[str, int | None, dict[str, str] | None], ...], state: Any
) -> None:
    later = [event(at, kind, delivery_count=count, attrs=attrs) for at, (kind, count, attrs) in enumerate(then, 2)]
    assert stands(event(1, "sent"), *later) == {1: state}


def test_a_scheduled_message_goes_on_under_its_new_sequence() -> None:
    activated = event(2, "activated", attrs={"new_sequence": "5"})
    assert stands(event(1, "scheduled", attrs={"visible_us": "9"})) == {1: ("scheduled", 0)}
    assert stands(event(1, "scheduled"), activated) == {5: ("active", 0)}
    assert stands(event(1, "scheduled"), activated, event(3, "completed", 5)) == {}
    parts, ends = opened_of(table(activated))
    assert parts["sequence"].to_pylist() == [5]
    assert ends["sequence"].to_pylist() == [1]


def test_parts_come_together_in_whatever_pieces() -> None:
    events = [
        event(1, "sent"),
        event(2, "delivered", delivery_count=1, consumer="w"),
        event(3, "returned", delivery_count=1, reason="abandoned"),
        event(4, "sent", 2),
        event(5, "completed", 2),
        event(6, "delivered", delivery_count=2),
    ]
    whole = opened_of(table(*events))[0]
    for cut in range(1, len(events)):
        found = [opened_of(table(*part)) for part in (events[:cut], events[cut:])]
        assert (
            merged(pa.concat_tables([each[0] for each in found]), pa.concat_tables([each[1] for each in found]))
            == whole
        )
    (row,) = open_rows(whole).to_pylist()
    assert (row["consumer"], row["reason"], row["delivery_count"], row["state"]) == ("w", "abandoned", 2, "locked")
    assert row["enqueued_at"] is not None


def test_of_a_message_that_came_before_is_known_what_was_seen() -> None:
    parts, _ = opened_of(table(event(8, "renewed", message_id=None, size=None), event(9, "returned", delivery_count=3)))
    (row,) = open_rows(parts).to_pylist()
    assert (row["message_id"], row["enqueued_at"], row["delivery_count"]) == ("m1", None, 3)


def test_a_drop_ends_what_came_before_it() -> None:
    events = table(
        event(1, "sent", 1),
        event(2, "sent", 2),
        event(3, "sent", 7, channel="bills"),
        event(4, "dropped", 2, message_id=None),
        event(5, "sent", 3),
    )
    stay, gone = dropped(opened_of(events)[0], drops_of(events))
    assert sorted((row["channel"], row["sequence"]) for row in stay.to_pylist()) == [("bills", 7), ("orders", 3)]
    rows = dropped_rows(gone).to_pylist()
    assert [(row["sequence"], row["outcome"], row["last_seq"]) for row in rows] == [
        (1, "dropped", 4),
        (2, "dropped", 4),
    ]


def test_sequences_of_any_size() -> None:
    events = [
        event(1, "sent", 1),
        event(2, "sent", 2**62),
        event(3, "sent", 2**62, channel="bills"),
        event(4, "completed", 1),
    ]
    assert set(stands(*events)) == {2**62}
