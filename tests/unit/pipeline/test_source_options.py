"""Options are checked before anything happens, and a slip is answered with what was probably meant."""

import os

import pytest

from unibus.errors import UsageError
from unibus.pipeline.connector.options import ReadOptions, read_options, write_options

PLACE = {"path": "capture"}
NO_NAMES = ["", ".", "..", "...", "../up", "a/b", "a\\b", "a\0b", "a\n", "a b", "~", "%2e", "x" * 129]


def test_what_is_left_out_has_a_default() -> None:
    assert read_options(PLACE) == ReadOptions(
        where=(os.path.abspath("capture"),),
        channels=(),
        kinds=(),
        columns=(),
        starting="",
        ending="",
        max_events=0,
        min_events=0,
        max_delay_s=900.0,
        fail_on_data_loss=True,
        mode="fail",
        quarantine="",
        cursor="",
        bodies=False,
        pushdown=False,
    )


def test_values_are_read() -> None:
    options = read_options(
        {
            "url": "sqlite:///bus.db?domain=a",
            "channels": "orders, bills/*",
            "MAXEVENTSPERTRIGGER": "500",
            "minEventsPerTrigger": "10",
            "maxTriggerDelay": "1m30s",
            "failOnDataLoss": "FALSE",
            "mode": "Quarantine",
            "bodies": "true",
        }
    )
    assert options.where == (f"sqlite:///{os.path.abspath('bus.db')}?domain=a",)
    assert options.channels == ("orders", "bills/*")
    assert (options.max_events, options.min_events, options.max_delay_s) == (500, 10, 90.0)
    assert (options.fail_on_data_loss, options.mode, options.bodies) == (False, "quarantine", True)


def test_several_places_are_read() -> None:
    assert read_options({"paths": '["a", "/b"]'}).where == (os.path.abspath("a"), "/b")
    assert read_options({"path": "file:/a%20b"}).where == ("/a b",)
    assert read_options({"url": "sqlite:////bus.db"}).where == ("sqlite:////bus.db",)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"chanels": "a"}, "no option 'chanels' .did you mean 'channels'"),
        ({"startingoffset": "1"}, "did you mean 'startingOffsets'"),
        ({"zzz": "1"}, "no option 'zzz' .one of bodies, "),
        ({"mode": "permisive"}, "did you mean 'permissive'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss must be true or false, got 'no'"),
        ({"maxEventsPerTrigger": "0"}, "maxEventsPerTrigger must be a whole number of 1 or more, got '0'"),
        ({"maxEventsPerTrigger": "1e3"}, "a whole number"),
        ({"maxTriggerDelay": "soon", "minEventsPerTrigger": "1"}, "'soon' is not a duration"),
        ({"maxTriggerDelay": "1s"}, "set minEventsPerTrigger too"),
        ({"minEventsPerTrigger": "2", "maxEventsPerTrigger": "1"}, "is larger"),
        ({"cursor": "a/b"}, "is not a valid name"),
        ({"channels": ","}, "has no names"),
        ({"url": "sqlite:///x"}, "both path and url"),
        ({"path": "s3://bucket/history"}, "a capture cannot be at 's3://bucket/history'"),
        ({"quarantinePath": "s3://bucket/notes"}, "quarantinePath cannot be at 's3://bucket/notes'"),
    ],
)
def test_a_wrong_read_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_options({**PLACE, **given})


def test_nothing_to_read_is_refused() -> None:
    with pytest.raises(UsageError, match="no source to read"):
        read_options({})


def test_a_write_is_read() -> None:
    options = write_options({"url": "sqlite:////bus.db", "query": "nightly", "batch": "2026-11-16", "queryName": "x"})
    assert (options.url, options.query, options.batch) == ("sqlite:////bus.db", "nightly", "2026-11-16")
    assert options.rows_per_transaction == 2_000
    assert write_options({"path": "bus.db"}).url == f"sqlite:///{os.path.abspath('bus.db')}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "0 buses to write to are given"),
        ({"url": "s3://bucket/bus.db"}, "a bus cannot be at 's3://bucket/bus.db'"),
        ({"url": "memory://"}, "a bus in memory ends with the process"),
        ({"url": "sqlite:///a", "startingOffsets": "1"}, "no option 'startingoffsets'"),
        ({"url": "sqlite:///a", "rowsPerTransaction": "9999"}, "at most 9998"),
        *(({"url": "sqlite:///a", "query": name}, "is not a valid name .* not dots alone") for name in NO_NAMES),
        *(({"url": "sqlite:///a", "query": "q", "batch": name}, "is not a valid name") for name in NO_NAMES),
    ],
)
def test_a_wrong_write_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        write_options(given)
