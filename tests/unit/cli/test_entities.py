"""`unibus entities` lists the entities of a store: a table that fits 80 columns, or JSON Lines."""

from contextlib import closing
from typing import Any

import apsw
import pytest

from tests.unit.cli.owners import owner_of
from unibus.cli.entities.entities import age, size
from unibus.sync import MessageBus


@pytest.fixture
def filled(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_queue("orders", max_delivery_count=3)
        bus.send_many("orders", ["dead", "locked", "deferred", "active"])
        bus.send("orders", "scheduled", delay=3_600)
        messages = bus.receive_batch("orders", 3, timeout=0)
        messages[0].dead_letter("Broken")
        messages[2].defer()
        bus.create_topic("news")
        bus.create_subscription("news", "mine")


@pytest.mark.usefixtures("filled")
def test_a_pipe_gets_an_object_per_entity(shell: Any) -> None:
    found = {each["name"]: each for each in shell.records("entities")}
    assert {name: each["kind"] for name, each in found.items()} == {
        "news": "topic",
        "news/Subscriptions/mine": "subscription",
        "orders": "queue",
    }
    orders = found["orders"]
    counts = {name: orders[name] for name in ("active", "locked", "scheduled", "deferred", "dead", "last_sequence")}
    assert counts == {"active": 1, "locked": 1, "scheduled": 1, "deferred": 1, "dead": 1, "last_sequence": 5}
    assert orders["size_bytes"] > 0
    assert orders["oldest_at"].startswith("20")
    assert found["news"]["oldest_at"] is None
    assert "settings" not in orders


@pytest.mark.usefixtures("filled")
def test_settings_and_dead_letter_queues_on_request(shell: Any) -> None:
    found = {each["name"]: each for each in shell.records("entities", "--settings", "--dead-letters")}
    assert found["orders"]["settings"]["max_delivery_count"] == 3
    assert found["news"]["settings"]["max_delivery_count"] == 10
    assert found["orders/$DeadLetterQueue"]["active"] == 1


@pytest.mark.usefixtures("filled")
def test_a_terminal_gets_a_table_of_80_columns(shell: Any, terminal: Any) -> None:
    looking = terminal("entities", "--settings", "--dead-letters")
    assert looking.read_all() == 0, looking.output
    text = looking.output.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    heading = ["name", "kind", "active", "locked", "sched", "defer", "dead", "size", "oldest"]
    assert lines[0].split() == heading
    orders = next(line.split() for line in lines if line.split()[:2] == ["orders", "queue"])
    assert orders[2:7] == ["1", "1", "1", "1", "1"]
    assert "\x1b[1m  max_delivery_count        3\x1b[0m" in looking.output  # Not the default: bold.
    assert "\x1b[2m  max_delivery_count        10\x1b[0m" in looking.output


def test_an_empty_store_is_no_failure(shell: Any, terminal: Any) -> None:
    MessageBus("unibus.db").close()
    result = shell("entities")
    assert (result.exit_code, result.stdout) == (0, "")
    looking = terminal("entities")
    assert looking.read_all() == 0, looking.output
    assert "no queues yet" in looking.output


def test_a_long_name_is_shortened_in_the_middle(shell: Any, terminal: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_topic("orders-of-the-northern-region")
        bus.create_subscription("orders-of-the-northern-region", "high")
        bus.send("orders-of-the-northern-region", 1)
    for columns, name in ((80, "orders-of…criptions/high"), (120, "orders-of-the-northern-region/Subscriptions/high")):
        looking = terminal("entities", columns=columns)
        assert looking.read_all() == 0, looking.output
        lines = [line for line in looking.output.splitlines() if "subscription " in line]
        assert [line.split()[:4] for line in lines] == [[name, "subscription", "1", "0"]]
    assert [each["name"] for each in shell.records("entities")][1] == name  # A pipe gets the whole name.


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (2 * 10**12, "2,000.0 GB"),
    ],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0 s"), (59, "59 s"), (60, "1 m"), (7_199, "1 h"), (200_000, "2 d")]
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert age(seconds * 10**9) == text


def test_beside_the_process_that_owns_the_store(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("fill orders 3")
        owner("bury orders Broken")
        assert [(each["name"], each["active"], each["dead"]) for each in shell.records("entities")] == [
            ("orders", 2, 1)
        ]


def test_a_store_of_an_older_version_is_brought_up_to_date(shell: Any) -> None:
    shell.records("send", "q", "x")
    with closing(apsw.Connection("unibus.db")) as connection:
        for table_of_the_second in ("positions", "trace_index", "trace_blocks"):
            connection.execute(f"DROP TABLE {table_of_the_second}")
        for column_of_the_third in ("created_ns", "updated_ns"):
            connection.execute(f"ALTER TABLE entities DROP COLUMN {column_of_the_third}")
        connection.execute("DROP TABLE batches")  # Of the fourth.
        connection.execute("DELETE FROM meta WHERE key = 'identity'")
        connection.pragma("user_version", 1)
    assert [each["active"] for each in shell.records("entities")] == [1]
    with closing(apsw.Connection("unibus.db")) as connection:
        connection.pragma("user_version", 999)
    result = shell("entities")
    assert (result.exit_code, "newer unibus" in result.stderr) == (4, True)
